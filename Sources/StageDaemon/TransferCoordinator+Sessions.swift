import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem
import SystemPackage

extension TransferCoordinator {
    /// Returns the current status of a session that the client may use.
    func status(
        of identifier: String,
        for client: ClientCredentials
    ) throws(ControlRefusal) -> SessionStatus {
        try state.session(identifier, for: client).status(for: client)
    }

    /// Returns the sessions that are visible to the client.
    func sessions(for client: ClientCredentials) -> [SessionStatus] {
        state.sessions(for: client).map { $0.status(for: client) }
    }

    /// Creates a session, or changes the configuration of the client's existing one.
    func makeSession(
        _ identifier: String,
        configuration wanted: SessionConfiguration,
        for client: ClientCredentials
    ) async throws(ControlRefusal) -> SessionStatus {
        try RequestLimits.check(wanted, identifier: identifier)
        guard client.owner ?? client.user == client.user else {
            throw ControlRefusal(
                .forbidden,
                message: "a session can be created and configured by its user only"
            )
        }
        let group = try await group(of: wanted, for: client)
        if wanted.handler != nil { try await checkHandler(for: client) }
        let reservation = try state.reserveSession(
            identifier,
            configuration: wanted,
            of: client.user
        )
        var record: SessionRecord
        do throws(DaemonError) {
            record = try await journal.makeSession(
                identifier,
                of: client.identity,
                configuration: wanted,
                limit: state.configuration.journalPerUser.rawValue
            )
        } catch {
            state.endReservation(reservation, record: nil)
            throw ControlRefusal(error)
        }
        record.group = group
        state.endReservation(reservation, record: record)
        await launchIfNeeded(record.id)
        let session = state.sessions[record.id] ?? TransferState.Session(record: record)
        return session.status(for: client)
    }

    /// Returns the group whose members may use a session; the client must be a member of it.
    private func group(
        of wanted: SessionConfiguration,
        for client: ClientCredentials
    ) async throws(ControlRefusal) -> UInt32? {
        guard let name = wanted.group else { return nil }
        // The group database may be on another machine.
        let group = await withBlockingThread { UInt32.group(named: name) }
        guard let group, client.identity.groups.contains(group) else {
            throw ControlRefusal(.forbidden, message: "you are not a member of the group '\(name)'")
        }
        return group
    }

    /// Checks that the client may have a handler started, which must not gain rights that the client's process lacks.
    func checkHandler(for client: ClientCredentials) async throws(ControlRefusal) {
        let policy = HandlerPolicy(exceptions: state.configuration.handlerUsers)
        // The user database may be on another machine.
        let refusal = await withBlockingThread { policy.refusal(for: client) }
        if let refusal { throw ControlRefusal(.forbidden, message: refusal) }
    }

    /// Cancels a session's tasks and removes the session.
    func removeSession(
        _ identifier: String,
        for client: ClientCredentials
    ) async throws(ControlRefusal) {
        try await remove(try state.session(identifier, for: client).record)
    }

    /// Cancels a session's tasks and removes the session.
    ///
    /// Waits for the end of an earlier removal, and removes the session only if that has failed.
    func remove(_ session: SessionRecord) async throws(ControlRefusal) {
        let (id, user) = (session.id, session.user)
        await beginChange(of: .removal(id))
        defer { endChange(of: .removal(id)) }
        guard state.sessions[id] != nil else { return }
        let tasks = state.beginRemoval(of: id)
        for (index, task) in tasks.enumerated() {
            // Downloads that are being committed finish first; their files are then removed with the task.
            if state.committing.contains(task) { await abort(task) }
            state.forget(task, at: readClock())
            await abort(task)
            await waitForPartialFile(of: task)
            if index % Journal.batchSize == 0 { await Task.yield() }
        }
        let deletions = await deletions(of: session)
        do throws(DaemonError) {
            // In steps, so that other requests are answered in between.
            while true {
                let removed = try await journal.removeTasks(of: id)
                if removed.tasks.isEmpty { break }
                state.sessions[id]?.unfinished -= removed.unfinished
                await discard(removed, of: user)
            }
            await discard(try await journal.removeSession(id), of: user)
        } catch {
            for task in tasks { await reschedule(task) }
            // Only now, or the end of such a task could remove the session, and wait for this removal.
            state.abandonRemoval(of: id, at: readClock())
            runScheduler()
            await launchIfNeeded(id)
            if !tasks.isEmpty { Task { await removeIfOver(id) } }
            throw ControlRefusal(.storage, message: "\(error)")
        }
        for deletion in deletions { begin(deletion) }
        distribute(SessionEvent(.invalidated, time: .now), to: id)
        perform(state.removed(id, at: readClock()))
        feed.end(id)
        launches.removeValue(forKey: id)?.stop()
        runScheduler()
    }

    /// Removes a transient session that has no unfinished task and no attached client.
    func removeIfOver(_ id: Int64) async {
        if state.isOver(id) { await removeOrLog(id) }
    }

    /// Removes the sessions that a transient session replaces, whose stagings the journal has no more.
    ///
    /// Stops their workers first, all at the same time; the workers keep what they have received.
    func removeReplaced(_ sessions: [Int64]) async {
        await withDiscardingTaskGroup { group in
            for session in sessions { group.addTask { await self.removeOrLog(session) } }
        }
    }

    /// Keeps the sessions that a transient session was to replace, since the journal has refused its stagings; not those that
    /// a client removes meanwhile.
    func keepReplaced(_ sessions: [Int64]) async {
        for session in sessions where !isChanging(.removal(session)) {
            state.abandonRemoval(of: session, at: readClock())
        }
        for session in sessions {
            await launchIfNeeded(session)
            await removeIfOver(session)
        }
    }

    private func removeOrLog(_ id: Int64) async {
        guard let session = state.sessions[id]?.record else { return }
        do throws(ControlRefusal) {
            try await remove(session)
        } catch {
            // The next start tries again.
            logger.warning("A session could not be removed", metadata: ["error": "\(error)"])
        }
    }
}

extension TransferCoordinator {
    /// Attaches a client to a session.
    ///
    /// - Throws: ``ControlRefusal`` with ``ControlRefusal/Code/conflict`` if another client is attached.
    func attach(
        _ identifier: String,
        after sequence: Int64?,
        launch: String?,
        for client: ClientCredentials
    ) async throws(ControlRefusal) -> Subscription {
        let (session, hasLaunchChange) = try state.attach(
            identifier,
            launch: launch,
            for: client,
            at: readClock()
        )
        let subscription = Subscription(
            session: session.record.id,
            after: max(sequence ?? 0, session.record.acknowledged)
        )
        feed.attach(subscription)
        runScheduler()
        if hasLaunchChange { await save(session.record.id) }
        return subscription
    }

    /// Detaches a client that ``attach(_:after:launch:for:)`` attached.
    func detach(_ subscription: Subscription) async {
        guard feed.detach(subscription) else { return }
        perform(state.detach(subscription.session, at: readClock()))
        runScheduler()
        await launchIfNeeded(subscription.session)
        await removeIfOver(subscription.session)
        setTimer()
    }

    /// Records an acknowledgement and removes the acknowledged events with their tasks and files.
    func acknowledge(
        _ message: Acknowledgement,
        of identifier: String,
        for client: ClientCredentials
    ) async throws(ControlRefusal) {
        try RequestLimits.check(message)
        let (session, hasLaunchChange) = try state.acknowledge(message, of: identifier, for: client)
        let id = session.id
        var sequence = session.acknowledged
        do throws(DaemonError) {
            // In steps, so that other requests are answered in between.
            repeat {
                sequence = min(message.sequence, sequence + Int64(Journal.batchSize))
                let isLast = sequence == message.sequence && hasLaunchChange
                let removed = try await journal.acknowledge(
                    sequence,
                    of: id,
                    launchLimiter:  // Read now, since the handler may have ended in the meantime.
                        isLast ? state.sessions[id]?.record.launchLimiter : nil
                )
                state.sessions[id]?.acknowledged(sequence)
                await discard(removed, of: session.user)
            } while sequence < message.sequence
        } catch {
            throw ControlRefusal(.storage, message: "\(error)")
        }
    }

    /// Extends the time limit of a launched handler.
    func extend(_ identifier: String, for client: ClientCredentials) throws(ControlRefusal) {
        guard let launch = launches[try state.session(identifier, for: client).record.id] else {
            throw ControlRefusal(.conflict, message: "no handler of this session is running")
        }
        launch.extend(by: state.configuration.launchLease)
    }
}

/// Launches of handlers.
extension TransferCoordinator {
    /// Starts a session's handler if its events require it, after recording the launch in the journal.
    func launchIfNeeded(_ id: Int64) async {
        // A daemon that is shutting down starts no handler; its successor will.
        guard !Task.isCancelled else { return }
        let token = UUID().uuidString.lowercased()
        let now = readClock()
        let planned = state.decideLaunch(of: id, token: token, boot: "\(boot)", at: now)
        guard let planned else {
            // If only the delay prevents the launch, the timer retries it, also if the delay has ended since the decision.
            if state.sessions[id].map(state.mayLaunch) ?? false { setTimer(at: now) }
            return
        }
        let error = await save(id)
        switch state.launchRecorded(planned, isOnDisk: error == nil) {
        case .start:
            let launch = HandlerLaunch(planned, timeLimit: state.configuration.launchLease)
            launches[id] = launch
            commandQueue.yield(.launch(launch))
        case .withdraw: await save(id)
        case .none:
            if let error { waitForSpace(after: error) }
            setTimer()
        }
    }

    /// Processes the end of a handler.
    func ended(_ launch: HandlerLaunch) async {
        // The daemon is shutting down: its successor counts the launch.
        guard !Task.isCancelled else { return }
        if launches[launch.session] === launch { launches[launch.session] = nil }
        if let isDone = state.launchEnded(launch.token, of: launch.session) {
            await save(launch.session)
            if !isDone {
                logger.warning(
                    "A handler ended without acknowledging the events of its session",
                    metadata: ["session.identifier": "\(launch.identifier)"]
                )
            }
            await launchIfNeeded(launch.session)
        }
        // Other handlers may have waited for this one to end.
        for id in state.launchable { await launchIfNeeded(id) }
        setTimer()
    }

    /// Writes the launch state of a session, unless it was removed, to the journal; returns the error if that fails.
    @discardableResult
    private func save(_ id: Int64) async -> DaemonError? {
        guard let launchLimiter = state.sessions[id]?.record.launchLimiter else { return nil }
        do throws(DaemonError) {
            try await journal.update(launchLimiter, of: id)
            return nil
        } catch {
            logger.error("A launch was not recorded", metadata: ["error": "\(error)"])
            return error
        }
    }
}

extension HandlerLaunch {
    /// Creates a launch that ``TransferState`` has decided on; `timeLimit` is in seconds.
    fileprivate convenience init(_ planned: PlannedLaunch, timeLimit: Double) {
        self.init(
            session: planned.session.id,
            identifier: planned.session.identifier,
            user: planned.session.user,
            rights: planned.session.rights,
            handler: planned.handler,
            token: planned.token,
            timeLimit: timeLimit
        )
    }
}

extension TransferCoordinator {
    /// Logs that a transfer failed, at a level that the service of the system does not write: users decide what fails.
    private func logFailure(_ event: SessionEvent, of record: SessionRecord) {
        guard event.kind == .failed, let failure = event.failure else { return }
        logger.info(
            "A transfer failed",
            metadata: [
                "task": "\(event.task ?? 0)", "session": "\(record.identifier)",
                "user": "\(record.user)", "error": "\(failure.reason)",
            ]
        )
    }

    /// Delivers recorded events to clients, and starts handlers of sessions without a client.
    func announce(_ events: [(session: Int64, event: SessionEvent)]) async {
        for (session, event) in events {
            state.sessions[session]?.note(event)
            if let record = state.sessions[session]?.record {
                feed.sendToWatchers(event, of: record)
                logFailure(event, of: record)
            }
        }
        for session in Set(events.map(\.session)) {
            feed.wake(session)
            await launchIfNeeded(session)
            await removeIfOver(session)
        }
    }
}
