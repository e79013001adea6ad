import Foundation
import FoundationNetworking
import StageControl
import StageModel
import Synchronization

/// What one delegate was told, and calls it.
///
/// One thread calls, but for the answers to challenges, which come on any.
final class DelegateAudience: Sendable {
    private struct State {
        var window = AcknowledgementWindow()
        var tasks: [Int64: TransferTask] = [:]
        var watches: [Int64: DownloadWatch] = [:]
        /// Why downloads were given up that somebody waited for.
        var stalls: [Int64: String] = [:]
    }

    /// Which delegate it is.
    let changes: Int
    private let session: DownloadSession
    private let state = Mutex(State())

    /// Creates what is known of a delegate that was told nothing.
    init(_ session: DownloadSession, changes: Int) {
        self.session = session
        self.changes = changes
    }

    /// Takes the numbers of the daemon in, and returns that of the last event that was received.
    func attach(_ status: SessionStatus) -> Int64 {
        state.withLock { state in
            state.window.attach(
                lastEvent: status.lastEvent,
                acknowledged: status.acknowledgedEvent
            )
            return state.window.received
        }
    }

    /// Tells what is to be told of a task whose events of before are gone.
    func show(_ task: TransferTask, _ delegate: any BADownloadManagerDelegate) {
        guard task.isUnfinished else { return }
        state.withLock { $0.tasks[task.id] = task }
        var event = SessionEvent(.changed, time: .now)
        event.task = task.id
        event.state = task.state
        event.holds = task.holds
        tell(event, task, delegate)
    }

    /// Takes an event in, and acknowledges it.
    func take(
        _ event: SessionEvent,
        _ delegate: any BADownloadManagerDelegate
    ) throws(ControlError) {
        // Where this fails, the event was not received, and comes again.
        let task = try event.task.flatMap { id throws(ControlError) in try find(id) }
        if let sequence = event.sequence {
            guard state.withLock({ $0.window.receive(sequence) }) else { return }
        }
        if let task { tell(event, task, delegate) }
        guard let sequence = event.sequence else { return }
        if event.kind != .challenged || task == nil { finish(sequence) }
        if event.kind != .challenged, let id = event.task {
            state.withLock { state in
                state.tasks[id] = nil
                state.watches[id] = nil
            }
        }
    }

    /// Acknowledges what was taken in, where that is not known to the daemon.
    func acknowledge() {
        guard let due = state.withLock({ $0.window.due }) else { return }
        do throws(ControlError) {
            let acknowledgement = Acknowledgement(sequence: due)
            _ = try session.ask(.acknowledge(acknowledgement, in: session.identifier))
            state.withLock { $0.window.wasAcknowledged(due) }
        } catch {
            // With the next one, or when the session is attached the next time.
        }
    }

    private func finish(_ sequence: Int64) {
        state.withLock { $0.window.finish(sequence) }
        acknowledge()
    }

    /// The task of an event; `nil` if the daemon has forgotten it.
    private func find(_ id: Int64) throws(ControlError) -> TransferTask? {
        if let task = state.withLock({ $0.tasks[id] }) { return task }
        do throws(ControlError) {
            let task = try session.ask(.task(id))
            state.withLock { $0.tasks[id] = task }
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
        case .finish(let path) where !session.accepts(path):
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
        _ = try? session.ask(.change(task.id, change))
    }

    /// Makes what a delegate answers a challenge with; the first answer counts.
    private func answer(
        to question: Challenge,
        _ event: SessionEvent,
        _ task: TransferTask
    ) -> @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void {
        ChallengeReply { [self] disposition, credential in
            var change = TransferChange()
            switch disposition {
            case .cancelAuthenticationChallenge: change.state = .cancelled
            case .useCredential:
                change.authorization = question.authorization(credential)
            default: break
            }
            if change == TransferChange() { change.rejectsChallenge = true }
            do throws(ControlError) {
                _ = try session.ask(.change(task.id, change))
            } catch .refused {
                // The task has ended meanwhile, and there is nothing to answer.
            } catch {
                // The daemon asks again: the event is not acknowledged.
                return
            }
            if let sequence = event.sequence { finish(sequence) }
        }
        .handler
    }
}
