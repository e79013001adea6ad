import CCurl
import Logging
import StageModel
public import StageSystem

extension TransferEngine {
    /// Sends a file, whole and from its first byte each time, and returns the answer.
    ///
    /// The file is closed when the upload ends. It is sent with the size that it has when the upload
    /// begins: bytes added meanwhile stay out. What fails in a way that may pass is tried again, as
    /// downloads are, but only where ``UploadRequest/isIdempotent`` allows it: by default no server acts on a
    /// body twice. Cancelling the task ends the upload at once.
    ///
    /// - Returns: The server's answer, whatever its status.
    /// - Throws: ``TransferError``: ``TransferError/unreachable(url:detail:)`` where no answer came,
    ///   ``TransferError/wrongSize(url:expected:actual:)`` for a file that became shorter.
    public func upload(
        _ request: UploadRequest,
        from file: consuming File
    ) async throws(TransferError) -> UploadReceipt {
        try RequestRules.check(request)
        let target = try TransferURL(request.url)
        try RedirectRules.check(target, request.allowedDomains)
        guard !target.isFile else {
            let detail = "an upload goes to an http or https URL"
            throw .unacceptable(url: target.display, .request(detail))
        }
        let leave = request.isRepeatedSafely ? nil : request.willComplete.map(LastBytes.init)
        let source = try UploadSource(file, leave: leave, request.report)
        var upload = Upload(request: request, target: target, source: source)
        do throws(TransferError) {
            // No byte of such a body is ever asked for.
            if source.size == 0 { try await leave?.wait() }
            let receipt = try await send(&upload)
            await leave?.settle()
            return receipt
        } catch {
            // A cancelled upload ends while the leave is still being asked for.
            await leave?.settle()
            throw error
        }
    }

    private func send(_ upload: inout Upload) async throws(TransferError) -> UploadReceipt {
        let (request, target) = (upload.request, upload.target)
        var machine = DownloadMachine(
            mirrors: [(target.authority, target.display)],
            policy: configuration.retry,
            memory: memory,
            failuresBefore: request.failuresBefore
        )
        let start = clock.now
        var event = DownloadMachine.Event.began(isComplete: false)
        while true {
            let moment = DownloadMachine.Moment(
                now: clock.now - start,
                random: .random(in: 0..<1, using: &jitter)
            )
            switch machine.handle(event, &memory, at: moment) {
            case .attempt:
                event = .ended(await attempt(&upload), DownloadMachine.Progress())
            case .wait(let duration, let reason):
                request.report(.waiting(reason, duration))
                guard await sleep(duration) else { throw .cancelled }
                event = .waited
            case .verify:
                event = .verified(true)
            case .succeed:
                return try upload.receipt(machine.attempts, clock.now - start)
            case .fail(let error):
                throw error
            }
        }
    }

    private func attempt(_ upload: inout Upload) async -> DownloadMachine.Outcome {
        let outcome: DownloadMachine.Outcome
        do throws(TransferError) {
            outcome = try await follow(&upload)
        } catch {
            outcome = .permanent(error)
        }
        switch outcome {
        case .transient(let error, _), .permanent(let error):
            upload.request.report(.mirrorFailed(url: upload.target.display, error))
        default: break
        }
        logger.debug(
            "An upload's attempt ended",
            metadata: [
                "transfer.url": "\(upload.target.display)", "transfer.outcome": "\(outcome)",
            ]
        )
        return outcome
    }

    private func follow(
        _ upload: inout Upload
    ) async throws(TransferError) -> DownloadMachine.Outcome {
        let request = upload.request
        var rules = ResponseRules()
        rules.longestPause = configuration.retry.longestPause
        var route = Route(
            start: upload.target,
            rules: RedirectRules(allowed: request.allowedDomains),
            method: request.method.rawValue
        )
        while true {
            rules.wasLedAway = route.wasLedAway
            upload.source.seek(to: 0)
            let receiver = UploadReceiver(
                request,
                route: route,
                origin: upload.target.display,
                rules: rules,
                source: upload.source
            )
            let exchange = Exchange(
                ExchangeRequest(
                    url: route.url,
                    method: route.method,
                    fields: rules.fields + (route.isAtOrigin ? request.fields : []),
                    priority: request.priority,
                    timeout: request.requestTimeout,
                    mayAuthenticate: route.isAtOrigin,
                    mayRepeat: request.isRepeatedSafely,
                    requiresNewestTLS: request.requiresNewestTLS
                ),
                receiver: receiver,
                source: upload.source,
                now: clock.now
            )
            let end = await perform(exchange)
            if let outcome = receiver.outcome(end) {
                upload.answer = receiver.response
                upload.body = receiver.body
                upload.isBodyComplete = receiver.isWhole(end)
                return request.isRepeatedSafely ? outcome : receiver.withoutRepetition(outcome, end)
            }
            try route.follow(receiver.decision, status: receiver.status)
        }
    }
}

/// An upload in progress: what it was asked, and what was answered last.
private struct Upload {
    let request: UploadRequest
    let target: TransferURL
    let source: UploadSource
    var answer: ResponseSummary?
    var body: [UInt8] = []
    var isBodyComplete = false

    /// What the finished upload came to.
    func receipt(
        _ attempts: Int,
        _ duration: Duration
    ) throws(TransferError) -> UploadReceipt {
        guard let answer else { throw .unreachable(url: target.display, detail: "no answer") }
        return UploadReceipt(
            response: answer,
            body: body,
            isBodyComplete: isBodyComplete,
            bytesSent: ByteCount(source.total),
            attempts: attempts,
            duration: duration
        )
    }
}
