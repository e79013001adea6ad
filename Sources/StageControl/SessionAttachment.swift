import StageSystem

/// Decisions of a process that takes the events of a session in: when to attach, and which events to acknowledge.
///
/// Does no I/O and has no clock.
struct SessionAttachment {
    /// The state of the connection.
    enum Phase {
        case attempting
        case attached
        case waiting
    }

    /// The state of the connection.
    private(set) var phase = Phase.attempting
    /// The error that keeps events away; `nil` while they come.
    private(set) var problem: ControlError?
    /// Whether no further event is wanted.
    private(set) var isOver = false
    /// Whether the delay before the next attempt is to be cut short.
    private(set) var mustTry = false
    /// Whether the attempt at hand, or the connection that came of it, is of no use.
    private(set) var isDropped = false
    /// The events that were received.
    private(set) var window = AcknowledgementWindow()
    /// The number of attempts that failed since events came last.
    private(set) var failures = 0
    /// The token of a launch that is to be acknowledged.
    var launch: String?
    private var attached: ContinuousClock.Instant?
    // A daemon that takes clients in and soon drops them is not to be tried without delay.
    private var backoff = Backoff(longest: .seconds(10), stableTime: .seconds(10))

    /// Takes in that an attempt begins.
    mutating func begin() {
        phase = .attempting
        mustTry = false
        isDropped = false
    }

    /// Takes the daemon's numbers in, and returns that of the last event that was received.
    mutating func prepare(_ status: SessionStatus) -> Int64 {
        window.attach(
            lastEvent: status.lastEvent,
            acknowledged: status.acknowledgedEvent,
            session: status.number
        )
        return window.received
    }

    /// Takes in that events come.
    mutating func attach(at now: ContinuousClock.Instant) {
        phase = .attached
        problem = nil
        failures = 0
        attached = now
    }

    /// Takes in that no events come any more, and returns the delay before the next attempt.
    mutating func lose(_ problem: ControlError, at now: ContinuousClock.Instant) -> Duration {
        if attached == nil { failures += 1 }
        let lasted = attached?.duration(to: now) ?? .zero
        attached = nil
        phase = .waiting
        self.problem = isOver ? nil : problem
        return backoff.next(afterLasting: lasted)
    }

    /// Takes in that a request of this process has found a daemon.
    mutating func daemonWasFound() {
        guard phase == .waiting else { return }
        switch problem {
        case .notRunning, .lost: mustTry = true
        default: break
        }
    }

    /// Takes in that the events are needed as soon as can be; returns `false` if there is nothing to wait for.
    mutating func hurry() -> Bool {
        guard !isOver, phase != .attached else { return false }
        mustTry = true
        return true
    }

    /// Takes in that the connection is of no use, also while it is being made.
    mutating func drop() {
        guard phase != .waiting else { return }
        phase = .attempting
        isDropped = true
    }

    /// Whether events may be taken in of a stream that was opened.
    var wantsEvents: Bool { !isOver && !isDropped }

    /// Takes in that no further event is wanted.
    mutating func end() { isOver = true }

    /// Takes in that no attempt can ever be made.
    mutating func fail(_ problem: ControlError) {
        isOver = true
        phase = .waiting
        self.problem = problem
    }

    /// Takes an event's number in; returns `false` if it came before.
    mutating func receive(_ sequence: Int64) -> Bool { window.receive(sequence) }

    /// Takes back the receipt of an event.
    mutating func release(_ sequence: Int64) { window.release(sequence) }

    /// Takes in that everything was done for an event.
    mutating func finish(_ sequence: Int64) { window.finish(sequence) }

    /// The acknowledgement that is due, if the daemon can be told now.
    var dueAcknowledgement: Acknowledgement? {
        guard phase == .attached || isOver else { return nil }
        if let launch { return Acknowledgement(sequence: window.finished, launch: launch) }
        return window.due.map { Acknowledgement(sequence: $0) }
    }

    /// Takes in that the daemon has an acknowledgement, or nothing to forget.
    mutating func wasAcknowledged(_ acknowledgement: Acknowledgement) {
        window.wasAcknowledged(acknowledgement.sequence)
        if acknowledgement.launch != nil { launch = nil }
    }
}
