import StageSystem

/// A receiver of the events of a session, called on one thread, in order.
public protocol SessionReceiver: Sendable {
    /// Is called before the process attaches, each time.
    ///
    /// - Throws: ``ControlError`` if it is not to attach now.
    func prepare(_ status: SessionStatus) throws(ControlError)

    /// Takes an event in; durable ones come once each, unless this throws.
    ///
    /// - Throws: ``ControlError`` for the connection to be made anew and a durable event to be delivered again.
    func take(_ event: SessionEvent) throws(ControlError)

    /// Is told why events stopped or an attempt to attach failed, and how many attempts in a row did; returns
    /// whether to try again.
    func wasDetached(by problem: ControlError, failures: Int) -> Bool
}

/// The stream of a session's events, attached again whenever it is lost, with their acknowledgement.
///
/// Attaches after 100 ms, then twice as late each time, ten seconds at most; at once when a request of the same
/// ``SessionClient`` finds a daemon. A daemon that is silent for three heartbeats counts as lost. Events are
/// acknowledged in order once ``finish(_:)`` was called for them, on a thread of its own; what could not be
/// acknowledged is tried again over the next connection.
public final class SessionConnection: Sendable {
    private struct State {
        var attachment = SessionAttachment()
        var events: ControlEvents?
        var isReceiving = false
        /// Whether the receiver has an event in its hands.
        var isTaking = false
        /// Whether the receiver was called for the last time.
        var hasReceived = false
        var acknowledgesNothing = false
        var whenOver: [@Sendable () -> Void] = []
        var waiters: [@Sendable (ControlError?) -> Void] = []
        var whenLaunchIsOver: (@Sendable (Bool) -> Void)?
    }

    private enum Step {
        case acknowledge(Acknowledgement)
        case end
    }

    /// The requests about the session.
    public let client: SessionClient
    /// The token of the launch that this process was started by, if it was.
    public let launch: String?
    private let endsClient: Bool
    private let monitor = ConditionVariable(State())

    /// Creates a connection that does nothing before ``start(_:)``.
    ///
    /// - Parameters:
    ///   - client: The requests about the session.
    ///   - launch: The token of the launch that this process was started by, if it was.
    ///   - endsClient: Whether the end of the connection closes the client: requests that are under way
    ///     then hold the end up no longer, but for those of the receiver and the last acknowledgement.
    public init(_ client: SessionClient, launch: String? = nil, endsClient: Bool = false) {
        self.client = client
        self.launch = launch
        self.endsClient = endsClient
    }

    /// The error that keeps events away at present; `nil` while they come.
    public var problem: ControlError? { monitor.change { $0.attachment.problem } }

    /// Whether no further event is wanted.
    public var isOver: Bool { monitor.change { $0.attachment.isOver } }

    /// Begins to attach.
    ///
    /// To be called once; `receiver` is held until the connection has ended.
    ///
    /// - Throws: ``ControlError/system(_:)`` if the process may have no more threads. The connection is over
    ///   then, and the receiver was not called.
    public func start(_ receiver: some SessionReceiver) throws(ControlError) {
        monitor.change { $0.isReceiving = true }
        client.whenFound { [weak self] in
            self?.monitor.change { $0.attachment.daemonWasFound() }
        }
        do throws(FileError) {
            try SystemThread(name: "stage-acks") { [self] in acknowledge() }.detach()
        } catch {
            monitor.change { $0.acknowledgesNothing = true }
            throw fail(.system(error))
        }
        do throws(FileError) {
            try SystemThread(name: "stage-events") { [self] in receive(receiver) }.detach()
        } catch {
            throw fail(.system(error))
        }
    }

    /// Ends a connection that cannot receive anything, and returns the reason.
    private func fail(_ problem: ControlError) -> ControlError {
        let waiters = monitor.change { state in
            state.attachment.fail(problem)
            (state.isReceiving, state.hasReceived) = (false, true)
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter(problem) }
        return problem
    }

    /// Acknowledges what is finished, detaches, and calls `body` once the receiver is called no more.
    public func end(then body: @escaping @Sendable () -> Void = {}) {
        monitor.change { $0.attachment.end() }
        whenOver(body)
    }

    /// Calls `body` once the receiver is called no more.
    public func whenOver(_ body: @escaping @Sendable () -> Void) {
        let isOver = monitor.change { state in
            let isOver = state.acknowledgesNothing && !state.isReceiving
            if !isOver { state.whenOver.append(body) }
            return isOver
        }
        if isOver { body() }
    }

    /// Detaches at once.
    public func close() {
        let events = monitor.change { state in
            state.attachment.end()
            return state.events
        }
        events?.close()
    }

    /// Has the connection made anew.
    public func reconnect() {
        let events = monitor.change { state in
            state.attachment.drop()
            return state.events
        }
        events?.close()
    }

    /// Calls `body` once the process is attached, with `nil`, or with the reason why it is not, and cuts the
    /// delay before the next attempt short.
    public func whenSettled(_ body: @escaping @Sendable (ControlError?) -> Void) {
        let (isSettled, problem) = monitor.change { state -> (Bool, ControlError?) in
            if state.hasReceived { return (true, state.attachment.problem ?? .cancelled) }
            guard state.attachment.hurry() else { return (true, nil) }
            state.waiters.append(body)
            return (false, nil)
        }
        if isSettled { body(problem) }
    }

    /// Takes in that everything was done for an event, which may be acknowledged.
    public func finish(_ sequence: Int64?) {
        guard let sequence else { return }
        monitor.change { $0.attachment.finish(sequence) }
    }

    /// Waits until what is finished was acknowledged, or cannot be at present; blocks the thread.
    public func waitForAcknowledgements(atMost duration: Duration) {
        _ = monitor.wait(atMost: duration) { state -> Bool? in
            let isDue = state.attachment.dueAcknowledgement != nil
            return isDue && !state.acknowledgesNothing && state.attachment.problem == nil
                ? nil : true
        }
    }

    /// Acknowledges the launch of this process, and calls `body` once the daemon knows, or with `false` if it
    /// cannot be told over this connection any more.
    public func finishLaunch(then body: @escaping @Sendable (Bool) -> Void) {
        let isOver = monitor.change { state in
            guard !state.acknowledgesNothing, let launch else { return true }
            state.attachment.launch = launch
            state.whenLaunchIsOver = body
            return false
        }
        if isOver { body(false) }
    }

    private func receive(_ receiver: some SessionReceiver) {
        while !isOver {
            let problem = attempt(receiver)
            let (waiters, delay, failures) = monitor.change { state in
                let delay = state.attachment.lose(problem, at: .now)
                state.events = nil
                defer { state.waiters = [] }
                return (state.waiters, delay, state.attachment.failures)
            }
            for waiter in waiters { waiter(problem) }
            if !receiver.wasDetached(by: problem, failures: failures) { end() }
            _ = monitor.wait(atMost: delay) { state in
                state.attachment.isOver || state.attachment.mustTry ? true : nil
            }
        }
        let waiters = monitor.change { state in
            (state.isReceiving, state.hasReceived) = (false, true)
            defer { state.waiters = [] }
            return state.waiters
        }
        // It was ended between two attempts, or before the first.
        for waiter in waiters { waiter(.cancelled) }
    }

    /// Attaches and takes events in until that is over; returns why.
    private func attempt(_ receiver: some SessionReceiver) -> ControlError {
        monitor.change { $0.attachment.begin() }
        do throws(ControlError) {
            let status = try client.connect()
            let after = monitor.change { $0.attachment.prepare(status) }
            try receiver.prepare(status)
            let events = try client.openEvents(after: after, launch: launch)
            let (isWanted, isOver) = monitor.change { state in
                state.events = events
                return (state.attachment.wantsEvents, state.attachment.isOver)
            }
            // It was ended, or is to be made anew, since before there was a stream to be closed.
            guard isWanted else {
                events.close()
                return isOver ? .cancelled : .lost(events.path)
            }
            while let event = try events.nextEvent() {
                // Another daemon, or one without its records, has the stream: nothing was prepared there.
                if let number = event.sessionNumber, let prepared = status.number,
                    number != prepared
                {
                    return .lost(events.path)
                }
                try take(event, receiver)
            }
            return .lost(events.path)
        } catch {
            return error
        }
    }

    private func take(
        _ event: SessionEvent,
        _ receiver: some SessionReceiver
    ) throws(ControlError) {
        let isNew = monitor.change { state -> Bool? in
            guard !state.attachment.isOver else { return nil }
            let isNew = event.sequence.map { state.attachment.receive($0) } ?? true
            state.isTaking = isNew
            return isNew
        }
        guard let isNew else { throw .cancelled }
        guard isNew else { return }
        defer { monitor.change { $0.isTaking = false } }
        if event.kind == .attached { settle() }
        do throws(ControlError) {
            try receiver.take(event)
        } catch {
            if let sequence = event.sequence {
                monitor.change { $0.attachment.release(sequence) }
            }
            throw error
        }
    }

    private func settle() {
        let waiters = monitor.change { state in
            state.attachment.attach(at: .now)
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter(nil) }
    }

    private func acknowledge() {
        while case .acknowledge(let acknowledgement) = monitor.wait({ nextStep($0) }) {
            do throws(ControlError) {
                _ = try client.answer(to: .acknowledge(acknowledgement, in: client.identifier))
            } catch {
                guard case .refused(let refusal) = error,
                    [.notFound, .invalid, .forbidden, .malformed].contains(refusal.code)
                else {
                    if isOver { break }
                    reconnect()
                    continue
                }
                // The daemon does not know the session or the event any more: it has nothing to forget.
            }
            wasAcknowledged(acknowledgement)
        }
        let (launchBody, events) = monitor.change { state in
            state.acknowledgesNothing = true
            return (state.whenLaunchIsOver, state.events)
        }
        launchBody?(false)
        events?.close()
        if endsClient { client.close() }
        let bodies = monitor.wait { state -> [@Sendable () -> Void]? in
            guard !state.isReceiving else { return nil }
            defer { state.whenOver = [] }
            return state.whenOver
        }
        for body in bodies { body() }
    }

    private func nextStep(_ state: State) -> Step? {
        if let due = state.attachment.dueAcknowledgement { return .acknowledge(due) }
        // The event that the receiver has in its hands may be finished when it returns.
        return state.attachment.isOver && !state.isTaking ? .end : nil
    }

    private func wasAcknowledged(_ acknowledgement: Acknowledgement) {
        let body = monitor.change { state -> (@Sendable (Bool) -> Void)? in
            state.attachment.wasAcknowledged(acknowledgement)
            guard acknowledgement.launch != nil else { return nil }
            defer { state.whenLaunchIsOver = nil }
            return state.whenLaunchIsOver
        }
        body?(true)
    }
}
