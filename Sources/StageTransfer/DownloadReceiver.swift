import CCurl
import StageModel
import StageSystem

/// Writes the body of one response to a partial file, once the rules allow it.
final class DownloadReceiver: ExchangeReceiver {
    private let redirects: RedirectChain
    private let source: String
    private let rules: ResponseRules
    private let part: PartialFile
    private let expectedSize: Int64?
    private let recordsFrom: Int64
    private let report: @Sendable (TransferEvent) -> Void
    private let permitSize: (@Sendable (ByteCount) throws(TransferError) -> Void)?

    private(set) var decision: ResponseRules.Decision?
    private(set) var status = 0
    /// Head of a redirect response.
    private(set) var redirect: ResponseSummary?
    private(set) var newBytes: Int64 = 0
    private(set) var wasAccepted = false
    private var content: PartialFile.Content?
    /// Final size of the file, if known.
    private var total: Int64?
    /// End of the range in the head of a 206.
    private var rangeEnd: Int64?
    private var position: Int64 = 0
    private var overlapEnd: Int64 = 0
    private var reported: Int64 = 0
    /// Size up to which the caller has permitted the file to grow.
    private var permitted: Int64 = 0
    private var failure: TransferStateMachine.Outcome?
    private var buffer: [UInt8] = []

    /// Creates a receiver for the response at the end of `redirects`, which began at the mirror URL `source`.
    init(
        _ request: DownloadRequest,
        redirects: RedirectChain,
        source: String,
        rules: ResponseRules,
        part: PartialFile,
        recordsFrom: Int64
    ) {
        self.redirects = redirects
        self.source = source
        self.rules = rules
        self.part = part
        self.recordsFrom = recordsFrom
        expectedSize = request.size?.rawValue
        report = request.report
        permitSize = request.permitSize
    }

    private var url: TransferURL { redirects.url }

    func wait() { report(.waiting(.connection, nil)) }

    func connect() { report(.connecting(url: url.display)) }

    func receive(_ head: ResponseHead) -> BodyUse {
        let decision = rules.judge(head)
        self.decision = decision
        status = head.status
        let summary = ResponseSummary(head, at: redirects)
        if decision.isFinal { report(.responded(summary)) } else { redirect = summary }
        let isEncoded = rules.decodesContent && head.encoding != nil
        let length = isEncoded ? nil : head.bodyLength
        do throws(TransferError) {
            switch decision {
            case .append: try resume(head, from: rules.offset)
            case .compare(let start): try resume(head, from: start)
            case .begin:
                try begin(
                    head,
                    size: expectedSize ?? length,
                    isContinuable: rules.isGet && !isEncoded
                )
            case .beginRefusal: try begin(head, size: length, isContinuable: false)
            case .complete: reportAccepted(at: rules.offset)
            default: break
            }
            return decision.takesBody ? .take : .skip
        } catch {
            failure = .local(error)
            return .skip
        }
    }

    /// `true` if the response started a new generation.
    var hasBegun: Bool { wasAccepted && overlapEnd == 0 }

    private func resume(_ head: ResponseHead, from start: Int64) throws(TransferError) {
        total = rules.size ?? rules.partialTotal
        if case .bytes(let range, _) = head.contentRange { rangeEnd = range.upperBound + 1 }
        try permit(start)
        do throws(FileError) {
            try part.rebind(
                to: rules.validator ?? Validator(head),
                url: source,
                resource: url.resource
            )
        } catch {
            throw TransferError(error)
        }
        content = part.content
        position = start
        overlapEnd = rules.offset
        accept(at: rules.offset)
    }

    /// Starts a new generation for content of `size` bytes; `nil` if the size is unknown.
    private func begin(
        _ head: ResponseHead,
        size: Int64?,
        isContinuable: Bool
    ) throws(TransferError) {
        // RFC 9112, section 6.3
        total = rules.isBodyless || [204, 304].contains(head.status) ? 0 : size
        try permit(0)
        let recorded = isContinuable ? total : nil
        do throws(FileError) {
            content = try part.begin(
                total: recorded,
                validator: recorded == nil ? nil : Validator(head),
                url: source,
                resource: url.resource,
                isRecorded: recorded.map { $0 > recordsFrom } ?? false
            )
        } catch {
            throw TransferError(error)
        }
        position = 0
        accept(at: 0)
    }

    private func accept(at offset: Int64) {
        wasAccepted = true
        reported = offset
        reportAccepted(at: offset)
    }

    private func reportAccepted(at offset: Int64) {
        report(
            .accepted(
                generation: part.generation,
                path: part.path,
                resumingAt: ByteCount(offset)
            )
        )
    }

    func receive(_ body: Span<UInt8>) -> Bool {
        guard let content, failure == nil else { return false }
        do throws(TransferError) {
            let known = try equalPrefix(of: body, in: content)
            guard let known else {
                failure = .restart
                return false
            }
            let rest = body.extracting(known...)
            let end: Int64 = rangeEnd ?? total ?? .max
            guard rest.count <= end - position else {
                try refuseExcess(beyond: end)
                return false
            }
            if !rest.isEmpty { try append(rest, to: content) }
            return true
        } catch {
            failure = .local(error)
            return false
        }
    }

    /// Ends an exchange whose body has bytes beyond the announced or requested end.
    ///
    /// Without a known digest, the bytes before them are discarded: the file could have the size of the content, and a later
    /// download would take it for complete.
    private func refuseExcess(beyond end: Int64) throws(TransferError) {
        if rangeEnd == nil {
            let error = TransferError.wrongSize(
                url: url.display,
                expected: ByteCount(end),
                actual: nil
            )
            failure = .permanent(error)
        } else {
            failure = .distrustRanges("206 with more bytes than its range")
        }
        if !rules.hasKnownDigest { try part.remove() }
    }

    /// Asks the caller whether the file may grow beyond `position`.
    private func permit(_ position: Int64) throws(TransferError) {
        permitted = position + Self.permitInterval
        try permitSize?(ByteCount(total ?? permitted))
    }

    private func append(_ bytes: Span<UInt8>, to content: PartialFile.Content) throws(TransferError)
    {
        if let fault = part.fault { throw TransferError(fault) }
        if position + Int64(bytes.count) > permitted { try permit(position) }
        do throws(FileError) {
            try content.file.write(bytes, at: position)
        } catch {
            throw TransferError(error)
        }
        position += Int64(bytes.count)
        newBytes += Int64(bytes.count)
        part.grow(to: position)
        if position - reported >= Self.reportInterval { reportProgress() }
    }

    /// Compares bytes that the server sent again with the file, and returns their number, or `nil` if they differ.
    private func equalPrefix(
        of body: Span<UInt8>,
        in content: PartialFile.Content
    ) throws(TransferError) -> Int? {
        guard position < overlapEnd else { return 0 }
        let count = Int(min(Int64(body.count), overlapEnd - position))
        var compared = 0
        while compared < count {
            buffer = [UInt8](repeating: 0, count: count - compared)
            let read: Int
            do throws(FileError) {
                read = try content.file.read(into: &buffer, at: position)
            } catch {
                throw TransferError(error)
            }
            guard read > 0 else { return nil }
            for index in 0..<read where buffer[index] != body[compared + index] { return nil }
            compared += read
            position += Int64(read)
        }
        return count
    }

    /// Reports the number of bytes in the file, unless that was reported already.
    func reportProgress() {
        guard wasAccepted, position > reported else { return }
        reported = position
        report(.received(ByteCount(position)))
    }

    private static let reportInterval: Int64 = 1 << 18
    private static let permitInterval: Int64 = 4 << 20

    /// Returns the outcome of the ended exchange; `nil` for a redirect.
    func outcome(_ end: ExchangeEnd) -> TransferStateMachine.Outcome? {
        reportProgress()
        if let failure { return failure }
        if end.code == nil, end.stalled == nil { return .local(.cancelled) }
        switch decision {
        case nil: return .failed(end, url: url.display)
        case .append, .compare, .begin, .beginRefusal:
            if let total, position == total { return .complete }
            guard end.isComplete else { return .failed(end, url: url.display) }
            guard let total else { return .complete }
            let detail = "the content ended after \(position) of \(total.quantity(of: "byte"))"
            return .transient(.unreachable(url: url.display, detail: detail), pause: nil)
        case .some(let decision):
            return .decided(decision, url: url.display, source: source, size: expectedSize ?? 0)
        }
    }
}

extension TransferStateMachine.Outcome {
    /// The outcome for a request that the server may have processed: a failure causes no further attempt, at this
    /// server or another.
    var withoutRepetition: Self {
        switch self {
        case .transient(.unreachable(let url, let fault, let detail), _):
            return .local(.unreachable(url: url, fault, detail: detail + Self.notAgain))
        // The daemon would retry both, after a login or a correction of the clock.
        case .permanent(.captivePortal(let url, _)), .permanent(.untrusted(let url, _, _)):
            return .local(.unreachable(url: url, detail: "\(self)" + Self.notAgain))
        case .transient(let error, _), .permanent(let error): return .local(error)
        case .complete, .restart, .distrustRanges, .probeSucceeded, .local: return self
        }
    }

    private static let notAgain =
        "; the server may have acted on the request, which is not sent again"

    /// Returns the outcome of a decision that does not read the body; `nil` for a redirect.
    static func decided(
        _ decision: ResponseRules.Decision,
        url: String,
        source: String,
        size: Int64
    ) -> Self? {
        switch decision {
        case .redirect: nil
        case .append, .compare, .begin, .beginRefusal, .complete, .notModified: .complete
        case .restart: .restart
        case .probeSucceeded: .probeSucceeded
        case .distrustRanges(let detail): .distrustRanges(detail)
        case .retry(let status, let pause):
            .transient(.refused(url: url, status: status, retryAfter: pause), pause: pause)
        case .portal: .permanent(.captivePortal(url: source, answeredBy: url))
        case .wrongSize(let actual):
            .permanent(
                .wrongSize(url: url, expected: ByteCount(size), actual: ByteCount(actual))
            )
        case .tooLarge: .permanent(.unacceptable(url: url, .size(limit: ByteCount(size))))
        case .encoded(let name): .permanent(.unacceptable(url: url, .contentEncoding(name)))
        case .malformed(let detail): .permanent(.unacceptable(url: url, .answer(detail)))
        case .refuse(206):
            .permanent(.unacceptable(url: url, .answer("206 without a request for a range")))
        case .refuse(200):
            .permanent(.unacceptable(url: url, .answer("200 with Content-Range")))
        case .refuse(let status): .permanent(.refused(url: url, status: status))
        }
    }

    /// Returns the outcome of a failed exchange.
    static func failed(_ end: ExchangeEnd, url: String) -> Self {
        if let window = end.stalled {
            let detail = "the transfer stalled for \(window.inWords)"
            return .transient(.unreachable(url: url, .timeout, detail: detail), pause: nil)
        }
        if let fault = end.fault { return .permanent(.unacceptable(url: url, .answer(fault))) }
        // A retry would be refused again, unlike that of a request to a server that the proxy cannot reach.
        if end.proxyStatus == 407 { return .permanent(.refused(url: url, status: 407)) }
        switch end.code {
        case nil: return .local(.cancelled)
        // libcurl uses one code for an unsupported scheme and for bytes that are not an HTTP response.
        case CURLE_UNSUPPORTED_PROTOCOL where end.wasRequestSent:
            let detail =
                end.detail.contains("HTTP/0.9") || end.detail.isEmpty
                ? "it does not begin with an HTTP status line" : end.detail
            return .permanent(.unacceptable(url: url, .answer(detail)))
        case CURLE_BAD_CONTENT_ENCODING where end.decodesContent:
            return .permanent(.unacceptable(url: url, .undecodable(end.detail)))
        // The engine asks libcurl for no content encoding here: this is an unknown transfer encoding.
        case CURLE_BAD_CONTENT_ENCODING:
            let detail = "its 'Transfer-Encoding' is not known"
            return .permanent(.unacceptable(url: url, .answer(detail)))
        case CURLE_WEIRD_SERVER_REPLY:
            return .permanent(.unacceptable(url: url, .answer(end.detail)))
        case CURLE_UNSUPPORTED_PROTOCOL, CURLE_URL_MALFORMAT, CURLE_UNKNOWN_OPTION,
            CURLE_NOT_BUILT_IN, CURLE_FAILED_INIT, CURLE_BAD_FUNCTION_ARGUMENT:
            return .permanent(.unacceptable(url: url, .library(end.detail)))
        case CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_ISSUER_ERROR,
            CURLE_SSL_CERTPROBLEM, CURLE_SSL_INVALIDCERTSTATUS, CURLE_SSL_PINNEDPUBKEYNOTMATCH:
            let (fault, explanation) = end.certificateFault
            return .permanent(.untrusted(url: url, fault, detail: explanation))
        case CURLE_OK:
            // For other responses of a successful transfer, their head has decided.
            let detail = "the response ended within its head"
            return .transient(.unreachable(url: url, detail: detail), pause: nil)
        default:
            let fault = TransferError.ConnectionFault(end)
            return .transient(.unreachable(url: url, fault, detail: end.explanation), pause: nil)
        }
    }
}

extension TransferError.ConnectionFault {
    /// Classifies the fault by the connection on which it occurred and libcurl's result code.
    fileprivate init(_ end: ExchangeEnd) {
        let fault = Self(code: end)
        self = end.isFaultOfProxy ? .proxy(fault) : fault
    }

    private init(code end: ExchangeEnd) {
        switch end.code {
        case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY: self = .nameLookup
        case CURLE_OPERATION_TIMEDOUT: self = .timeout
        case CURLE_SSL_CONNECT_ERROR: self = .handshake
        case CURLE_COULDNT_CONNECT: self = end.hasNoRoute ? .noRoute : .connect
        default: self = end.wasRequestSent ? .lost : .connect
        }
    }
}
