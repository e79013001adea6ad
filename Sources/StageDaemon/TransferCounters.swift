import FoundationEssentials
import StageControl
import StageModel

/// Counts of one user's transfers since the daemon has started.
struct TransferCounters: Equatable, Sendable {
    /// Content bytes that ended attempts of the daemon have received, without those that were received before.
    var received = ByteCount.zero
    /// File bytes that ended attempts of the daemon have sent.
    var sent = ByteCount.zero
    /// Number of tasks that have ended, by the kind of the event that reports it.
    var ends: [SessionEvent.Kind: Int] = [:]
    /// Number of tasks that have failed, by the kind of the failure.
    var failures: [TransferFailure.Kind: Int] = [:]

    /// Counts the end of a task; other events are ignored.
    mutating func count(_ event: SessionEvent) {
        guard Self.endings.contains(event.kind) else { return }
        ends[event.kind, default: 0] += 1
        if let failure = event.failure { failures[failure.kind, default: 0] += 1 }
    }

    /// Adds the counts of another user.
    mutating func add(_ other: Self) {
        received += other.received
        sent += other.sent
        ends.merge(other.ends, uniquingKeysWith: +)
        failures.merge(other.failures, uniquingKeysWith: +)
    }

    /// Kinds of the events that report the end of a task.
    static let endings: [SessionEvent.Kind] = [.completed, .failed, .cancelled]
}

/// Figures about the daemon's sessions and tasks, for a monitoring system.
struct TransferFigures: Equatable, Sendable {
    /// Kind and state of unfinished tasks.
    struct Group: Hashable, Sendable {
        /// `true` for stagings of packs, `false` for downloads and uploads.
        var isStaging: Bool
        var state: State
    }

    /// State of an unfinished task.
    enum State: String, CaseIterable, Sendable {
        case suspended, waiting, running
    }

    var sessions = 0
    var tasks: [Group: Int] = [:]
    /// Number of tasks whose content is being committed, or whose end is not recorded yet.
    var ending = 0
    /// Number of waiting tasks by reason; a task may have several.
    var reasons: [PendingReason.Kind: Int] = [:]
    var counters = TransferCounters()
}

extension TransferState {
    /// Counts ended tasks for the users who own the sessions.
    mutating func count(_ events: [(session: Int64, event: SessionEvent)]) {
        for (session, event) in events {
            guard let user = sessions[session]?.record.user else { continue }
            counters[user, default: TransferCounters()].count(event)
        }
    }

    /// Counts the bytes of an ended attempt.
    mutating func count(received: ByteCount, sent: ByteCount, of user: UInt32) {
        counters[user, default: TransferCounters()].received += received
        counters[user, default: TransferCounters()].sent += sent
    }

    /// Returns the figures about the sessions that a client sees in lists, and the counters of its user.
    ///
    /// Those of all users if the client asks for them. The cost grows with the number of unfinished tasks.
    func figures(for client: ClientCredentials, at now: Date) -> TransferFigures {
        var figures = TransferFigures()
        let seen = Set(sessions(for: client).map(\.record.id))
        figures.sessions = seen.count
        for (id, item) in scheduler.items where seen.contains(item.session) {
            let reasons = Set(scheduler.pendingReasons(of: id, at: now).map(\.kind))
            let state: TransferFigures.State =
                reasons.isEmpty
                ? .running : reasons.contains(.pausedByClient) ? .suspended : .waiting
            figures.tasks[.init(isStaging: !item.isConnected, state: state), default: 0] += 1
            for reason in reasons { figures.reasons[reason, default: 0] += 1 }
        }
        figures.ending = ending.values.count { seen.contains($0) }
        let unrecorded = unrecorded.count { id in ending[id].map { seen.contains($0) } ?? false }
        figures.reasons[.disk, default: 0] += unrecorded
        for (user, counts) in counters where client.wantsAll || user == client.user {
            figures.counters.add(counts)
        }
        return figures
    }
}
