import CCurl
import StageModel
import StageSystem

extension TransferEngine {
    /// Sends a request, and returns when all of its answer was handed over.
    ///
    /// Cancelling the task ends the exchange at once.
    ///
    /// - Throws: ``StreamedFailure``; whether an answer has begun is known from the events.
    public func send(_ request: StreamedRequest) async throws(StreamedFailure) {
        let url: TransferURL
        let source: UploadSource?
        do throws(TransferError) {
            try RequestRules.check(request)
            url = try TransferURL(request.url)
            guard !url.isFile else { throw .unacceptable(url: url.display, .url) }
            guard request.body == nil || !["GET", "HEAD", "TRACE"].contains(request.method) else {
                let detail = "a \(request.method) request has no body"
                throw TransferError.unacceptable(url: url.display, .request(detail))
            }
            source = try UploadSource.body(of: request)
        } catch {
            throw StreamedFailure(error)
        }
        let receiver = StreamReceiver(request, url: url)
        let exchange = Exchange(
            ExchangeRequest(
                url: url,
                method: request.method,
                fields: request.fields
                    // Without the question there is no 417, after which libcurl asks again by itself.
                    + (source == nil
                        ? RequestRules.fieldsWithoutBody(of: request.method) : ["Expect:"]),
                priority: request.priority,
                timeout: request.timeout,
                mayAuthenticate: request.allowsCredentials,
                mayRepeat: RequestRules.isIdempotent(request.method),
                requiresNewestTLS: request.requiresNewestTLS,
                decodesContent: request.decodesContent
            ),
            receiver: receiver,
            source: source,
            now: clock.now
        )
        exchange.backlog = request.backlog
        let end = await perform(exchange)
        if let error = source?.failure { throw StreamedFailure(error) }
        if let failure = receiver.failure(end) { throw failure }
    }
}

extension UploadSource {
    /// Opens the body of a request that is sent once.
    fileprivate static func body(
        of request: StreamedRequest
    ) throws(TransferError) -> UploadSource? {
        guard let open = request.body else { return nil }
        let file: File
        do throws(FileError) {
            file = try open()
        } catch {
            throw .storage(error)
        }
        let receive = request.receive
        let source = try UploadSource(
            file,
            leave: nil,
            ledger: UploadLedger(UploadRequest(url: request.url))
        ) { event in
            if case .sent(let count) = event { receive(.sent(count)) }
        }
        source.begin(0..<source.size)
        return source
    }
}

/// Hands the answer over as it comes.
private final class StreamReceiver: ExchangeReceiver {
    private let request: StreamedRequest
    private let url: TransferURL
    private var status = 0

    init(_ request: StreamedRequest, url: TransferURL) {
        self.request = request
        self.url = url
    }

    func wait() {}

    func connect() { request.receive(.began) }

    func receive(_ head: ResponseHead) -> BodyUse {
        status = head.status
        var summary = ResponseSummary(
            url: url.display,
            status: head.status,
            fields: head.fields,
            redirects: 0
        )
        summary.connection = head.connection
        request.receive(.head(summary))
        return .take
    }

    func receive(_ body: Span<UInt8>) -> Bool {
        request.backlog.add(body.count)
        request.receive(.bytes(unsafe body.withUnsafeBufferPointer { unsafe Array($0) }))
        return true
    }

    /// Returns the failure that an exchange has ended with, if it has.
    func failure(_ end: ExchangeEnd) -> StreamedFailure? {
        guard !end.isComplete || status == 0 else { return nil }
        let error =
            DownloadMachine.Outcome.failed(end, url: url.display).error
            ?? .unreachable(url: url.display, detail: end.detail)
        return StreamedFailure(kind(of: end, error), error, wasSent: end.wasRequestSent)
    }

    private func kind(of end: ExchangeEnd, _ error: TransferError) -> StreamedFailure.Kind {
        if end.stalled != nil { return .timeout }
        if request.decodesContent, end.code == CURLE_BAD_CONTENT_ENCODING { return .badContent }
        switch error {
        case .untrusted: return .certificate
        case .cancelled: return .cancelled
        case .unacceptable(_, .answer): return .badAnswer
        case .unacceptable: return .badRequest
        default: break
        }
        switch end.code {
        case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY: return .nameLookup
        case CURLE_OPERATION_TIMEDOUT: return .timeout
        case CURLE_SSL_CONNECT_ERROR: return .tls
        case CURLE_COULDNT_CONNECT: return .connect
        default: return end.wasRequestSent ? .lost : .connect
        }
    }
}

extension StreamedFailure {
    /// Creates the failure of a request that was not sent.
    fileprivate init(_ error: TransferError) {
        let kind: Kind
        switch error {
        case .storage, .wrongSize: kind = .storage
        default: kind = .badRequest
        }
        self.init(kind, error, wasSent: false)
    }

    fileprivate init(_ kind: Kind, _ error: TransferError, wasSent: Bool) {
        self.kind = kind
        self.error = error
        self.wasSent = wasSent
    }
}
