public import StageModel
import StageSystem
import SystemPackage

/// What is at a URL, as far as its owner tells without sending it.
public enum ProbeAnswer: Equatable, Sendable {
    /// A server's answer, after redirects, and whether it has a validator by which a later request may
    /// go on where an earlier one ended.
    case server(ResponseSummary, hasStrongValidator: Bool)
    /// A local file of this size.
    case file(size: ByteCount)
}

extension TransferEngine {
    /// Asks for a URL once, with further header fields, and takes nothing but the head of the answer.
    ///
    /// The status of the answer is no error, whatever it is.
    ///
    /// - Throws: ``TransferError`` if there is no answer, or a redirect leads where none may.
    public func probe(
        _ url: String,
        fields: [String] = []
    ) async throws(TransferError) -> ProbeAnswer {
        let source = try TransferURL(url)
        if source.isFile { return try Self.size(of: source) }
        var route = Route(start: source, rules: RedirectRules())
        while true {
            let receiver = HeadReceiver()
            let request = ExchangeRequest(
                url: route.url,
                fields: fields,
                mayAuthenticate: route.isAtOrigin
            )
            let exchange = Exchange(request, receiver: receiver, now: clock.now)
            let end = await perform(exchange)
            guard let head = receiver.head else {
                throw DownloadMachine.Outcome.failed(end, url: route.url.display).error
                    ?? .unreachable(url: route.url.display, detail: end.detail)
            }
            let decision = ResponseRules().judge(head)
            if decision.isFinal {
                return .server(
                    ResponseSummary(head, at: route),
                    hasStrongValidator: Validator(head) != nil
                )
            }
            try route.follow(decision, status: head.status)
        }
    }

    private static func size(of url: TransferURL) throws(TransferError) -> ProbeAnswer {
        do throws(FileError) {
            let status = try File.open(readingRegular: FilePath(url.path)).status()
            return .file(size: ByteCount(status.size))
        } catch {
            throw TransferError(error)
        }
    }
}

extension DownloadMachine.Outcome {
    /// Why the attempt failed; `nil` if it did not.
    var error: TransferError? {
        switch self {
        case .transient(let error, _), .permanent(let error), .local(let error): error
        default: nil
        }
    }
}

/// Keeps the head of one answer.
private final class HeadReceiver: ExchangeReceiver {
    private(set) var head: ResponseHead?

    func wait() {}

    func connect() {}

    func receive(_ head: ResponseHead) -> BodyUse {
        self.head = head
        return .skip
    }

    func receive(_ body: Span<UInt8>) -> Bool { true }
}
