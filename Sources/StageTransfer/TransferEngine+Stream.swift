import StageModel
import StageSystem

extension TransferEngine {
    /// Sends a request, and returns when all of its response was delivered.
    ///
    /// Cancelling the task ends the exchange at once.
    ///
    /// - Throws: ``TransferError``, of which ``TransferError/storage(_:)`` and
    ///   ``TransferError/wrongSize(url:expected:actual:)`` concern the request's body; the events tell whether a
    ///   response has begun.
    public func send(_ request: StreamedRequest) async throws(TransferError) {
        try RequestRules.check(request)
        let url = try TransferURL(request.url)
        guard !url.isFile else { throw .unacceptable(url: url.display, .url) }
        guard request.body == nil || !["GET", "HEAD", "TRACE"].contains(request.method) else {
            let detail = "a \(request.method) request has no body"
            throw TransferError.unacceptable(url: url.display, .request(detail))
        }
        let source = try UploadSource.body(of: request)
        let receiver = StreamReceiver(request, url: url)
        let exchange = Exchange(
            ExchangeRequest(
                url: url,
                method: request.method,
                fields: request.fields
                    // Without 'Expect' there is no 417, after which libcurl would repeat the request by itself.
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
            now: activityClock.now
        )
        exchange.receiveWindow = request.receiveWindow
        let end = await perform(exchange)
        if let error = source?.failure { throw error }
        if let failure = receiver.failure(end) { throw failure }
    }
}

extension UploadSource {
    /// Opens the body of a streamed request.
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
            permission: nil,
            // This writer writes nothing, so the body never waits for it.
            stateWriter: UploadStateWriter(UploadRequest(url: request.url), wake: {})
        ) { event in
            if case .sent(let count) = event { receive(.sent(count)) }
        }
        source.begin(0..<source.size)
        return source
    }
}

/// Passes the response to the caller as it arrives.
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
        request.receiveWindow.add(body.count)
        request.receive(.bytes(unsafe body.withUnsafeBufferPointer { unsafe Array($0) }))
        return true
    }

    /// Returns the failure that ended an exchange, if any.
    func failure(_ end: ExchangeEnd) -> TransferError? {
        guard !end.isComplete || status == 0 else { return nil }
        return TransferStateMachine.Outcome.failed(end, url: url.display).error
            ?? .unreachable(url: url.display, detail: end.explanation)
    }
}
