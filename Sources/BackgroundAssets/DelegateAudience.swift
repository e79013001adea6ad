import Foundation
import FoundationNetworking
import StageControl
import StageModel
import Synchronization

/// Calls one delegate, and knows what it was told.
///
/// The connection's thread calls, but for the answers to challenges, which come on any.
final class DelegateAudience: SessionReceiver {
    private struct State {
        /// The tasks that the daemon had before the connection was made.
        var found: [TransferTask] = []
        /// Downloads that the daemon has lost.
        var lost: [TransferTask] = []
        /// The number of the session that the tasks are in.
        var number: Int64?
        var tasks: [Int64: TransferTask] = [:]
        var watches: [Int64: DownloadWatch] = [:]
        /// Reasons why downloads were given up that an application waited for.
        var stalls: [Int64: String] = [:]
    }

    private let session: DownloadSession
    private let connection: SessionConnection
    private let delegate: DelegateLink.Source
    private let state = Mutex(State())

    /// Creates the audience of a connection; `delegate` gives `nil` once the delegate has gone or is another one.
    init(
        _ session: DownloadSession,
        _ connection: SessionConnection,
        delegate: @escaping DelegateLink.Source
    ) {
        self.session = session
        self.connection = connection
        self.delegate = delegate
    }

    func prepare(_ status: SessionStatus) throws(ControlError) {
        _ = try audience()
        let (found, lost) = try session.compare(with: status)
        state.withLock { state in
            if state.number != status.number { state = State() }
            state.number = status.number
            state.found = found
            state.lost = lost
        }
        try session.giveKeptAnswers()
    }

    func take(_ event: SessionEvent) throws(ControlError) {
        let delegate = try audience()
        if event.kind == .attached {
            let (found, lost) = state.withLock { state in
                defer { (state.found, state.lost) = ([], []) }
                return (state.found, state.lost)
            }
            for task in lost { tellLoss(of: task, to: delegate) }
            for task in found { show(task, to: delegate) }
            return
        }
        // Where this fails, the event was not received, and comes again.
        let task = try event.task.flatMap { id throws(ControlError) in try find(id) }
        let isAnswered =
            event.kind == .challenged && task != nil
            && session.hasAnswer(to: event.task ?? 0, sequence: event.sequence)
        if let task, !isAnswered { tell(event, task, delegate) }
        guard event.sequence != nil else { return }
        if event.kind == .challenged, task != nil { return }
        if event.kind != .challenged, let id = event.task { forget(id) }
        connection.finish(event.sequence)
    }

    private func forget(_ task: Int64) {
        session.end(task)
        state.withLock { state in
            state.tasks[task] = nil
            state.watches[task] = nil
        }
    }

    // What keeps the daemon away is told to those that send it a request.
    func wasDetached(by problem: ControlError, failures: Int) -> Bool { delegate() != nil }

    /// The delegate; without it the connection ends, and the event at hand is the next one's.
    private func audience() throws(ControlError) -> any BADownloadManagerDelegate {
        guard let delegate = delegate() else { throw .cancelled }
        return delegate
    }

    /// Tells what is to be told of a task whose events of before are gone.
    private func show(_ task: TransferTask, to delegate: any BADownloadManagerDelegate) {
        state.withLock { $0.tasks[task.id] = task }
        guard task.isUnfinished else { return }
        session.add(task)
        var event = SessionEvent(.changed, time: .now)
        event.task = task.id
        event.state = task.state
        event.holds = task.holds
        tell(event, task, delegate)
    }

    /// Tells that the daemon does not know a download any more, unless it was cancelled here.
    private func tellLoss(of task: TransferTask, to delegate: any BADownloadManagerDelegate) {
        session.known.withLock { $0.removeLost(task) }
        if session.wasCancelledHere(task.id) { return }
        var task = task
        task.state = .failed
        let reason = "the daemon has lost its records of the download: schedule it again"
        delegate.download(
            BADownload.made(of: task, for: session.group),
            failedWithError: BAError(.downloadFailedToStart, reason)
        )
    }

    /// The task of an event; `nil` if the daemon has forgotten it.
    ///
    /// Of a download that was begun in this process meanwhile, the daemon is not asked: it would say how many bytes have
    /// arrived by now, and those of the events that are still to be taken in would never be told.
    private func find(_ id: Int64) throws(ControlError) -> TransferTask? {
        if let task = state.withLock({ $0.tasks[id] }) { return task }
        if let task = session.known.withLock({ $0.download(id) }) {
            state.withLock { $0.tasks[id] = task }
            return task
        }
        do throws(ControlError) {
            let task = try session.ask(.task(id))
            state.withLock { $0.tasks[id] = task }
            if task.isUnfinished { session.add(task) }
            return task
        } catch .refused(let refusal) where refusal.code == .notFound {
            return nil
        }
    }

    private func tell(
        _ event: SessionEvent,
        _ task: TransferTask,
        _ delegate: any BADownloadManagerDelegate
    ) {
        let steps = state.withLock { state in
            let received = event.kind == .progress ? 0 : task.bytesReceived.rawValue
            return state.watches[task.id, default: DownloadWatch(received: received)].take(event)
        }
        for step in steps { perform(step, event, task, delegate) }
    }

    private func perform(
        _ step: DownloadWatch.Step,
        _ event: SessionEvent,
        _ task: TransferTask,
        _ delegate: any BADownloadManagerDelegate
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
                completionHandler: answer(to: question, event, task)
            )
        case .stall: giveUp(task)
        case .fail(let reason):
            let error = BAError(.downloadFailedToStart, reason)
            delegate.download(download(.failed), failedWithError: error)
        case .cancel:
            let reason = state.withLock { $0.stalls.removeValue(forKey: task.id) }
            if session.wasCancelledHere(task.id) { return }
            let error: any Error =
                reason.map { BAError(.downloadFailedToStart, $0) } ?? URLError(.cancelled)
            delegate.download(download(.cancelled), failedWithError: error)
        case .finish(let path) where !session.client.accepts(path):
            let reason = "the daemon names '\(path)', not its own file"
            let error = BAError(.downloadFailedToStart, reason)
            delegate.download(download(.failed), failedWithError: error)
        case .finish(let path):
            delegate.download(download(.completed), finishedWithFileURL: URL(filePath: path))
        }
    }

    /// Cancels a download that cannot go on, if somebody waits for it.
    private func giveUp(_ task: TransferTask) {
        // Where the daemon does not answer, the download goes on like those that nobody waits for. It may
        // have been promoted since it was seen first, by another process too.
        guard let now = try? session.ask(.task(task.id)), now.isUnfinished,
            DownloadNote(now).isForeground
        else { return }
        let holds = now.holds.map(\.reason.rawValue).joined(separator: ", ")
        let reason = now.lastProblem ?? "the download cannot begin now: \(holds)"
        state.withLock { $0.stalls[task.id] = reason }
        var change = TransferChange()
        change.state = .cancelled
        _ = try? session.client.change(task.id, change)
    }

    /// Makes what a delegate answers a challenge with; the first answer counts.
    private func answer(
        to question: Challenge,
        _ event: SessionEvent,
        _ task: TransferTask
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
