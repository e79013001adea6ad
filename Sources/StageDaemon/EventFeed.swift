import StageControl
import Synchronization

/// Delivers events to the clients attached to sessions, and to watchers of all sessions.
///
/// Durable events are read from the journal by each ``Subscription``, which is only woken here. All other events may be
/// dropped; the subscription of their session then sends the current state of its tasks instead.
final class EventFeed: Sendable {
    private struct State {
        var subscriptions: [Int64: Subscription] = [:]
        var watchers: [ObjectIdentifier: Watch] = [:]
    }

    /// Wakes the reader of ``takeProgress()``.
    let progressWakes: AsyncStream<Void>
    private let progressWake: AsyncStream<Void>.Continuation
    /// Queued progress events, written by the threads of running transfers.
    private let progress = Mutex(ProgressQueue())
    private let state = Mutex(State())
    /// Number of subscriptions and watchers.
    private let listenerCount = Atomic<Int>(0)

    init() {
        (progressWakes, progressWake) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
    }

    /// Queues a progress event of a user's session, from any thread; drops it if no client listens.
    func report(_ event: SessionEvent, of session: Int64, user: UInt32?) {
        guard listenerCount.load(ordering: .relaxed) > 0 else { return }
        let missed = progress.withLock { $0.append(event, of: session, user: user) }
        if !missed.isEmpty { noteMissedEvents(of: missed) }
        progressWake.yield()
    }

    /// Removes and returns the queued progress events with the identifiers of their sessions.
    func takeProgress() -> [(event: SessionEvent, session: Int64)] {
        progress.withLock { $0.takeAll() }
    }

    /// Lets the clients that are attached to sessions, all if `sessions` is `nil`, receive the current state of their tasks.
    func noteMissedEvents(of sessions: Set<Int64>?) {
        let subscriptions = state.withLock { state in
            guard let sessions else { return Array(state.subscriptions.values) }
            return sessions.compactMap { state.subscriptions[$0] }
        }
        for subscription in subscriptions { subscription.noteMissedEvents() }
    }

    /// `true` if there is a watcher.
    var hasWatchers: Bool { state.withLock { !$0.watchers.isEmpty } }

    /// Returns whether a watcher receives the events of a session.
    func isWatched(_ session: SessionRecord) -> Bool {
        state.withLock { $0.watchers.values.contains { $0.client.sees(session) } }
    }

    /// Returns whether a client would receive the non-durable events of a session.
    func hasListeners(of session: Int64) -> Bool {
        state.withLock { !$0.watchers.isEmpty || $0.subscriptions[session] != nil }
    }

    /// Sends a non-durable event to a session's client and to watchers.
    func send(_ event: SessionEvent, of session: SessionRecord) {
        state.withLock { $0.subscriptions[session.id] }?.enqueue(event)
        sendToWatchers(event, of: session)
    }

    /// Sends an event to watchers only.
    ///
    /// The session's client reads durable events from the journal.
    func sendToWatchers(_ event: SessionEvent, of session: SessionRecord) {
        state.withLock { state in
            guard !state.watchers.isEmpty else { return }
            var event = event
            event.session = session.identifier
            for watcher in state.watchers.values where watcher.client.sees(session) {
                watcher.enqueue(event)
            }
        }
    }

    /// Wakes the client of a session after the journal has recorded new events.
    func wake(_ session: Int64) { state.withLock { $0.subscriptions[session] }?.wakeUp() }

    /// Adds the client of a session that has none.
    func attach(_ subscription: Subscription) {
        state.withLock { $0.subscriptions[subscription.session] = subscription }
        listenerCount.add(1, ordering: .relaxed)
    }

    /// Removes the client of a session; returns whether it was attached.
    func detach(_ subscription: Subscription) -> Bool {
        let wasAttached = state.withLock { state in
            guard state.subscriptions[subscription.session] === subscription else { return false }
            state.subscriptions[subscription.session] = nil
            return true
        }
        if wasAttached { listenerCount.subtract(1, ordering: .relaxed) }
        return wasAttached
    }

    /// Ends the event stream of a session's client, if one is attached.
    func end(_ session: Int64) {
        guard let subscription = state.withLock({ $0.subscriptions[session] }) else { return }
        _ = detach(subscription)
        subscription.end()
    }

    /// Adds a watcher of all sessions that are visible to a client.
    func watch(for client: ClientCredentials) -> Watch {
        let watch = Watch(for: client)
        state.withLock { $0.watchers[ObjectIdentifier(watch)] = watch }
        listenerCount.add(1, ordering: .relaxed)
        return watch
    }

    /// Removes a watcher.
    func unwatch(_ watch: Watch) {
        let known = state.withLock { $0.watchers.removeValue(forKey: ObjectIdentifier(watch)) }
        if known != nil { listenerCount.subtract(1, ordering: .relaxed) }
        watch.end()
    }
}
