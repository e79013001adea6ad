import FoundationEssentials
import Logging
import StageControl
import StageModel
import StageSystem
import SystemPackage

extension Broker {
    /// A session that the caller may use: their own, or that of the user whom they name.
    ///
    /// A name alone never means a session of somebody else's, who could answer for it and get the caller's
    /// files and header fields.
    func session(_ identifier: String, _ caller: Caller) throws(ControlRefusal) -> LiveSession {
        let owner = caller.owner ?? caller.user
        let found = sessions.values.first {
            $0.record.identifier == identifier && $0.record.user == owner
        }
        guard let found, caller.mayUse(found.record) else {
            throw ControlRefusal(
                .notFound,
                "user \(owner) has no session '\(identifier.prefix(256))' that you may use"
            )
        }
        return found
    }

    /// The sessions that the caller sees.
    func sessions(_ caller: Caller) -> [SessionStatus] {
        sessions.values.filter { caller.sees($0.record) }
            .sorted { $0.record.id < $1.record.id }
            .map { $0.status(for: caller) }
    }

    /// Makes a session, or gives the caller's another configuration.
    func makeSession(
        _ identifier: String,
        _ wanted: SessionConfiguration,
        _ caller: Caller
    ) async throws(ControlRefusal) -> SessionStatus {
        try check(identifier, wanted, caller)
        if wanted.handler != nil { try await checkHandler(caller) }
        let own = sessions.values.filter { $0.record.user == caller.user }
        if let same = own.first(where: { $0.record.identifier == identifier }) {
            guard same.record.configuration.isTransient == wanted.isTransient else {
                throw ControlRefusal(.invalid, "'isTransient' of a session does not change")
            }
            guard !same.isEnding else {
                throw ControlRefusal.sessionEnds
            }
        } else {
            guard own.count < RequestLimits.sessionsPerUser else {
                throw ControlRefusal(
                    .quota,
                    "one user may have \(RequestLimits.sessionsPerUser) sessions: remove some"
                )
            }
            guard sessions.count < RequestLimits.sessions else {
                throw ControlRefusal(.unavailable, "all users together have too many sessions")
            }
        }
        let record: SessionRecord
        do throws(DaemonError) {
            record = try await journal.makeSession(
                identifier,
                of: caller.identity,
                wanted,
                limit: configuration.journalPerUser.rawValue
            )
        } catch {
            throw ControlRefusal(error)
        }
        if sessions[record.id] == nil {
            sessions[record.id] = LiveSession(record: record)
        } else {
            // What launches did is known better here than what was read.
            sessions[record.id]?.record.configuration = wanted
            sessions[record.id]?.record.rights = record.rights
            sessions[record.id]?.record.group = record.group
        }
        await considerLaunch(record.id)
        return (sessions[record.id] ?? LiveSession(record: record)).status(for: caller)
    }

    private func check(
        _ identifier: String,
        _ wanted: SessionConfiguration,
        _ caller: Caller
    ) throws(ControlRefusal) {
        try RequestLimits.check(wanted, identifier: identifier)
        guard let name = wanted.group else { return }
        guard let group = UInt32.group(named: name), caller.identity.groups.contains(group) else {
            throw ControlRefusal(.forbidden, "you are no member of the group '\(name)'")
        }
    }

    /// Checks that the client may have a program started, which takes nothing that its process has not.
    func checkHandler(_ caller: Caller) async throws(ControlRefusal) {
        let policy = HandlerPolicy(exceptions: configuration.handlerUsers)
        // The user database may be on another machine.
        let refusal = await withBlockingThread { policy.refusal(for: caller) }
        if let refusal { throw ControlRefusal(.forbidden, refusal) }
    }

    /// Cancels a session's tasks and forgets it.
    func removeSession(_ identifier: String, _ caller: Caller) async throws(ControlRefusal) {
        try await remove(try self.session(identifier, caller))
    }

    /// Cancels a session's tasks and forgets it.
    func remove(_ session: LiveSession) async throws(ControlRefusal) {
        let (id, user) = (session.record.id, session.record.user)
        sessions[id]?.isEnding = true
        let halted = scheduler.items.filter { $0.value.session == id }.map(\.key)
        for (index, task) in halted.enumerated() {
            forget(task)
            await halt(task)
            if index % Journal.stepCount == 0 { await Task.yield() }
        }
        do throws(DaemonError) {
            // In steps, between which others are answered.
            while true {
                let removed = try await journal.removeTasks(of: id)
                if removed.tasks.isEmpty { break }
                await discard(removed, of: user)
            }
            await discard(try await journal.removeSession(id), of: user)
        } catch {
            sessions[id]?.isEnding = false
            for task in halted { await readmit(task) }
            throw ControlRefusal(.storage, "\(error)")
        }
        distribute(SessionEvent(.invalidated, time: .now), id)
        // What came in between has no row any more.
        for (task, item) in scheduler.items where item.session == id {
            forget(task)
            live[task]?.switchOff.stop()
        }
        feed.end(id)
        sessions[id]?.launch?.stop()
        sessions[id] = nil
        turn()
    }

    /// Removes what tasks had that the journal does not know any more.
    private func discard(_ removed: Removed, of user: UInt32) async {
        let (store, logger) = (store, logger)
        // On a thread that may block: there may be a thousand files, in a directory of the user's.
        release(await withBlockingThread { store.discard(removed, of: user, logger) })
    }
}

extension Broker {
    /// Attaches a client to a session.
    ///
    /// - Throws: ``ControlRefusal`` with ``ControlRefusal/Code/conflict`` if another one is attached.
    func attach(
        _ identifier: String,
        after sequence: Int64?,
        launch: String?,
        _ caller: Caller
    ) async throws(ControlRefusal) -> Subscription {
        let session = try self.session(identifier, caller)
        let id = session.record.id
        guard !session.isEnding else {
            throw ControlRefusal.sessionEnds
        }
        guard !session.isAttached else {
            throw ControlRefusal(.conflict, "another process takes the events of this session in")
        }
        let subscription = Subscription(
            session: id,
            after: max(sequence ?? 0, session.record.acknowledged),
            launch: launch
        )
        sessions[id]?.isAttached = true
        feed.attach(subscription)
        if session.record.configuration.isTransient { handToClient(id) }
        if launch == nil { endWaits(of: id) }
        if launch == nil,
            session.record.relaunch.penalty > 0 || session.record.relaunch.failures > 0
        {
            sessions[id]?.record.relaunch.attachedByItself()
            await save(id)
        }
        return subscription
    }

    /// Ends what ``attach(_:after:launch:_:)`` began.
    func detach(_ subscription: Subscription) async {
        guard feed.detach(subscription) else { return }
        sessions[subscription.session]?.isAttached = false
        handToWorkers(subscription.session)
        await considerLaunch(subscription.session)
        await removeIfOver(subscription.session)
        setTimer()
    }

    /// What a client has not been told yet; empty if that is nothing.
    func read(_ subscription: Subscription) async throws(DaemonError) -> [SessionEvent] {
        // What passes was before what the journal is read of now, so it is told before.
        var events = subscription.takePassing()
        guard let session = sessions[subscription.session] else { return events }
        let cursor = subscription.cursor
        if cursor < session.record.last {
            let kept = try await journal.events(of: session.record.id, after: cursor, limit: 256)
            for event in kept { events.append(try await located(event, session.record.user)) }
            subscription.cursor = kept.last?.sequence ?? session.record.last
        }
        let current = sessions[subscription.session]
        let isDone = subscription.cursor >= current?.record.last ?? 0 && current?.unfinished == 0
        if subscription.mark(finished: isDone) {
            events.append(SessionEvent(.finishedEvents, time: .now))
        }
        return events
    }

    /// Adds where a finished download is, unless it was moved away already.
    private func located(
        _ event: SessionEvent,
        _ user: UInt32
    ) async throws(DaemonError) -> SessionEvent {
        guard event.kind == .completed, event.bytesReceived != nil, let task = event.task else {
            return event
        }
        var event = event
        let store = store
        do throws(FileError) {
            // On a thread that may block: the directory is the user's to make slow.
            let isStaged = try await withBlockingThread { () throws(FileError) in
                try store.isStaged(task, user: user)
            }
            if isStaged {
                event.location = store.location(of: task, user: user).string
            }
        } catch {
            throw .file(error)
        }
        return event
    }

    /// Takes note of what a client has taken in.
    func acknowledge(
        _ message: Acknowledgement,
        of identifier: String,
        _ caller: Caller
    ) async throws(ControlRefusal) {
        try RequestLimits.check(message)
        let session = try self.session(identifier, caller)
        let id = session.record.id
        guard message.sequence <= session.record.last else {
            throw ControlRefusal(
                .invalid,
                "the session has \(session.record.last) events, not \(message.sequence)"
            )
        }
        var relaunch: Relaunch?
        if let token = message.launch, token == session.record.relaunch.lease {
            sessions[id]?.record.relaunch.acknowledged(token)
            relaunch = sessions[id]?.record.relaunch
        }
        var sequence = session.record.acknowledged
        do throws(DaemonError) {
            // In steps, between which others are answered.
            repeat {
                sequence = min(message.sequence, sequence + Int64(Journal.stepCount))
                let isLast = sequence == message.sequence
                let removed = try await journal.acknowledge(
                    sequence,
                    of: id,
                    isLast ? relaunch : nil
                )
                sessions[id]?.acknowledged(sequence)
                await discard(removed, of: session.record.user)
            } while sequence < message.sequence
        } catch {
            throw ControlRefusal(.storage, "\(error)")
        }
    }

    /// Gives a launched handler more time.
    func extend(_ identifier: String, _ caller: Caller) throws(ControlRefusal) {
        let session = try self.session(identifier, caller)
        guard let launch = session.launch else {
            throw ControlRefusal(.conflict, "no handler of this session was started")
        }
        launch.extend(by: configuration.launchLease)
    }
}

extension Broker {
    /// Whether a session has something to tell that a handler would be started for.
    func hasNews(_ session: LiveSession) -> Bool {
        let isPending = session.record.acknowledged < session.record.last
        return isPending && (session.unfinished == 0 || session.isChallenged)
    }

    /// Whether a session's handler would be started, were it not for the delay.
    func mayLaunch(_ session: LiveSession) -> Bool {
        let configuration = session.record.configuration
        return !session.isAttached && session.launch == nil
            && configuration.sendsLaunchEvents && configuration.handler != nil
            && !session.record.relaunch.isExhausted(Relaunch.Policy()) && hasNews(session)
    }

    /// Starts a session's handler, if that is called for now (P7, P10).
    func considerLaunch(_ id: Int64) async {
        // A daemon that ends starts nothing: what it has not told, the next one tells.
        guard !Task.isCancelled, let session = sessions[id], !session.isAttached,
            session.launch == nil, hasNews(session), mayStartHandler(of: session.record.user),
            session.record.configuration.sendsLaunchEvents,
            let handler = session.record.configuration.handler
        else { return }
        let token = UUID().uuidString.lowercased()
        let decision = sessions[id]?.record.relaunch.decide(
            token: token,
            version: handler.version,
            boot: "\(boot)",
            policy: Relaunch.Policy(delay: configuration.relaunchDelay),
            at: .now
        )
        guard decision == .launch else {
            setTimer()
            return
        }
        let launch = Launch(
            session: id,
            identifier: session.record.identifier,
            user: session.record.user,
            rights: session.record.rights,
            handler: handler,
            token: token,
            lease: configuration.launchLease
        )
        sessions[id]?.launch = launch
        guard await save(id) else {
            // Not before it is on disk: it is tried again.
            sessions[id]?.launch = nil
            sessions[id]?.record.relaunch = session.record.relaunch
            holdForSpace()
            setTimer()
            return
        }
        send(launch)
    }

    /// Whether another handler of a user may run now; the others wait for one to end.
    private func mayStartHandler(of user: UInt32) -> Bool {
        let users = sessions.values.filter { $0.launch != nil }.map(\.record.user)
        return users.count < Self.mostHandlers
            && users.count(where: { $0 == user }) < Self.mostHandlersPerUser
    }

    /// The most handlers that run at once.
    private static let mostHandlers = 32
    /// The most handlers of one user that run at once.
    private static let mostHandlersPerUser = 4

    /// Takes note that a handler has ended.
    func ended(_ launch: Launch) async {
        // Ended with the daemon: the next one counts it.
        guard !Task.isCancelled else { return }
        guard let session = sessions[launch.session], session.launch === launch else { return }
        sessions[launch.session]?.launch = nil
        let isDone = session.record.acknowledged >= session.record.last
        sessions[launch.session]?.record.relaunch.ended(launch.token, wasAcknowledged: isDone)
        await save(launch.session)
        if !isDone {
            logger.warning(
                "A handler ended without acknowledging the events of its session",
                metadata: ["session.identifier": "\(session.record.identifier)"]
            )
        }
        await considerLaunch(launch.session)
        // Others may have waited for this one.
        for id in sessions.keys.sorted() where sessions[id].map(mayLaunch) ?? false {
            await considerLaunch(id)
        }
        setTimer()
    }

    /// Writes down what is known of launches, and returns whether that is on disk.
    @discardableResult
    private func save(_ id: Int64) async -> Bool {
        guard let relaunch = sessions[id]?.record.relaunch else { return false }
        do throws(DaemonError) {
            try await journal.update(relaunch, of: id)
            return true
        } catch {
            logger.error("A launch was not recorded", metadata: ["error": "\(error)"])
            return false
        }
    }
}
