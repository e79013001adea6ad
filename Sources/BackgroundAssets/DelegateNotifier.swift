import Foundation
import FoundationNetworking
import StageControl
import StageModel
import Synchronization

/// Delivers the events of one connection to one delegate.
///
/// Called on the connection's thread, except for answers to challenges, which may come from any thread.
final class DelegateNotifier: SessionReceiver {
    private struct State {
        /// The tasks that existed before the connection.
        var found: [TransferTask] = []
        /// The downloads that the daemon has lost.
        var lost: [TransferTask] = []
        /// The number of the tasks' session.
        var number: Int64?
        var tasks: [Int64: TransferTask] = [:]
        var trackers: [Int64: DownloadEventTracker] = [:]
    }

    private let session: DownloadSession
    private let connection: SessionConnection
    private let delegate: DelegateConnector.Source
    private let state = Mutex(State())

    /// Creates the notifier of a connection; `delegate` returns `nil` after the delegate was released or
    /// replaced.
    init(
        _ session: DownloadSession,
        connection: SessionConnection,
        delegate: @escaping DelegateConnector.Source
    ) {
        self.session = session
        self.connection = connection
        self.delegate = delegate
    }

    func prepare(_ status: SessionStatus) throws(ControlError) {
        _ = try currentDelegate()
        let (found, lost) = try session.compare(with: status)
        state.withLock { state in
            if state.number != status.number { state = State() }
            state.number = status.number
            state.found = found
            state.lost = lost
        }
        try session.sendKeptAnswers()
    }

    func take(_ event: SessionEvent) throws(ControlError) {
        let delegate = try currentDelegate()
        if event.kind == .attached {
            let (found, lost) = state.withLock { state in
                defer { (state.found, state.lost) = ([], []) }
                return (state.found, state.lost)
            }
            for task in lost { reportLoss(of: task, to: delegate) }
            for task in found { show(task, to: delegate) }
            return
        }
        // If this fails, the event counts as not received, and is delivered again.
        let task = try event.task.flatMap { id throws(ControlError) in try find(id) }
        let isAnswered =
            event.kind == .challenged && task != nil
            && session.hasAnswer(to: event.task ?? 0, sequence: event.sequence)
        if let task, !isAnswered { notify(delegate, of: event, task: task) }
        guard event.sequence != nil else { return }
        if event.kind == .challenged, task != nil { return }
        if event.kind != .challenged, let id = event.task { forget(id) }
        connection.finish(event.sequence)
    }

    private func forget(_ task: Int64) {
        session.end(task)
        state.withLock { state in
            state.tasks[task] = nil
            state.trackers[task] = nil
        }
    }

    // Problems of the connection are reported by requests to the daemon.
    func wasDetached(by problem: ControlError, failures: Int) -> Bool { delegate() != nil }

    /// Returns the delegate; throws without one, which ends the connection, and the next delegate gets the
    /// event.
    private func currentDelegate() throws(ControlError) -> any BADownloadManagerDelegate {
        guard let delegate = delegate() else { throw .cancelled }
        return delegate
    }

    /// Reports the current state of a task whose earlier events are gone.
    private func show(_ task: TransferTask, to delegate: any BADownloadManagerDelegate) {
        state.withLock { $0.tasks[task.id] = task }
        guard task.isUnfinished else { return }
        session.add(task)
        var event = SessionEvent(.changed, time: .now)
        event.task = task.id
        event.state = task.state
        event.pendingReasons = task.pendingReasons
        notify(delegate, of: event, task: task)
    }

    /// Reports that the daemon has lost a download, unless it was cancelled here.
    private func reportLoss(of task: TransferTask, to delegate: any BADownloadManagerDelegate) {
        session.known.withLock { $0.removeLost(task) }
        if session.wasCancelledHere(task.id) { return }
        var task = task
        task.state = .failed
        let reason = "the daemon has lost its records of the download: schedule it again"
        delegate.download(
            BADownload.made(of: task, for: session.group),
            failedWithError: BAError(TransferFailure(.lost, reason: reason))
        )
    }

    /// Returns the task of an event; `nil` if the daemon has removed it.
    ///
    /// Does not ask the daemon about a download that this process has started meanwhile: the answer would
    /// include bytes of events that are still to be processed, which would then never be reported.
    private func find(_ id: Int64) throws(ControlError) -> TransferTask? {
        if let task = state.withLock({ $0.tasks[id] }) { return task }
        if let task = session.known.withLock({ $0.download(id) }) {
            state.withLock { $0.tasks[id] = task }
            return task
        }
        do throws(ControlError) {
            let task = try session.ask(.task(id, headers: true))
            state.withLock { $0.tasks[id] = task }
            if task.isUnfinished { session.add(task) }
            return task
        } catch .refused(let refusal) where refusal.code == .notFound {
            return nil
        }
    }

    private func notify(
        _ delegate: any BADownloadManagerDelegate,
        of event: SessionEvent,
        task: TransferTask
    ) {
        let steps = state.withLock { state in
            let received = event.kind == .progress ? 0 : task.bytesReceived.rawValue
            return state.trackers[task.id, default: DownloadEventTracker(received: received)].take(
                event
            )
        }
        for step in steps { perform(step, event: event, task: task, delegate: delegate) }
    }

    private func perform(
        _ step: DownloadEventTracker.Step,
        event: SessionEvent,
        task: TransferTask,
        delegate: any BADownloadManagerDelegate
    ) {
        func download(_ newState: TransferTask.State) -> BADownload {
            var task = task
            task.state = newState
            return BADownload.made(of: task, for: session.group)
        }
        switch step {
        case .begin: delegate.downloadDidBegin(download(.running))
        case .pause: delegate.downloadDidPause(download(.waiting))
        case .write(let new, let total):
            delegate.download(
                download(.running),
                didWriteBytes: new,
                totalBytesWritten: total,
                totalBytesExpectedToWrite: task.request.size?.rawValue ?? total
            )
        case .ask(let challenge, let failures):
            let url = event.response?.url ?? task.request.url
            let question = Challenge(challenge, url: url)
            delegate.download(
                download(.waiting),
                didReceive: URLAuthenticationChallenge(question, failures: failures),
                completionHandler: answer(to: question, event: event, task: task)
            )
        case .fail(let failure):
            delegate.download(download(.failed), failedWithError: BAError(failure))
        case .cancel:
            if session.wasCancelledHere(task.id) { return }
            delegate.download(download(.cancelled), failedWithError: URLError(.cancelled))
        case .finish(let path) where !session.client.accepts(path):
            let reason = "the daemon names '\(path)', not its own file"
            let error = BAError(TransferFailure(.lost, reason: reason))
            delegate.download(download(.failed), failedWithError: error)
        case .finish(let path):
            delegate.download(download(.completed), finishedWithFileURL: URL(filePath: path))
        }
    }

    /// Returns the completion handler for a challenge; the first answer counts.
    private func answer(
        to question: Challenge,
        event: SessionEvent,
        task: TransferTask
    ) -> @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void {
        ChallengeReply { [session] disposition, credential in
            var change = TransferChange()
            switch disposition {
            case .cancelAuthenticationChallenge: change.state = .cancelled
            case .useCredential:
                change.authorization = question.authorization(credential)
            default: break
            }
            if change == TransferChange() { change.rejectsChallenge = true }
            session.answer(change, to: task.id, sequence: event.sequence)
        }
        .handler
    }
}
