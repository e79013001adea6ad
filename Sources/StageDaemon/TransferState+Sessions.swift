import FoundationEssentials
import StageControl
import StageModel

/// Sessions and attached clients.
extension TransferState {
    /// Session that is being written to the journal.
    struct SessionReservation: Equatable {
        var user: UInt32
        /// Bytes of the session's identifier.
        var identifier: [UInt8]
        var isTransient: Bool
    }

    /// Returns a session that the client may use: of the client's own user, or of the user that the request names.
    ///
    /// An identifier alone never selects another user's session: that user would receive the client's files and
    /// header fields.
    func session(
        _ identifier: String,
        for client: ClientCredentials
    ) throws(ControlRefusal) -> Session {
        let owner = client.owner ?? client.user
        let found = sessions.values.first {
            $0.record.user == owner && $0.record.identifier.hasSameBytes(as: identifier)
        }
        guard let found, client.mayUse(found.record) else {
            throw ControlRefusal(
                .notFound,
                message: "user \(owner) has no session '\(identifier.prefix(256))' that you may use"
            )
        }
        return found
    }

    /// Returns the sessions that are visible to the client, in order of creation.
    func sessions(for client: ClientCredentials) -> [Session] {
        sessions.values.filter { client.sees($0.record) }.sorted { $0.record.id < $1.record.id }
    }

    /// Reserves a session that is about to be written to the journal.
    ///
    /// - Throws: ``ControlRefusal`` if there are too many sessions, or the configuration is not permitted.
    mutating func reserveSession(
        _ identifier: String,
        configuration wanted: SessionConfiguration,
        of user: UInt32
    ) throws(ControlRefusal) -> SessionReservation {
        let own = sessions.values.filter { $0.record.user == user }
        let known = own.first { $0.record.identifier.hasSameBytes(as: identifier) }
        let reserved = reservations.filter { $0.user == user }
        let same = reserved.first { $0.identifier.elementsEqual(identifier.utf8) }
        let isTransient = known?.record.configuration.isTransient ?? same?.isTransient
        guard isTransient ?? wanted.isTransient == wanted.isTransient else {
            throw ControlRefusal(.invalid, message: "'isTransient' of a session cannot be changed")
        }
        if let known, known.isEnding { throw ControlRefusal.sessionEnds }
        if isTransient == nil {
            guard own.count + reserved.count < RequestLimits.sessionsPerUser else {
                throw ControlRefusal(
                    .quota,
                    message:
                        "one user may have \(RequestLimits.sessionsPerUser) sessions: remove some"
                )
            }
            guard sessions.count + reservations.count < RequestLimits.sessions else {
                throw ControlRefusal(
                    .unavailable,
                    message: "all users together have too many sessions"
                )
            }
        }
        let reservation = SessionReservation(
            user: user,
            identifier: Array(identifier.utf8),
            isTransient: wanted.isTransient
        )
        if known == nil { reservations.append(reservation) }
        return reservation
    }

    /// Ends a reservation; adds or updates the session if it was written to the journal.
    mutating func endReservation(_ reservation: SessionReservation, record: SessionRecord?) {
        if let index = reservations.firstIndex(of: reservation) { reservations.remove(at: index) }
        guard let record else { return }
        if sessions[record.id] == nil {
            sessions[record.id] = Session(record: record)
        } else {
            // The launch state in memory may be newer than that in the journal.
            sessions[record.id]?.record.configuration = record.configuration
            sessions[record.id]?.record.rights = record.rights
            sessions[record.id]?.record.group = record.group
        }
    }

    /// Starts the removal of a session.
    ///
    /// - Returns: The unfinished tasks of the session, which the caller forgets after their attempts have ended.
    mutating func beginRemoval(of id: Int64) -> [Int64] {
        sessions[id]?.isEnding = true
        return Array(scheduler.transfers[id] ?? [])
            + ending.filter { $0.value == id }.map(\.key)
    }

    /// Keeps a session that could not be removed.
    mutating func abandonRemoval(of id: Int64, at now: Date) {
        sessions[id]?.isEnding = false
        endReplacement(of: id, at: now)
    }

    /// Forgets a session that was removed from the journal.
    ///
    /// - Returns: Effects that stop attempts of tasks created during the removal.
    mutating func removed(_ id: Int64, at now: Date) -> [Effect] {
        var effects: [Effect] = []
        for task in scheduler.transfers[id] ?? [] {
            if attempts.contains(task) { effects.append(.stop(task)) }
            forget(task, at: now)
        }
        for (task, session) in ending where session == id { forget(task, at: now) }
        sessions[id] = nil
        endReplacement(of: id, at: now)
        return effects
    }

    /// Attaches a client to a session; `launch` is the token of the launch that started the client.
    ///
    /// - Returns: The session, and whether its launch state has to be recorded.
    mutating func attach(
        _ identifier: String,
        launch: String?,
        for client: ClientCredentials,
        at now: Date
    ) throws(ControlRefusal) -> (session: Session, hasLaunchChange: Bool) {
        let session = try self.session(identifier, for: client)
        let id = session.record.id
        guard !session.isEnding else { throw ControlRefusal.sessionEnds }
        guard !session.isAttached else {
            throw ControlRefusal(.conflict, message: "another process is attached to this session")
        }
        sessions[id]?.isAttached = true
        if session.record.configuration.isTransient {
            for task in scheduler.transfers[id] ?? [] { assign(task, at: now) }
        }
        guard launch == nil else { return (session, false) }
        endWaits(of: id, at: now)
        let launchLimiter = session.record.launchLimiter
        guard launchLimiter.penalty > 0 || launchLimiter.failures > 0 else {
            return (session, false)
        }
        sessions[id]?.record.launchLimiter.attachedByItself()
        return (session, true)
    }

    /// Detaches the client of a session.
    mutating func detach(_ id: Int64, at now: Date) -> [Effect] {
        sessions[id]?.isAttached = false
        return handToWorkers(id, at: now)
    }

    /// Checks an acknowledgement; it completes the launch whose token it contains.
    ///
    /// - Returns: The session, and whether its launch state has to be recorded.
    mutating func acknowledge(
        _ message: Acknowledgement,
        of identifier: String,
        for client: ClientCredentials
    ) throws(ControlRefusal) -> (session: SessionRecord, hasLaunchChange: Bool) {
        let session = try self.session(identifier, for: client).record
        guard message.sequence <= session.last else {
            throw ControlRefusal(
                .invalid,
                message:
                    "the session has \(session.last.quantity(of: "event")), but 'sequence' is \(message.sequence)"
            )
        }
        guard let token = message.launch, token == session.launchLimiter.activeToken else {
            return (session, false)
        }
        sessions[session.id]?.record.launchLimiter.acknowledged(token)
        return (session, true)
    }
}

extension TransferState.Session {
    /// Notes a durable event.
    mutating func note(_ event: SessionEvent) {
        record.last = max(record.last, event.sequence ?? 0)
    }

    /// Notes an acknowledgement that was recorded.
    mutating func acknowledged(_ sequence: Int64) {
        record.acknowledged = max(record.acknowledged, sequence)
    }

    /// Returns the session's status.
    ///
    /// Header fields and the handler's environment are hidden from other users.
    func status(for client: ClientCredentials) -> SessionStatus {
        var configuration = record.configuration
        if client.user != record.user {
            configuration.headers = configuration.headers.mapValues { _ in
                TransferTask.hiddenValue
            }
            configuration.handler?.environment?.removeAll()
        }
        var status = SessionStatus(
            identifier: record.identifier,
            user: record.user,
            configuration: configuration
        )
        status.number = record.id
        status.unfinishedTasks = unfinished
        status.lastEvent = record.last
        status.acknowledgedEvent = record.acknowledged
        status.isAttached = isAttached
        status.launchPenalty = record.launchLimiter.penalty
        status.failedLaunches = record.launchLimiter.failures
        return status
    }
}

extension ControlRefusal {
    /// Refusal of a request to a session that is being removed.
    static let sessionEnds = ControlRefusal(.conflict, message: "the session is being removed")
}
