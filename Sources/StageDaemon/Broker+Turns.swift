import FoundationEssentials
import StageControl
import StageSystem

extension Broker {
    /// The input of an attempt.
    struct Attempt: Sendable {
        var task: FullTask
        /// The session, without what is not for this task.
        var owner: SessionRecord
        /// The number of attempts in a row that brought no bytes.
        var failures: Int
        /// Whether the client of a staging carries it out: what the scheduler has counted it as.
        var isOfClient: Bool
    }

    /// Lets the scheduler decide, and has done what it decides.
    ///
    /// One user's tens of thousands of hosts make a turn long. Turns take a tenth of the time at most: the
    /// next one is put off, and requests are answered in between.
    func turn() {
        guard hasStarted, !isTurnPutOff else { return }
        let start = ContinuousClock.now
        guard start >= nextTurn else {
            isTurnPutOff = true
            Task {
                // Cancelled by nobody; a daemon that ends decides nothing more.
                try? await Task.sleep(until: nextTurn, clock: .continuous)
                isTurnPutOff = false
                self.turn()
            }
            return
        }
        defer {
            let spent = ContinuousClock.now - start
            if spent > .milliseconds(5) { nextTurn = .now + spent * 9 }
        }
        let now = Date.now
        let turn = scheduler.turn(at: now)
        for id in turn.stop { live[id]?.stop() }
        for id in turn.start {
            let session = scheduler.items[id]?.session ?? 0
            let transfer = LiveTransfer(id, total: nil, takesAnyAnswer: mustTakeAnswer(of: id)) {
                [feed] event in feed.report(event, of: session)
            }
            live[id] = transfer
            command.yield(.run(id, transfer))
            tell(.changed, id) { $0.state = .running }
        }
        setTimer()
    }
}
