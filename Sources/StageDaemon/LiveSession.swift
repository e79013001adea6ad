import StageControl

extension Broker.LiveSession {
    /// Takes note of a durable event.
    mutating func saw(_ event: SessionEvent) {
        record.last = max(record.last, event.sequence ?? 0)
    }

    /// Takes note of an acknowledgement that is on disk.
    mutating func acknowledged(_ sequence: Int64) {
        record.acknowledged = max(record.acknowledged, sequence)
    }

    /// The session as a client sees it: secrets are its user's alone.
    func status(for caller: Caller) -> SessionStatus {
        var configuration = record.configuration
        if caller.user != record.user {
            configuration.headers = configuration.headers.mapValues { _ in "(not shown)" }
            configuration.handler?.environment?.removeAll()
        }
        var status = SessionStatus(
            identifier: record.identifier,
            user: record.user,
            configuration: configuration
        )
        status.number = record.id
        status.unfinishedTasks = unfinished
        status.lastEvent = record.last
        status.acknowledgedEvent = record.acknowledged
        status.isAttached = isAttached
        status.launchPenalty = record.relaunch.penalty
        status.failedLaunches = record.relaunch.failures
        return status
    }
}

extension ControlRefusal {
    /// The refusal of a request to a session that is being removed.
    static let sessionEnds = ControlRefusal(.conflict, "the session is being removed")
}
