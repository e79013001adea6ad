public import StageModel
import StageSystem
import SystemPackage

/// Result of probing a URL without downloading its content.
@nonexhaustive
public enum ProbeAnswer: Equatable, Sendable {
    /// Head of a server's response, after redirects, and the reason why a later request cannot resume;
    /// `nil` if it has a strong validator.
    case server(ResponseSummary, validatorDefect: ValidatorDefect?)
    /// A local file of this size.
    case file(size: ByteCount)
}

extension TransferEngine {
    /// Sends one request with additional header fields, and reads only the head of the response.
    ///
    /// No status is an error.
    ///
    /// - Throws: ``TransferError`` if there is no response, or a redirect is not allowed.
    public func probe(
        _ url: String,
        fields: [String] = []
    ) async throws(TransferError) -> ProbeAnswer {
        let source = try TransferURL(url)
        if source.isFile {
            // All transfers would wait with this thread for a slow file system.
            return try await withBlockingThread { () throws(TransferError) in
                try TransferEngine.size(of: source)
            }
        }
        var redirects = RedirectChain(start: source, rules: RedirectRules())
        while true {
            let receiver = HeadReceiver()
            let request = ExchangeRequest(
                url: redirects.url,
                fields: fields,
                mayAuthenticate: redirects.isAtOrigin
            )
            let exchange = Exchange(request, receiver: receiver, now: activityClock.now)
            let end = await perform(exchange)
            guard let head = receiver.head else {
                throw TransferStateMachine.Outcome.failed(end, url: redirects.url.display).error
                    ?? .unreachable(url: redirects.url.display, detail: end.explanation)
            }
            let decision = ResponseRules().judge(head)
            if decision.isFinal {
                return .server(
                    ResponseSummary(head, at: redirects),
                    validatorDefect: ValidatorDefect(head)
                )
            }
            try redirects.follow(decision, status: head.status)
        }
    }

    private static func size(of url: TransferURL) throws(TransferError) -> ProbeAnswer {
        do throws(FileError) {
            let status = try File.open(readingRegular: FilePath(url.path)).status()
            return .file(size: ByteCount(status.size))
        } catch {
            throw TransferError(reading: url, error)
        }
    }
}

extension TransferStateMachine.Outcome {
    /// Error of a failed attempt; `nil` if it did not fail.
    var error: TransferError? {
        switch self {
        case .transient(let error, _), .permanent(let error), .local(let error): error
        default: nil
        }
    }
}

/// Keeps the head of one response.
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
