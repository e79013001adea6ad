import Foundation
import FoundationNetworking
import StageControl
import StageModel
import StageSystem
import Synchronization

extension URLSession {
    /// Handles an event of the daemon; called by one thread, in order.
    ///
    /// - Throws: ``ControlError`` if the daemon could not be asked for the event's task, so that the event must be
    ///   delivered again.
    func take(_ event: SessionEvent) throws(ControlError) {
        switch event.kind {
        case .attached:
            state.withLock { $0.attachments += 1 }
            reportBacklog()
            return
        case .heartbeat: return
        case .finishedEvents:
            reportBacklog(upTo: .max)
            delegateCalls.add { [self] in relay?.add(.finishedEvents) }
            return
        case .invalidated:
            takeRemoval()
            return
        default: break
        }
        let found = try event.task.flatMap { id throws(ControlError) in try task(numbered: id) }
        defer { if let sequence = event.sequence { reportBacklog(upTo: sequence) } }
        guard let task = found, task.record.withLock({ $0.take(event) })
        else {
            link.finish(event.sequence)
            return
        }
        keepCookies(of: event.response, for: task)
        task.showProgress()
        deliver(event, of: task)
    }

    /// Notifies the delegate, once, when all events are delivered that are older than the session object.
    private func reportBacklog(upTo sequence: Int64 = 0) {
        guard link.deliverBacklog(upTo: sequence) else { return }
        delegateCalls.add { [self] in
            delegate?.urlSessionDidFinishEvents(forBackgroundURLSession: self)
        }
    }

    private func task(numbered number: Int64) throws(ControlError) -> URLSessionTask? {
        let (known, hasEnded) = state.withLock {
            ($0.byNumber[number], $0.ended.contains(number))
        }
        if hasEnded || known != nil { return known }
        // Another member of the group has created it, or the response to the request that created it has not arrived.
        do throws(ControlError) {
            return adopt(try link.ask(.task(number, headers: true)))
        } catch {
            // If the daemon does not know the task, a retry fails again, and later events must not wait for it.
            guard error.isTemporary else { return nil }
            throw error
        }
    }

    /// Handles an event of a transfer in this process, and notifies the delegate.
    func take(_ event: SessionEvent, of task: URLSessionTask) {
        guard task.record.withLock({ !$0.hasEnded && $0.take(event) }) else { return }
        task.showProgress()
        deliver(event, of: task)
    }

    /// Notifies the delegate of an event.
    private func deliver(_ event: SessionEvent, of task: URLSessionTask) {
        switch event.kind {
        case .progress:
            let isFirst = task.record.withLock { record in
                defer { record.willReportProgress = true }
                return !record.willReportProgress
            }
            if isFirst { delegateCalls.add { [self] in reportProgress(task) } }
        case .resumed:
            task.record.withLock { $0.pendingResumptions += 1 }
            delegateCalls.add { [self] in reportResumption(event, of: task) }
        case .challenged:
            delegateCalls.add { [self] in reportChallenge(event, of: task) }
        case .completed, .failed, .cancelled:
            delegateCalls.add { [self] in
                let position = link.takePosition()
                reportEnd(event, of: task, since: position)
                // From here on the daemon may forget the event and remove the file.
                if relay == nil { link.finish(event.sequence, afterSendingSince: position) }
                endIfDone()
            }
        default:
            delegateCalls.add { [self] in
                if let reasons = event.pendingReasons, task.record.withLock({ $0.report(reasons) })
                {
                    relay?.add(.waiting(task, reasons))
                }
                link.finish(event.sequence)
            }
        }
    }

    /// Notifies the delegate of the bytes since the last call; a slow delegate gets several events at once.
    func reportProgress(_ task: URLSessionTask) {
        let (received, sent, expected, newReceived, newSent) = task.record.withLock { record in
            // The bytes may be those of a resumption that is reported to the delegate next.
            let newReceived =
                record.pendingResumptions == 0 ? record.bytesReceived - record.reportedReceived : 0
            defer {
                record.willReportProgress = false
                if record.pendingResumptions == 0 { record.reportedReceived = record.bytesReceived }
                record.reportedSent = record.bytesSent
            }
            return (
                record.bytesReceived, record.bytesSent,
                record.bytesExpected ?? NSURLSessionTransferSizeUnknown,
                newReceived, record.bytesSent - record.reportedSent
            )
        }
        if let task = task as? URLSessionDownloadTask, newReceived > 0 {
            relay?.add(.progress(task, transferred: received, expected: expected))
            (task.listener as? any URLSessionDownloadDelegate)?
                .urlSession(
                    self,
                    downloadTask: task,
                    didWriteData: newReceived,
                    totalBytesWritten: received,
                    totalBytesExpectedToWrite: expected
                )
        }
        if task is URLSessionDataTask, newSent > 0 {
            relay?.add(.progress(task, transferred: sent, expected: expected))
            (task.listener as? any URLSessionTaskDelegate)?
                .urlSession(
                    self,
                    task: task,
                    didSendBodyData: newSent,
                    totalBytesSent: sent,
                    totalBytesExpectedToSend: expected
                )
        }
    }

    private func reportResumption(_ event: SessionEvent, of task: URLSessionTask) {
        let offset = event.offset?.rawValue ?? 0
        let expected = task.record.withLock { record in
            record.pendingResumptions -= 1
            record.reportedReceived = offset
            return record.bytesExpected ?? NSURLSessionTransferSizeUnknown
        }
        guard let download = task as? URLSessionDownloadTask else { return }
        relay?.add(.resumed(download, offset: offset, expected: expected))
        (download.listener as? any URLSessionDownloadDelegate)?
            .urlSession(
                self,
                downloadTask: download,
                didResumeAtOffset: offset,
                expectedTotalBytes: expected
            )
        // Reports the bytes after the offset, which no earlier call has reported.
        reportProgress(task)
    }

    private func reportChallenge(_ event: SessionEvent, of task: URLSessionTask) {
        let failures = task.record.withLock { record in
            defer { record.challenges += 1 }
            return record.challenges
        }
        let url = event.response?.url ?? task.record.withLock { $0.request.url }
        let question = Challenge(event.challenge ?? "", url: url)
        let hasAnswered = OneShotFlag()
        let proposed = question.credential(from: rules.urlCredentialStorage)
        // A credential that failed once fails again.
        let fallback = failures == 0 ? UnchangingCredential(value: proposed) : nil
        let answer: ChallengeAnswer = { [self] disposition, credential in
            guard hasAnswered.claim() else { return }
            let isLeft = disposition == .performDefaultHandling && fallback?.value != nil
            let answered =
                isLeft
                ? nil
                : AnsweredChallenge(question, disposition: disposition, credential: credential)
            let value =
                isLeft
                ? question.authorization(for: .useCredential, credential: fallback?.value)
                : answered?.authorization
            task.record.withLock { $0.answered = answered }
            let position = link.takePosition()
            task.answer(with: value, disposition: disposition)
            link.finish(event.sequence, afterSendingSince: position)
        }
        let challenge = URLAuthenticationChallenge(
            question,
            proposed: proposed,
            failures: failures
        )
        if let relay {
            relay.add(.challenged(task, challenge, answer: answer))
        } else if let delegate = delegate as? any URLSessionTaskDelegate {
            delegate.urlSession(
                self,
                task: task,
                didReceive: challenge,
                completionHandler: answer
            )
        } else {
            answer(.performDefaultHandling, nil)
        }
    }

    /// Notifies the delegate of a task's end, by an event.
    private func reportEnd(_ event: SessionEvent, of task: URLSessionTask, since position: Int) {
        reportProgress(task)
        if event.kind == .completed {
            task.storeCredential(
                afterStatus: task.record.withLock { ($0.response as? HTTPURLResponse)?.statusCode }
            )
        }
        let (request, original) = task.record.withLock { ($0.request, $0.original) }
        let token = event.resumeToken ?? event.failure?.resumeToken
        let handlesCookies = original?.httpShouldHandleCookies ?? true
        let resumeData = token.flatMap {
            ResumeData(request, token: $0, handlesCookies: handlesCookies).data
        }
        var error: URLError?
        switch event.kind {
        case .cancelled:
            error = URLError(
                .cancelled,
                userInfo: resumeData.map { [NSURLSessionDownloadTaskResumeData: $0] } ?? [:]
            )
        case .failed:
            let failure =
                event.failure ?? TransferFailure(.lost, reason: "the daemon gives no reason")
            error = URLError(failure, url: request.url, resumeData: resumeData)
        default: break
        }
        if let path = event.location, !link.accepts(path) {
            error = URLError(
                .cannotOpenFile,
                reason: "the daemon named '\(path)', which is not its own file"
            )
        }
        if error == nil, let download = task as? URLSessionDownloadTask,
            let path = event.location
        {
            let location = URL(fileURLWithPath: path)
            relay?.add(.finishedDownloading(download, location))
            (delegate as? any URLSessionDownloadDelegate)?
                .urlSession(self, downloadTask: download, didFinishDownloadingTo: location)
        }
        if let body = event.body, let upload = task as? URLSessionDataTask {
            relay?.add(.receivedBody(upload, body))
            (delegate as? any URLSessionDataDelegate)?
                .urlSession(self, dataTask: upload, didReceive: body)
        }
        let metrics = event.metrics.map {
            URLSessionTaskMetrics($0, request: task.currentRequest, response: task.response)
        }
        if let metrics {
            (delegate as? any URLSessionTaskDelegate)?
                .urlSession(self, task: task, didFinishCollecting: metrics)
        }
        complete(task, error: error, resumeData: resumeData)
        relay?.add(.completed(task, metrics, error)) { [self] in
            link.finish(event.sequence, afterSendingSince: position)
        }
    }

    /// Ends a task that the daemon sends no event for.
    func end(_ task: URLSessionTask, with error: URLError) {
        if let socket = task as? URLSessionWebSocketTask { return socket.end(error) }
        if task.transfer != nil { return endForeground(task, with: .failure(error)) }
        let (isNew, resumeData) = task.record.withLock { record in
            (record.end(), record.unusedResumeData(after: error))
        }
        guard isNew else { return }
        let failure = error.adding(resumeData: resumeData)
        delegateCalls.add { [self] in
            complete(task, error: failure, resumeData: resumeData)
            relay?.add(.completed(task, nil, failure))
            endIfDone()
        }
    }

    /// Completes a task, and notifies its delegate for the last time.
    func complete(
        _ task: URLSessionTask,
        error: (any Error)?,
        resumeData: Data?,
        notifiesDelegate: Bool = true
    ) {
        let (receivers, refused) = task.record.withLock { record in
            record.error = error
            record.isComplete = true
            defer { (record.resumeDataReceivers, record.receiver) = ([], .delegate) }
            return (record.resumeDataReceivers, record.receiver)
        }
        state.withLock { state in
            state.tasks[ObjectIdentifier(task)] = nil
            state.lateTasks.remove(ObjectIdentifier(task))
            state.byToken[task.token] = nil
            if let number = task.record.withLock({ $0.number }) {
                state.byNumber[number] = nil
                state.ended.insert(number)
            }
        }
        link.remove(task)
        for receiver in receivers { receiver(resumeData) }
        if case .delegate = refused, notifiesDelegate {
            (task.listener as? any URLSessionTaskDelegate)?
                .urlSession(self, task: task, didCompleteWithError: error)
        }
        refused.end(error, response: nil)
        task.releaseDelegate()
    }

    /// Handles the removal of the session at the daemon.
    private func takeRemoval() {
        state.withLock { $0.isInvalidating = true }
        let reason = "the session '\(link.identifier)' was removed"
        for task in unfinished {
            end(task, with: URLError(.backgroundSessionWasDisconnected, reason: reason))
        }
        delegateCalls.add { [self] in endIfDone() }
    }
}

/// Function that answers a challenge.
private typealias ChallengeAnswer =
    @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void

extension URLSessionTask {
    /// Updates ``URLSessionTask/progress``; callable from any thread.
    func showProgress() {
        let (done, expected) = record.withLock {
            ($0.request.kind == .upload ? $0.bytesSent : $0.bytesReceived, $0.bytesExpected)
        }
        withProgressLock {
            if let expected, progress.totalUnitCount != expected {
                progress.totalUnitCount = expected
            }
            progress.completedUnitCount = done
        }
    }

    /// Answers a challenge.
    fileprivate func answer(
        with authorization: String?,
        disposition: URLSession.AuthChallengeDisposition
    ) {
        guard disposition != .cancelAuthenticationChallenge else {
            cancel()
            return
        }
        record.withLock { record in
            var change = TransferChange()
            change.authorization = authorization
            change.rejectsChallenge = authorization == nil ? true : nil
            record.change(change)
        }
        session.sendChanges(of: self)
    }
}
