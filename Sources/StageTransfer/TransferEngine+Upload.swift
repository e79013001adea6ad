import CCurl
import Logging
import StageModel
public import StageSystem

extension TransferEngine {
    /// Uploads a file and returns the response.
    ///
    /// Each attempt sends the whole file from its first byte, unless the server speaks the request's
    /// ``UploadRequest/uploadProtocol``: then it sends only the bytes that the server lacks. The file is closed when
    /// the upload ends. Its size is taken when the upload begins: bytes appended meanwhile are not sent. Temporary
    /// failures are retried, as for downloads, but only if ``UploadRequest/isIdempotent`` allows it: by default no
    /// server processes a body twice. Cancelling the task ends the upload at once.
    ///
    /// - Returns: The server's response, with any status.
    /// - Throws: ``TransferError``: ``TransferError/unreachable(url:_:detail:)`` if no response came,
    ///   ``TransferError/wrongSize(url:expected:actual:)`` for a file that became shorter.
    public func upload(
        _ request: UploadRequest,
        from file: consuming File
    ) async throws(TransferError) -> UploadReceipt {
        try RequestRules.check(request)
        let target = try TransferURL(request.url)
        try RedirectRules.check(target, against: request.allowedDomains)
        guard !target.isFile else {
            let detail = "an upload goes to an http or https URL"
            throw .unacceptable(url: target.display, .request(detail))
        }
        let wake: @Sendable () -> Void = { [weak self] in self?.wake() }
        let stateWriter = UploadStateWriter(request, wake: wake)
        let storesState = request.willComplete != nil || request.keepResource != nil
        let permission =
            request.isRepeatedSafely || !storesState
            ? nil : LastBytesPermission(wake: wake, stateWriter.allowLastBytes)
        let source = try UploadSource(
            file,
            permission: permission,
            stateWriter: stateWriter,
            report: request.report
        )
        let upload = try Upload(request, to: target, source: source, stateWriter: stateWriter)
        if let detail = upload.machine.failure {
            throw .unreachable(url: target.display, detail: detail)
        }
        let result: Result<UploadReceipt, TransferError>
        do throws(TransferError) {
            // An empty body is never read, so nothing else would ask for the permission.
            if source.size == 0 { try await permission?.wait() }
            result = .success(try await send(upload))
        } catch {
            result = .failure(error)
        }
        // A cancelled upload may end before the journal has its resource.
        await permission?.settle()
        await stateWriter.settle()
        return try result.get()
    }

    private func send(_ upload: Upload) async throws(TransferError) -> UploadReceipt {
        let (request, target) = (upload.request, upload.target)
        var machine = TransferStateMachine(
            mirrors: [(target.authority, target.display)],
            policy: configuration.retry,
            history: histories[request.user],
            failuresBefore: request.failuresBefore
        )
        let start = clock.now
        var event = TransferStateMachine.Event.began(isComplete: false)
        while true {
            refreshHistory()
            let moment = TransferStateMachine.Moment(
                now: clock.now - start,
                random: .random(in: 0..<1, using: &jitter)
            )
            switch machine.handle(event, history: &histories[request.user], at: moment) {
            case .attempt, .probe:
                let outcome = await attempt(upload)
                event = .ended(outcome, upload.progress)
            case .wait(let duration, let reason):
                request.report(.waiting(reason, duration))
                guard await sleep(duration) else { throw .cancelled }
                event = .waited
            case .verify:
                event = .verified(nil)
            case .succeed:
                return try upload.receipt(attempts: machine.attempts, duration: clock.now - start)
            case .fail(let error):
                throw error
            }
        }
    }

    private func attempt(_ upload: Upload) async -> TransferStateMachine.Outcome {
        let outcome: TransferStateMachine.Outcome
        do throws(TransferError) {
            outcome = try await follow(upload)
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

    /// Performs the steps of an attempt, one after the other.
    private func follow(
        _ upload: Upload
    ) async throws(TransferError) -> TransferStateMachine.Outcome {
        let request = upload.request
        var step = upload.machine.begin()
        upload.isBeginning = true
        while true {
            let (receiver, end) = try await perform(step, of: upload)
            upload.isBeginning = false
            let outcome = receiver.outcome(end) ?? .local(.cancelled)
            if step.hasBody { upload.machine.noteSent(to: upload.source.offset) }
            if case .local = outcome { return outcome }
            let known = upload.machine.resource
            let action = upload.judge(receiver, endedBy: end)
            if upload.machine.resource != known, let failure = await upload.keepResource() {
                return .local(failure)
            }
            switch action {
            case .perform(let next): step = next
            case .deliver:
                receiver.reportResponse()
                return .complete
            case .endAttempt:
                if outcome.isAnswered { receiver.reportResponse() }
                let mayRepeat = request.isRepeatedSafely || upload.machine.resource != nil
                let isWhole = (step == .request || upload.source.size == 0) && !mayRepeat
                return isWhole ? receiver.withoutRepetition(outcome, end: end) : outcome
            case .retry(let error, let pause):
                if case .refused = error { receiver.reportResponse() }
                return .transient(error, pause: pause)
            case .fail(let error): return .local(error)
            }
        }
    }

    /// Sends the request of a step, follows redirects, and returns the receiver of the last response.
    private func perform(
        _ step: ResumableUpload.Step,
        of upload: Upload
    ) async throws(TransferError) -> (UploadReceiver, ExchangeEnd) {
        let request = upload.request
        var rules = ResponseRules()
        rules.maximumRetryAfter = configuration.retry.maximumRetryAfter
        var redirects = upload.redirects(of: step)
        while true {
            rules.hasInsecureHostChange = redirects.hasInsecureHostChange
            upload.beginBody(of: step)
            let receiver = UploadReceiver(upload, step: step, redirects: redirects, rules: rules)
            let exchange = Exchange(
                ExchangeRequest(
                    url: redirects.url,
                    method: redirects.method,
                    fields: rules.fields
                        + upload.fields(of: step, isAtOrigin: redirects.isAtOrigin),
                    priority: request.priority,
                    user: request.user,
                    timeout: request.requestTimeout,
                    mayAuthenticate: redirects.isAtOrigin,
                    allowsLocalAddresses: upload.allowsLocalAddresses(step),
                    mayRepeat: upload.mayRepeat(step),
                    requiresNewestTLS: request.requiresNewestTLS
                ),
                receiver: receiver,
                source: step.hasBody ? upload.source : nil,
                now: activityClock.now
            )
            let end = await perform(exchange)
            guard receiver.outcome(end) == nil else { return (receiver, end) }
            do throws(TransferError) {
                try redirects.follow(receiver.decision, status: receiver.status)
            } catch {
                guard !step.isCreation else { throw error }
                // The error would reveal the target of the redirect.
                let url = upload.display(receiver.url, in: step)
                throw .unacceptable(url: url, .answer("its redirect is refused"))
            }
            let known = upload.machine.resource
            upload.machine.noteRedirect(isAtOrigin: redirects.isAtOrigin)
            guard upload.machine.resource != known else { continue }
            if let failure = await upload.keepResource() { throw failure }
        }
    }
}

extension TransferStateMachine.Outcome {
    /// `true` if the attempt ended with a response from the server.
    fileprivate var isAnswered: Bool {
        switch self {
        case .complete, .transient(.refused, _), .permanent(.refused): true
        default: false
        }
    }
}
