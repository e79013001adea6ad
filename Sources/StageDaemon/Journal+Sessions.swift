import Foundation
import GRDB
import StageControl
import StageSystem

extension Journal {
    /// Returns all sessions.
    func sessions() async throws(DaemonError) -> [SessionRecord] {
        try await read { try SessionRecord.order(SessionRecord.Columns.id).fetchAll($0) }
    }

    /// Creates a session, or changes the configuration of an existing one.
    ///
    /// Refused if the user's part of the journal would exceed `limit` bytes.
    func makeSession(
        _ identifier: String,
        of owner: UserIdentity,
        configuration: SessionConfiguration,
        limit: Int64
    ) async throws(DaemonError) -> SessionRecord {
        let user = owner.user
        let rights = SessionRights(group: owner.group, groups: owner.groups)
        return try await write { database in
            try Self.write(for: user, limit: limit, in: database) {
                let record = try SessionRecord.fetchOne(
                    database,
                    sql: """
                        INSERT INTO session (user, identifier, rights, configuration, relaunch)
                        VALUES (?, ?, ?, ?, ?)
                        ON CONFLICT (user, identifier) DO UPDATE
                        SET rights = excluded.rights, configuration = excluded.configuration
                        RETURNING *
                        """,
                    arguments: [
                        user, identifier, try StoredForm.encode(rights),
                        try StoredForm.encode(configuration),
                        try StoredForm.encode(LaunchLimiter()),
                    ]
                )
                guard let record else { throw DatabaseError(resultCode: .SQLITE_INTERNAL) }
                return record
            }
        }
    }

    /// Removes a session with its tasks and events; returns the tasks and their unused files.
    func removeSession(_ id: Int64) async throws(DaemonError) -> RemovedTasks {
        try await write { database in
            let tasks = try TaskFiles.filter(TaskRecord.Columns.session == id).fetchAll(database)
            try SessionRecord.deleteOne(database, key: id)
            return try RemovedTasks(tasks, in: database)
        }
    }

    /// Removes the first ``batchSize`` tasks of a session, with their events, and returns them with their unused
    /// files.
    ///
    /// Removes nothing once no more than ``batchSize`` are left; ``removeSession(_:)`` removes those. After a crash,
    /// a small session exists completely or not at all, and a large one may have its last tasks.
    func removeTasks(of session: Int64) async throws(DaemonError) -> RemovedTasks {
        try await write { database in
            let all = TaskFiles.filter(TaskRecord.Columns.session == session)
            guard try all.limit(1, offset: Self.batchSize).fetchOne(database) != nil else {
                return RemovedTasks(tasks: [], parts: [])
            }
            let first = all.order(TaskRecord.Columns.id).limit(Self.batchSize)
            let removed =
                try TaskFiles
                .filter(first.select(TaskRecord.Columns.id).contains(TaskRecord.Columns.id))
                .deleteAndFetchAll(database)
            if let last = removed.map(\.id).max() {
                try EventRecord.filter(EventRecord.Columns.session == session)
                    .filter(EventRecord.Columns.task <= last)
                    .deleteAll(database)
            }
            return try RemovedTasks(removed, in: database)
        }
    }

    /// Deletes the unfinished stagings of sessions, which have no files; returns how many they were, by session.
    ///
    /// A transient session has few (``RequestLimits/stagings``).
    static func deleteStagings(
        of sessions: [Int64],
        in database: Database
    ) throws -> [Int64: Int] {
        typealias Columns = TaskRecord.Columns
        var counts: [Int64: Int] = [:]
        for session in sessions {
            counts[session] =
                try TaskRecord
                .filter(Columns.session == session && Columns.host == Scheduler.workerHost)
                .filter(Columns.state < StoredState.ended)
                .deleteAll(database)
        }
        return counts
    }

    /// Maximum number of tasks or events that one transaction removes, since other requests wait for it.
    static let batchSize = 1000

    /// Updates the launch state of a session's handler.
    func update(_ launchLimiter: LaunchLimiter, of session: Int64) async throws(DaemonError) {
        try await write { database in
            try SessionRecord.filter(key: session)
                .updateAll(
                    database,
                    SessionRecord.Columns.launchLimiter.set(
                        to: try StoredForm.encode(launchLimiter)
                    )
                )
        }
    }

    /// Returns a page of a session's durable events after a sequence number, in order.
    func events(
        of session: Int64,
        after sequence: Int64,
        limit: Int
    ) async throws(DaemonError) -> [SessionEvent] {
        try await read { database in
            let records = try EventRecord.filter(EventRecord.Columns.session == session)
                .filter(EventRecord.Columns.sequence > sequence)
                .order(EventRecord.Columns.sequence)
                .limit(limit)
                .fetchCursor(database)
            var events: [SessionEvent] = []
            var bytes = 0
            while bytes < Self.pageBytes, let record = try records.next() {
                events.append(record.event)
                bytes += record.body.count
            }
            return events
        }
    }

    /// Records that a client has acknowledged all events up to a sequence number.
    ///
    /// Removes these events and the tasks that they ended.
    func acknowledge(
        _ sequence: Int64,
        of session: Int64,
        launchLimiter: LaunchLimiter?
    ) async throws(DaemonError) -> RemovedTasks {
        try await write { database in
            try database.execute(
                sql: "UPDATE session SET acknowledged = max(acknowledged, ?) WHERE id = ?",
                arguments: [sequence, session]
            )
            if let launchLimiter {
                try SessionRecord.filter(key: session)
                    .updateAll(
                        database,
                        SessionRecord.Columns.launchLimiter.set(
                            to: try StoredForm.encode(launchLimiter)
                        )
                    )
            }
            let events = EventRecord.filter(EventRecord.Columns.session == session)
                .filter(EventRecord.Columns.sequence <= sequence)
            let ends = events.filter(EventRecord.Columns.final).select(EventRecord.Columns.task)
            let tasks = try TaskFiles.filter(TaskRecord.Columns.state == StoredState.ended)
                .filter(ends.contains(TaskRecord.Columns.id))
                .deleteAndFetchAll(database)
            try events.deleteAll(database)
            return try RemovedTasks(tasks, in: database)
        }
    }
}
