import StageControl
import Synchronization

/// Downloads and answers that outlive the delegate that was told of them.
extension DownloadSession {
    /// Takes in the connection over which delegates are told from now on.
    func listen(over connection: SessionConnection?) {
        self.connection.withLock { $0 = connection }
    }

    /// Takes in a download that goes on.
    func add(_ task: TransferTask) {
        let number = client.lastStatus?.number
        known.withLock { $0.add(task, in: number) }
    }

    /// Asks for the tasks of a session that was made; returns those that the daemon has, and the downloads that it has
    /// lost.
    func compare(
        with status: SessionStatus
    ) throws(ControlError) -> (found: [TransferTask], lost: [TransferTask]) {
        let before = known.withLock { $0.underWay }
        let tasks = try self.tasks()
        return (tasks, known.withLock { $0.lost(of: before, among: tasks, in: status.number) })
    }

    /// Answers a challenge; of several answers the first one counts, whichever delegate gives it.
    ///
    /// An answer that the daemon could not be told of is given over the next connection.
    func answer(_ change: TransferChange, to task: Int64, sequence: Int64?) {
        let answer = KnownDownloads.Answer(change: change, sequence: sequence)
        guard known.withLock({ $0.answer(answer, to: task) }) else { return }
        // It is kept: the next connection gives it.
        do throws(ControlError) { try give(answer, to: task) } catch {
            connection.withLock { $0 }?.reconnect()
        }
    }

    /// Gives the daemon the answers that it could not be told of.
    func giveKeptAnswers() throws(ControlError) {
        while let (task, answer) = known.withLock({ $0.takeKeptAnswer() }) {
            try give(answer, to: task)
        }
    }

    /// Whether a challenge was answered, perhaps by an earlier delegate; its event is finished then, or is going to be.
    func hasAnswer(to task: Int64, sequence: Int64?) -> Bool {
        guard let state = known.withLock({ $0.state(ofAnswerTo: task, sequence: sequence) }) else {
            return false
        }
        if state == .given { finish(sequence) }
        return true
    }

    /// Gives the daemon an answer to a challenge, which is over then.
    private func give(_ answer: KnownDownloads.Answer, to task: Int64) throws(ControlError) {
        do throws(ControlError) {
            _ = try client.change(task, answer.change)
        } catch .refused(let refusal) where refusal.code != .unavailable {
            // The task has ended meanwhile, and there is nothing to answer.
        } catch {
            known.withLock { $0.set(.kept, ofAnswerTo: task, sequence: answer.sequence) }
            throw error
        }
        known.withLock { $0.set(.given, ofAnswerTo: task, sequence: answer.sequence) }
        finish(answer.sequence)
    }

    private func finish(_ sequence: Int64?) { connection.withLock { $0 }?.finish(sequence) }
}
