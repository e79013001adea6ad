import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem
import SystemPackage

extension Broker {
    /// Returns the current status of a session that the client may use.
    func status(
        of identifier: String,
        _ caller: Caller
    ) throws(ControlRefusal) -> SessionStatus {
        try state.session(identifier, caller).status(for: caller)
    }

    /// Returns the sessions that are visible to the client.
    func sessions(_ caller: Caller) -> [SessionStatus] {
        state.sessions(caller).map { $0.status(for: caller) }
    }

    /// Creates a session, or changes the configuration of the client's existing one.
    func makeSession(
        _ identifier: String,
        _ wanted: SessionConfiguration,
        _ caller: Caller
    ) async throws(ControlRefusal) -> SessionStatus {
        try check(identifier, wanted, caller)
        if wanted.handler != nil { try await checkHandler(caller) }
        let reservation = try state.reserveSession(identifier, wanted, of: caller.user)
        let record: SessionRecord
        do throws(DaemonError) {
            record = try await journal.makeSession(
                identifier,
                of: caller.identity,
                wanted,
                limit: state.configuration.journalPerUser.rawValue
            )
        } catch {
            state.endReservation(reservation, nil)
            throw ControlRefusal(error)
        }
        state.endReservation(reservation, record)
        await considerLaunch(record.id)
        let session = state.sessions[record.id] ?? TransferState.Session(record: record)
        return session.status(for: caller)
    }

    private func check(
        _ identifier: String,
        _ wanted: SessionConfiguration,
        _ caller: Caller
    ) throws(ControlRefusal) {
        try RequestLimits.check(wanted, identifier: identifier)
        guard let name = wanted.group else { return }
        guard let group = UInt32.group(named: name), caller.identity.groups.contains(group) else {
            throw ControlRefusal(.forbidden, "you are not a member of the group '\(name)'")
        }
    }

    /// Checks that the client may have a handler started, which must not gain rights that the client's process lacks.
    func checkHandler(_ caller: Caller) async throws(ControlRefusal) {
        let policy = HandlerPolicy(exceptions: state.configuration.handlerUsers)
        // The user database may be on another machine.
        let refusal = await withBlockingThread { policy.refusal(for: caller) }
        if let refusal { throw ControlRefusal(.forbidden, refusal) }
    }

    /// Cancels a session's tasks and removes the session.
    func removeSession(_ identifier: String, _ caller: Caller) async throws(ControlRefusal) {
        try await remove(try state.session(identifier, caller).record)
    }

    /// Cancels a session's tasks and removes the session.
    func remove(_ session: SessionRecord) async throws(ControlRefusal) {
        let (id, user) = (session.id, session.user)
        let tasks = state.beginRemoval(of: id)
        for (index, task) in tasks.enumerated() {
            // Downloads that are being committed finish first; their files are then removed with the task.
            if state.placing.contains(task) { await halt(task) }
            state.forget(task, at: .now)
            await halt(task)
            if index % Journal.stepCount == 0 { await Task.yield() }
        }
        let deletions = await deletions(of: session)
        do throws(DaemonError) {
            // In steps, so that other requests are answered in between.
            while true {
                let removed = try await journal.removeTasks(of: id)
                if removed.tasks.isEmpty { break }
                await discard(removed, of: user)
            }
            await discard(try await journal.removeSession(id), of: user)
        } catch {
            state.abandonRemoval(of: id)
            for task in tasks { await readmit(task) }
            await considerLaunch(id)
            throw ControlRefusal(.storage, "\(error)")
        }
        for deletion in deletions { begin(deletion) }
        distribute(SessionEvent(.invalidated, time: .now), id)
        perform(state.removed(id, at: .now))
        feed.end(id)
        launches.removeValue(forKey: id)?.stop()
        turn()
    }

    /// Removes a transient session that has no unfinished task and no attached client.
    func removeIfOver(_ id: Int64) async {
        if state.isOver(id) { await removeOrTell(id) }
    }

    /// Removes the detached sessions that a transient session replaces.
    ///
    /// Stops their workers first, all at the same time; the workers keep what they have received.
    func takeOver(for session: TransferState.Session) async {
        let others = state.beginTakeOver(for: session)
        await withDiscardingTaskGroup { group in
            for other in others { group.addTask { await self.removeOrTell(other) } }
        }
    }

    private func removeOrTell(_ id: Int64) async {
        guard let session = state.sessions[id]?.record else { return }
        do throws(ControlRefusal) {
            try await remove(session)
        } catch {
            // The next start tries again.
            logger.warning("A session could not be removed", metadata: ["error": "\(error)"])
        }
    }

    /// Removes the files of tasks that were removed from the journal.
    private func discard(_ removed: Removed, of user: UInt32) async {
        let (store, logger) = (store, logger)
        // On a blocking thread: there may be a thousand files, in a directory that the user controls.
        release(await withBlockingThread { store.discard(removed, of: user, logger) })
    }
}

extension Broker {
    /// Attaches a client to a session.
    ///
    /// - Throws: ``ControlRefusal`` with ``ControlRefusal/Code/conflict`` if another client is attached.
    func attach(
        _ identifier: String,
        after sequence: Int64?,
        launch: String?,
        _ caller: Caller
    ) async throws(ControlRefusal) -> Subscription {
        let (session, hasLaunchChange) = try state.attach(
            identifier,
            launch: launch,
            caller,
            at: .now
        )
        let subscription = Subscription(
            session: session.record.id,
            after: max(sequence ?? 0, session.record.acknowledged),
            launch: launch
        )
        feed.attach(subscription)
        turn()
        if hasLaunchChange { await save(session.record.id) }
        return subscription
    }

    /// Detaches a client that ``attach(_:after:launch:_:)`` attached.
    func detach(_ subscription: Subscription) async {
        guard feed.detach(subscription) else { return }
        perform(state.detach(subscription.session, at: .now))
        turn()
        await considerLaunch(subscription.session)
        await removeIfOver(subscription.session)
        setTimer()
    }

    /// Returns the events that the client has not received yet; an empty array if there are none.
    func read(_ subscription: Subscription) async throws(DaemonError) -> [SessionEvent] {
        var events = subscription.takePassing()
        guard let session = state.sessions[subscription.session] else { return events }
        let cursor = subscription.cursor
        if cursor < session.record.last {
            let kept = try await journal.events(of: session.record.id, after: cursor, limit: 256)
            let (store, user) = (store, session.record.user)
            // Non-durable events that arrived during the read precede the durable events just read: no non-durable
            // event of a task follows its end.
            events += subscription.takePassing()
            // On a blocking thread: the user controls the directory and can make it slow.
            events += try await withBlockingThread { () throws(DaemonError) in
                try store.located(kept, of: user)
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

    /// Records an acknowledgement and removes the acknowledged events with their tasks and files.
    func acknowledge(
        _ message: Acknowledgement,
        of identifier: String,
        _ caller: Caller
    ) async throws(ControlRefusal) {
        try RequestLimits.check(message)
        let (session, hasLaunchChange) = try state.acknowledge(message, of: identifier, caller)
        let id = session.id
        var sequence = session.acknowledged
        do throws(DaemonError) {
            // In steps, so that other requests are answered in between.
            repeat {
                sequence = min(message.sequence, sequence + Int64(Journal.stepCount))
                let isLast = sequence == message.sequence && hasLaunchChange
                let removed = try await journal.acknowledge(
                    sequence,
                    of: id,
                    // Read now, since the handler may have ended in the meantime.
                    isLast ? state.sessions[id]?.record.relaunch : nil
                )
                state.sessions[id]?.acknowledged(sequence)
                await discard(removed, of: session.user)
            } while sequence < message.sequence
        } catch {
            throw ControlRefusal(.storage, "\(error)")
        }
    }

    /// Extends the time limit of a launched handler.
    func extend(_ identifier: String, _ caller: Caller) throws(ControlRefusal) {
        guard let launch = launches[try state.session(identifier, caller).record.id] else {
            throw ControlRefusal(.conflict, "no handler of this session is running")
        }
        launch.extend(by: state.configuration.launchLease)
    }
}

/// Launches of handlers.
extension Broker {
    /// Starts a session's handler if its events require it, after recording the launch in the journal.
    func considerLaunch(_ id: Int64) async {
        // A daemon that is shutting down starts no handler; its successor will.
        guard !Task.isCancelled else { return }
        let token = UUID().uuidString.lowercased()
        let order = state.decideLaunch(of: id, token: token, boot: "\(boot)", at: .now)
        guard let order else {
            // If only the delay prevents the launch, the timer retries it.
            if state.sessions[id].map(state.mayLaunch) ?? false { setTimer() }
            return
        }
        let isOnDisk = await save(id)
        switch state.launchRecorded(order, isOnDisk: isOnDisk) {
        case .start:
            let launch = Launch(order, lease: state.configuration.launchLease)
            launches[id] = launch
            command.yield(.launch(launch))
        case .withdraw: await save(id)
        case .none:
            if !isOnDisk { holdForSpace() }
            setTimer()
        }
    }

    /// Processes the end of a handler.
    func ended(_ launch: Launch) async {
        // The daemon is shutting down: its successor counts the launch.
        guard !Task.isCancelled else { return }
        if launches[launch.session] === launch { launches[launch.session] = nil }
        guard let isDone = state.launchEnded(launch.token, of: launch.session) else { return }
        await save(launch.session)
        if !isDone {
            logger.warning(
                "A handler ended without acknowledging the events of its session",
                metadata: ["session.identifier": "\(launch.identifier)"]
            )
        }
        await considerLaunch(launch.session)
        // Other handlers may have waited for this one to end.
        for id in state.launchable { await considerLaunch(id) }
        setTimer()
    }

    /// Writes the launch state of a session to the journal; returns whether that succeeded.
    @discardableResult
    private func save(_ id: Int64) async -> Bool {
        guard let relaunch = state.sessions[id]?.record.relaunch else { return false }
        do throws(DaemonError) {
            try await journal.update(relaunch, of: id)
            return true
        } catch {
            logger.error("A launch was not recorded", metadata: ["error": "\(error)"])
            return false
        }
    }
}

extension Launch {
    /// Creates a launch that ``TransferState`` has decided on; `lease` is its time limit in seconds.
    fileprivate convenience init(_ order: LaunchOrder, lease: Double) {
        self.init(
            session: order.session.id,
            identifier: order.session.identifier,
            user: order.session.user,
            rights: order.session.rights,
            handler: order.handler,
            token: order.token,
            lease: lease
        )
    }
}
