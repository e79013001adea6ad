import FoundationEssentials
import HeapModule
import StageControl
import StageSystem

/// Events for the clients that are attached to sessions.
extension TransferCoordinator {
    /// Sends a non-durable event to the session's client and to watchers.
    func distribute(_ event: SessionEvent, to session: Int64) {
        guard let record = state.sessions[session]?.record else { return }
        feed.send(event, of: record)
    }

    /// Returns the events that the client has not received yet; an empty array if there are none.
    func read(_ subscription: Subscription) async throws(DaemonError) -> [SessionEvent] {
        var events = currentEvents(for: subscription)
        events += subscription.takeNonDurable()
        guard let session = state.sessions[subscription.session] else { return events }
        let cursor = subscription.cursor
        if cursor < session.record.last {
            let kept = try await journal.events(of: session.record.id, after: cursor, limit: 256)
            let (files, user) = (files, session.record.user)
            // Non-durable events that arrived during the read precede the durable events just read: no non-durable
            // event of a task follows its end.
            events += subscription.takeNonDurable()
            // On a blocking thread, since the user can make the directory slow. It waits for no mounted file system, so other
            // users' files that do not respond must not delay it.
            events += try await withBlockingThread { () throws(DaemonError) in
                try files.located(kept, of: user)
            }
            subscription.cursor = kept.last?.sequence ?? session.record.last
        }
        let current = state.sessions[subscription.session]
        let isDone = subscription.cursor >= current?.record.last ?? 0 && current?.unfinished == 0
        if subscription.mark(finished: isDone) {
            events.append(SessionEvent(.finishedEvents, time: .now))
        }
        return events
    }

    /// Returns the queued events of a client that has missed others, and the current state of its session's running and
    /// waiting tasks, the running ones first; an empty array if the client has missed none.
    ///
    /// Limited to ``Subscription/limit`` tasks, so that the memory for a client does not grow with its tasks. The others follow
    /// when the client has received these. If it misses further events meanwhile, the tasks are sent again only after the last one: otherwise a client that is always
    /// slow would never receive the later ones.
    private func currentEvents(for subscription: Subscription) -> [SessionEvent] {
        let reported = subscription.lastReported
        guard reported != nil || subscription.takeMissedEvents() else { return [] }
        let last = reported ?? 0
        let now = readClock()
        deliverProgress()
        var events = subscription.takeNonDurable()
        let running = reported == nil ? runningTasks(of: subscription.session) : []
        let room = Subscription.limit - running.count
        if reported == nil { subscription.upcoming = [] }
        let waiting = nextWaitingTasks(for: subscription, after: last, count: room)
        for id in running + waiting {
            let change = state.change(of: id, at: now)
            events.append(change)
            // An attempt that is being stopped reports nothing that the client can use.
            guard change.state == .running, let transfer = live[id] else { continue }
            let current = transfer.currentEvents {
                // Earlier events of the task report fewer bytes, so they must come first.
                deliverProgress()
                events += subscription.takeNonDurable()
            }
            events += current
        }
        return events
    }

    /// Returns the waiting tasks whose state the client is sent next, at most `count`, and records the last one.
    ///
    /// Searches all tasks of the session once for ``Subscription/lookahead`` of them.
    private func nextWaitingTasks(
        for subscription: Subscription,
        after last: Int64,
        count: Int
    ) -> [Int64] {
        subscription.lastReported = last
        guard count > 0 else { return [] }
        var (last, upcoming) = (last, subscription.upcoming)
        while true {
            if upcoming.isEmpty {
                let found = waitingTasks(of: subscription.session, after: last)
                upcoming = found.smallest(Subscription.lookahead)[...]
            }
            let page = upcoming.prefix(count)
            upcoming = upcoming.dropFirst(count)
            subscription.upcoming = upcoming
            subscription.lastReported = page.last
            guard let end = page.last else { return [] }
            last = end
            // Tasks that have begun or ended since they were found have sent events of their own.
            let tasks = page.filter { id in
                live[id] == nil
                    && (state.scheduler.items[id] != nil || state.unrecorded.contains(id))
            }
            if !tasks.isEmpty { return tasks }
        }
    }

    private func runningTasks(of session: Int64) -> [Int64] {
        let tasks = state.scheduler.transfers[session] ?? []
        return tasks.lazy.filter { [live] in live[$0] != nil }.smallest(Subscription.limit)
    }

    /// Returns the waiting tasks of a session with numbers above `last`, in no order.
    private func waitingTasks(of session: Int64, after last: Int64) -> some Sequence<Int64> {
        var tasks = state.scheduler.transfers[session] ?? []
        // Tasks whose end is not recorded yet are no longer in the scheduler.
        let unrecorded = state.unrecorded.filter { state.ending[$0] == session }
        if !unrecorded.isEmpty { tasks.formUnion(unrecorded) }
        return tasks.lazy.filter { [live] in $0 > last && live[$0] == nil }
    }
}

extension Sequence<Int64> {
    /// Returns the smallest elements, at most `count`, in ascending order, without sorting the others.
    fileprivate func smallest(_ count: Int) -> [Int64] {
        var found = Heap<Int64>()
        for element in self {
            if found.count < count {
                found.insert(element)
            } else if let last = found.max, element < last {
                found.replaceMax(with: element)
            }
        }
        return found.unordered.sorted()
    }
}
