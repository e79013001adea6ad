import StageSystem

/// State machine of a client that receives a session's events: decides when to attach, and which events to
/// acknowledge.
///
/// Does no I/O and has no clock.
struct SessionAttachment {
    /// State of the connection.
    enum Phase {
        case attempting
        case attached
        case waiting
    }

    /// State of the connection.
    private(set) var phase = Phase.attempting
    /// Error that currently prevents events; `nil` while they arrive.
    private(set) var problem: ControlError?
    /// Set when the client wants no further events.
    private(set) var isOver = false
    /// Set if the next attempt must not wait for its delay.
    private(set) var skipsDelay = false
    /// Set if the current attempt or connection is to be replaced.
    private(set) var isDropped = false
    /// Received and acknowledged events.
    private(set) var window = AcknowledgementWindow()
    /// Number of failed attempts since the last connection.
    private(set) var failures = 0
    /// Token of a launch to acknowledge.
    var launch: String?
    private var attached: ContinuousClock.Instant?
    // A daemon that accepts clients and soon disconnects them is not retried without delay.
    private var backoff = Backoff(longest: .seconds(10), stableTime: .seconds(10))

    /// Notes the start of an attempt.
    mutating func begin() {
        phase = .attempting
        skipsDelay = false
        isDropped = false
    }

    /// Synchronises with the daemon's sequence numbers; returns that of the last received event.
    mutating func prepare(_ status: SessionStatus) -> Int64 {
        window.attach(
            lastEvent: status.lastEvent,
            acknowledged: status.acknowledgedEvent,
            session: status.number
        )
        return window.received
    }

    /// Notes that the client is attached.
    mutating func attach(at now: ContinuousClock.Instant) {
        phase = .attached
        problem = nil
        failures = 0
        attached = now
    }

    /// Notes the loss of the connection, or a failed attempt; returns the delay before the next attempt.
    mutating func lose(_ problem: ControlError, at now: ContinuousClock.Instant) -> Duration {
        if attached == nil { failures += 1 }
        let lasted = attached?.duration(to: now) ?? .zero
        attached = nil
        phase = .waiting
        self.problem = isOver ? nil : problem
        return backoff.next(afterLasting: lasted)
    }

    /// Notes that a request of this process has found a daemon, which ends the delay.
    mutating func daemonWasFound() {
        guard phase == .waiting else { return }
        switch problem {
        case .notRunning, .lost: skipsDelay = true
        default: break
        }
    }

    /// Ends the delay before the next attempt; returns `false` if the client is attached or wants no more events.
    mutating func endDelay() -> Bool {
        guard !isOver, phase != .attached else { return false }
        skipsDelay = true
        return true
    }

    /// Marks the current attempt or connection as to be replaced.
    mutating func drop() {
        guard phase != .waiting else { return }
        phase = .attempting
        isDropped = true
    }

    /// Set if events of an opened stream are wanted.
    var wantsEvents: Bool { !isOver && !isDropped }

    /// Notes that no further events are wanted.
    mutating func end() { isOver = true }

    /// Notes that no attempt can ever be made.
    mutating func fail(_ problem: ControlError) {
        isOver = true
        phase = .waiting
        self.problem = problem
    }

    /// Notes a received event; returns `false` if it was received before.
    mutating func receive(_ sequence: Int64) -> Bool { window.receive(sequence) }

    /// Takes back the receipt of an event.
    mutating func takeBack(_ sequence: Int64) { window.takeBack(sequence) }

    /// Marks an event as processed.
    mutating func finish(_ sequence: Int64) { window.finish(sequence) }

    /// Acknowledgement to send now, if there is one and the daemon can be reached.
    var dueAcknowledgement: Acknowledgement? {
        guard phase == .attached || isOver else { return nil }
        if let launch { return Acknowledgement(sequence: window.finished, launch: launch) }
        return window.due.map { Acknowledgement(sequence: $0) }
    }

    /// Notes that the daemon has confirmed an acknowledgement, or does not know its session.
    mutating func wasAcknowledged(_ acknowledgement: Acknowledgement) {
        window.wasAcknowledged(acknowledgement.sequence)
        if acknowledgement.launch != nil { launch = nil }
    }
}
