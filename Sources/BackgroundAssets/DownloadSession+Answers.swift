import StageControl
import Synchronization

/// Downloads and answers that outlive the delegate that received them.
extension DownloadSession {
    /// Sets the connection of the current delegate.
    func listen(over connection: SessionConnection?) {
        self.connection.withLock { $0 = connection }
    }

    /// Adds a running download.
    func add(_ task: TransferTask) {
        let number = client.lastStatus?.number
        known.withLock { $0.add(task, in: number) }
    }

    /// Returns the daemon's tasks of a new session, and the downloads that the daemon has lost.
    func compare(
        with status: SessionStatus
    ) throws(ControlError) -> (found: [TransferTask], lost: [TransferTask]) {
        let before = known.withLock { $0.underWay }
        let tasks = try self.tasks()
        return (tasks, known.withLock { $0.lost(of: before, among: tasks, in: status.number) })
    }

    /// Answers a challenge; only the first answer counts, from any delegate.
    ///
    /// An answer that could not be sent is sent over the next connection.
    func answer(_ change: TransferChange, to task: Int64, sequence: Int64?) {
        let answer = KnownDownloads.Answer(change: change, sequence: sequence)
        guard known.withLock({ $0.answer(answer, to: task) }) else { return }
        // The answer is kept and sent over the next connection.
        do throws(ControlError) { try give(answer, to: task) } catch {
            connection.withLock { $0 }?.reconnect()
        }
    }

    /// Sends the answers that could not be sent before.
    func sendKeptAnswers() throws(ControlError) {
        while let (task, answer) = known.withLock({ $0.takeKeptAnswer() }) {
            try give(answer, to: task)
        }
    }

    /// Returns whether a challenge was answered, perhaps by an earlier delegate; its event is then
    /// acknowledged, now or later.
    func hasAnswer(to task: Int64, sequence: Int64?) -> Bool {
        guard let state = known.withLock({ $0.state(ofAnswerTo: task, sequence: sequence) }) else {
            return false
        }
        if state == .given { finish(sequence) }
        return true
    }

    /// Sends an answer to a challenge to the daemon, and acknowledges the event.
    private func give(_ answer: KnownDownloads.Answer, to task: Int64) throws(ControlError) {
        do throws(ControlError) {
            _ = try client.change(task, by: answer.change)
        } catch .refused(let refusal) where refusal.code != .unavailable {
            // The task has ended meanwhile, so no answer is needed.
        } catch {
            known.withLock { $0.set(.kept, ofAnswerTo: task, sequence: answer.sequence) }
            throw error
        }
        known.withLock { $0.set(.given, ofAnswerTo: task, sequence: answer.sequence) }
        finish(answer.sequence)
    }

    private func finish(_ sequence: Int64?) { connection.withLock { $0 }?.finish(sequence) }
}
