import Foundation
import FoundationNetworking
import StageChallenge
import StageControl
import StageModel
import StageSystem
import StageTransfer
import Synchronization

/// Result of a task of a session in this process.
enum ForegroundEnd {
    /// The response was delivered, or is these bytes.
    case answer(Data)
    /// The response is in a file, which is removed after it was delivered.
    case file(PartialDownload)
    /// The task has failed; a download may leave a partial file.
    case failure(URLError)
}

extension URLSession {
    /// Starts, pauses, resumes or ends a task, as its record says.
    func applyState(of task: URLSessionTask) {
        guard let transfer = task.transfer else {
            endIfUnsendable(task)
            return
        }
        let (isCancelled, isSuspended, refusal, hasEnded) = task.record.withLock {
            ($0.isCancelled, $0.isSuspended, $0.refusal, $0.hasEnded)
        }
        if hasEnded { return }
        if isCancelled {
            if transfer.begin() {
                let isWanted = task.record.withLock { !$0.resumeDataReceivers.isEmpty }
                let resumeData = isWanted ? transfer.resumed?.data : nil
                let error = URLError(.cancelled).adding(resumeData: resumeData)
                endForeground(task, with: .failure(error))
            } else {
                transfer.cancel()
            }
            return
        }
        transfer.update { task.record.withLock(\.isSuspended) }
        guard !isSuspended, transfer.begin() else { return }
        // Before the transfer begins, resume data is not used up.
        if let refusal {
            let error = refusal.adding(resumeData: transfer.resumed?.data)
            return endForeground(task, with: .failure(error))
        }
        engine.run { [self] engine in
            guard let engine else {
                let error = URLError.lackOfThreads.adding(resumeData: transfer.resumed?.data)
                return endForeground(task, with: .failure(error))
            }
            // A cancelled task must end only its own work, not that of others.
            let work = Task { await run(task, transfer: transfer, over: engine) }
            transfer.holdWork { work.cancel() }
            await work.value
        }
    }

    /// Runs a task to its end, within the session's time limit.
    private func run(
        _ task: URLSessionTask,
        transfer: ForegroundTransfer,
        over engine: TransferEngine
    ) async {
        let limit = Duration.limit(rules.timeoutIntervalForResource)
        let end = await withTaskGroup(of: ForegroundEnd?.self) { group in
            group.addTask { [self] in await attempts(of: task, transfer: transfer, over: engine) }
            group.addTask {
                if (try? await Task.sleep(for: limit)) != nil { transfer.expire() }
                return nil
            }
            var end: ForegroundEnd?
            for await ended in group {
                // Either ends the other; a download that exceeds its time limit leaves its partial file.
                group.cancelAll()
                end = ended ?? end
            }
            return end ?? .failure(URLError(.cancelled))
        }
        guard case .failure(let error) = end, error.code == .cancelled, transfer.isOutOfTime else {
            return endForeground(task, with: end)
        }
        var info = error.userInfo
        info[NSURLErrorFailingURLErrorKey] = task.originalRequest?.url
        let reason =
            "the task did not end within \(limit.components.seconds.quantity(of: "second"))"
        endForeground(task, with: .failure(URLError(.timedOut, reason: reason, userInfo: info)))
    }

    /// Attempts the transfer, and repeats that while this machine has no network if the session waits for one.
    private func attempts(
        of task: URLSessionTask,
        transfer: ForegroundTransfer,
        over engine: TransferEngine
    ) async -> ForegroundEnd {
        var pause = Duration.seconds(1)
        var isWaiting = false
        while true {
            let isDownload = task is URLSessionDownloadTask
            let end: ForegroundEnd
            if isDownload, case .none = transfer.body,
                task.originalRequest?.isForRange(under: rules) != true
            {
                end = await ForegroundDownload(
                    for: task,
                    in: self,
                    transfer: transfer,
                    engine: engine
                )
                .run()
            } else {
                end = await ForegroundExchange.run(
                    task,
                    in: self,
                    transfer: transfer,
                    engine: engine
                )
            }
            guard case .failure(let error) = end, rules.waitsForConnectivity,
                error.code == .notConnectedToInternet,
                // A request that got a response, such as a redirect, is not sent again.
                task.record.withLock({ $0.process?.lastResponse == nil }),
                !isDownload || task.originalRequest?.httpMethod ?? "GET" == "GET"
            else { return end }
            if !isWaiting {
                delegateCalls.add { [self] in
                    (task.listener as? any URLSessionTaskDelegate)?
                        .urlSession(self, taskIsWaitingForConnectivity: task)
                }
            }
            isWaiting = true
            guard (try? await Task.sleep(for: pause)) != nil else {
                return .failure(URLError(.cancelled))
            }
            pause = min(pause * 2, .seconds(30))
        }
    }

    /// Ends a task, unless it has ended, and notifies the application.
    func endForeground(_ task: URLSessionTask, with end: ForegroundEnd) {
        guard let transfer = task.transfer else { return }
        let task = transfer.successor ?? task
        guard task.record.withLock({ $0.end() }) else { return }
        let ended = Date.now
        delegateCalls.add { [self] in
            reportEnd(of: task, transfer: transfer, with: end, at: ended)
            transfer.release()
            endIfDone()
        }
    }

    private func reportEnd(
        of task: URLSessionTask,
        transfer: ForegroundTransfer,
        with end: ForegroundEnd,
        at ended: Date
    ) {
        reportProgress(task)
        var error: URLError?
        var resumeData: Data?
        if case .failure(let failure) = end {
            error = failure
            resumeData = failure.downloadTaskResumeData
        }
        if let download = task as? URLSessionDownloadTask, case .file(let partial) = end,
            transfer.notifiesDelegate
        {
            (task.listener as? any URLSessionDownloadDelegate)?
                .urlSession(self, downloadTask: download, didFinishDownloadingTo: partial.file)
            // The partial file is gone before the application hears of the end.
            partial.remove()
        }
        (task.listener as? any URLSessionTaskDelegate)?
            .urlSession(
                self,
                task: task,
                didFinishCollecting: URLSessionTaskMetrics(
                    task.record.withLock { $0.metrics(ended: ended) },
                    request: task.currentRequest,
                    response: task.response
                )
            )
        complete(
            task,
            error: error,
            resumeData: resumeData,
            notifiesDelegate: transfer.notifiesDelegate
        )
        switch (transfer.receiver, end) {
        case (.data(let handler), .answer(let data)): handler(data, task.response, nil)
        case (.file(let handler), .file(let partial)):
            handler(partial.file, task.response, nil)
            partial.remove()
        case (let receiver, _): receiver.end(error, response: task.response)
        }
    }
}

extension URLSession {
    /// Creates the download task that a data task becomes, with its response.
    func makeSuccessor(
        of task: URLSessionDataTask,
        transfer: ForegroundTransfer
    ) -> URLSessionDownloadTask {
        let identity = TaskIdentity(at: .now)
        let before = task.record.withLock { $0 }
        var wire = before.request
        wire.kind = .download
        wire.token = identity.newToken
        var record = ClientTaskState(wire, process: before.process ?? ForegroundTaskState())
        record.identifier = identity.number
        record.original = before.original
        record.bytesSent = before.bytesSent
        record.response = before.response
        record.bytesExpected = before.bytesExpected
        _ = record.resume()
        let download = URLSessionDownloadTask(record, session: self, transfer: transfer)
        download.delegate = task.delegate
        transfer.become(download)
        transfer.update { download.record.withLock(\.isSuspended) }
        task.record.withLock { record in
            record.end()
            record.isComplete = true
        }
        state.withLock { state in
            state.tasks[ObjectIdentifier(task)] = nil
            state.byToken[task.token] = nil
            state.tasks[ObjectIdentifier(download)] = download
        }
        return download
    }

    /// Calls the delegate on its queue and returns its reply, or `other` if the task is cancelled before.
    func ask<Answer: Sendable>(
        orElse other: Answer,
        _ question: @escaping @Sendable (@escaping @Sendable (Answer) -> Void) -> Void
    ) async -> Answer {
        let reply = PendingReply<Answer>()
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                reply.wait(continuation)
                delegateCalls.add { question { reply.give($0) } }
            }
        } onCancel: {
            reply.give(other)
        }
    }

    /// Returns the value of the `Authorization` field that answers a challenge; `nil` to accept the response as it
    /// is.
    ///
    /// - Throws: `URLError.cancelled` if the delegate cancels the task.
    func authorization(
        for head: TransferResponse,
        of task: URLSessionTask,
        failures: Int
    ) async throws(URLError) -> String? {
        let fields = head.headers.filter { $0.first?.lowercased() == "www-authenticate" }
        let question = Challenge(fields.map { $0[1] }.joined(separator: ", "), url: head.url)
        let proposed = question.credential(from: rules.urlCredentialStorage)
        let usual =
            failures == 0 && proposed != nil
            ? question.authorization(for: .useCredential, credential: proposed) : nil
        guard let delegate = task.listener as? any URLSessionTaskDelegate else { return usual }
        let challenge = UnchangingChallenge(
            value: URLAuthenticationChallenge(question, proposed: proposed, failures: failures)
        )
        let none: (URLSession.AuthChallengeDisposition, UnchangingCredential) = (
            .cancelAuthenticationChallenge, UnchangingCredential(value: nil)
        )
        let (disposition, credential) = await ask(orElse: none) { [self] reply in
            delegate.urlSession(self, task: task, didReceive: challenge.value) {
                reply(($0, UnchangingCredential(value: $1)))
            }
        }
        switch disposition {
        case .cancelAuthenticationChallenge: throw URLError(.cancelled)
        case .performDefaultHandling: return usual
        default:
            let answered = AnsweredChallenge(
                question,
                disposition: disposition,
                credential: credential.value
            )
            task.record.withLock { $0.answered = answered }
            return answered?.authorization
        }
    }
}

extension URLRequest {
    /// Returns whether the request is for a local file, or sets a range or codings itself, so that the engine must
    /// not add ranges.
    fileprivate func isForRange(under rules: URLSessionConfiguration) -> Bool {
        let names = fields(under: rules).keys.map { $0.lowercased() }
        return url?.isFileURL == true || names.contains("range")
            || names.contains("accept-encoding")
    }
}
