import StageSystem

/// Receiver of a session's events.
///
/// Its methods are called on one thread, in order.
package protocol SessionReceiver: Sendable {
    /// Called before each attempt to attach.
    ///
    /// - Throws: ``ControlError`` to skip the attempt.
    func prepare(_ status: SessionStatus) throws(ControlError)

    /// Processes an event. Each durable event is delivered once, unless this throws.
    ///
    /// - Throws: ``ControlError`` to reconnect and receive a durable event again.
    func take(_ event: SessionEvent) throws(ControlError)

    /// Called when the connection is lost or an attempt to attach fails, with the number of consecutive failures;
    /// returns whether to try again.
    func wasDetached(by problem: ControlError, failures: Int) -> Bool
}

/// Connection to a session's event stream, which reconnects automatically and sends acknowledgements.
///
/// Waits 100 ms before it reconnects, then twice as long each time, up to ten seconds; reconnects at once when a
/// request of the same ``SessionClient`` finds a daemon. A daemon that misses three heartbeats counts as lost. Events
/// are acknowledged in order, on a separate thread, after ``finish(_:)`` was called for them. Failed acknowledgements
/// are repeated over the next connection.
package final class SessionConnection: Sendable {
    private struct State {
        var attachment = SessionAttachment()
        var events: ControlEvents?
        var isReceiving = false
        /// Set while the receiver processes an event.
        var isProcessing = false
        /// Set after the last call of the receiver.
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

    /// Client for requests about the session.
    package let client: SessionClient
    /// Token of the launch that started this process, if one did.
    package let launch: String?
    private let endsClient: Bool
    private let monitor = ConditionVariable(State())

    /// Creates a connection; ``start(_:)`` opens it.
    ///
    /// - Parameters:
    ///   - client: The client for requests about the session.
    ///   - launch: The token of the launch that started this process, if one did.
    ///   - endsClient: Whether the end of the connection also closes the client. Running requests then do not delay
    ///     the end, except those of the receiver and the last acknowledgement.
    package init(_ client: SessionClient, launch: String? = nil, endsClient: Bool = false) {
        self.client = client
        self.launch = launch
        self.endsClient = endsClient
    }

    /// Error that currently prevents events; `nil` while they arrive.
    package var problem: ControlError? { monitor.withValue { $0.attachment.problem } }

    /// Set when no further events are wanted.
    package var isOver: Bool { monitor.withValue { $0.attachment.isOver } }

    /// Starts to attach.
    ///
    /// Call it only once. Keeps a reference to `receiver` until the connection has ended.
    ///
    /// - Throws: ``ControlError/system(_:)`` if the process cannot create another thread. The connection has then
    ///   ended without calling the receiver.
    package func start(_ receiver: some SessionReceiver) throws(ControlError) {
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

    /// Ends a connection that cannot receive events; returns the reason.
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

    /// Acknowledges all processed events, detaches, and calls `body` after the last call of the receiver.
    package func end(then body: @escaping @Sendable () -> Void = {}) {
        monitor.change { $0.attachment.end() }
        whenOver(body)
    }

    /// Calls `body` after the last call of the receiver.
    package func whenOver(_ body: @escaping @Sendable () -> Void) {
        let isOver = monitor.change { state in
            let isOver = state.acknowledgesNothing && !state.isReceiving
            if !isOver { state.whenOver.append(body) }
            return isOver
        }
        if isOver { body() }
    }

    /// Detaches at once.
    package func close() {
        let events = monitor.change { state in
            state.attachment.end()
            return state.events
        }
        events?.close()
    }

    /// Closes the current connection and opens a new one.
    package func reconnect() {
        let events = monitor.change { state in
            state.attachment.drop()
            return state.events
        }
        events?.close()
    }

    /// Calls `body` with `nil` once the client is attached, or with the error of the next failed attempt.
    ///
    /// Ends the delay before that attempt.
    package func whenSettled(_ body: @escaping @Sendable (ControlError?) -> Void) {
        let (isSettled, problem) = monitor.change { state -> (Bool, ControlError?) in
            if state.hasReceived { return (true, state.attachment.problem ?? .cancelled) }
            guard state.attachment.endDelay() else { return (true, nil) }
            state.waiters.append(body)
            return (false, nil)
        }
        if isSettled { body(problem) }
    }

    /// Marks an event as processed, so that it can be acknowledged.
    package func finish(_ sequence: Int64?) {
        guard let sequence else { return }
        monitor.change { $0.attachment.finish(sequence) }
    }

    /// Waits until all processed events are acknowledged, or cannot be at present; blocks the thread.
    package func waitForAcknowledgements(atMost duration: Duration) {
        _ = monitor.wait(atMost: duration) { state -> Bool? in
            let isDue = state.attachment.dueAcknowledgement != nil
            return isDue && !state.acknowledgesNothing && state.attachment.problem == nil
                ? nil : true
        }
    }

    /// Acknowledges the launch of this process.
    ///
    /// Calls `body` with `true` after the daemon has confirmed it, or with `false` if it cannot be acknowledged over
    /// this connection any more.
    package func finishLaunch(then body: @escaping @Sendable (Bool) -> Void) {
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
                state.attachment.isOver || state.attachment.skipsDelay ? true : nil
            }
        }
        let waiters = monitor.change { state in
            (state.isReceiving, state.hasReceived) = (false, true)
            defer { state.waiters = [] }
            return state.waiters
        }
        // The connection ended between two attempts, or before the first.
        for waiter in waiters { waiter(.cancelled) }
    }

    /// Attaches, and receives events until the connection is lost; returns the reason.
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
            // The connection was ended or dropped before there was a stream to close.
            guard isWanted else {
                events.close()
                return isOver ? .cancelled : .lost(events.path)
            }
            while let event = try events.nextEvent() {
                // The stream belongs to another daemon, or to one that has lost its journal, where the session was
                // not prepared.
                if let number = event.sessionNumber, number != status.number {
                    return .lost(events.path)
                }
                try deliver(event, to: receiver)
            }
            return .lost(events.path)
        } catch {
            return error
        }
    }

    private func deliver(
        _ event: SessionEvent,
        to receiver: some SessionReceiver
    ) throws(ControlError) {
        let isNew = monitor.change { state -> Bool? in
            guard !state.attachment.isOver else { return nil }
            let isNew = event.sequence.map { state.attachment.receive($0) } ?? true
            state.isProcessing = isNew
            return isNew
        }
        guard let isNew else { throw .cancelled }
        guard isNew else { return }
        defer { monitor.change { $0.isProcessing = false } }
        if event.kind == .attached { settle() }
        do throws(ControlError) {
            try receiver.take(event)
        } catch {
            if let sequence = event.sequence {
                monitor.change { $0.attachment.takeBack(sequence) }
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
                // The daemon does not know the session or the event any more, so it has nothing to remove.
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
        // The receiver may mark the event as processed before it returns.
        return state.attachment.isOver && !state.isProcessing ? .end : nil
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
