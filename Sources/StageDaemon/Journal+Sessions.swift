import Foundation
import GRDB
import StageControl
import StageSystem

extension Journal {
    /// All sessions.
    func sessions() async throws(DaemonError) -> [SessionRecord] {
        try await read { database in
            try Row.fetchAll(database, sql: "SELECT * FROM session ORDER BY id")
                .map(SessionRecord.init)
        }
    }

    /// Makes a session, or gives one another configuration, unless its user then had more than `limit`
    /// bytes.
    func makeSession(
        _ identifier: String,
        of owner: UserIdentity,
        _ configuration: SessionConfiguration,
        limit: Int64
    ) async throws(DaemonError) -> SessionRecord {
        let user = owner.user
        let rights = SessionRights(group: owner.group, groups: owner.groups)
        return try await write { database in
            try Self.write(for: user, limit: limit, database) {
                try database.execute(
                    sql: """
                        INSERT INTO session (user, identifier, rights, configuration, relaunch)
                        VALUES (?, ?, ?, ?, ?)
                        ON CONFLICT (user, identifier) DO UPDATE
                        SET rights = excluded.rights, configuration = excluded.configuration
                        """,
                    arguments: [
                        user, identifier, try ControlFormat.encode(rights),
                        try ControlFormat.encode(configuration),
                        try ControlFormat.encode(Relaunch()),
                    ]
                )
                guard
                    let row = try Row.fetchOne(
                        database,
                        sql: "SELECT * FROM session WHERE user = ? AND identifier = ?",
                        arguments: [user, identifier]
                    )
                else { throw DatabaseError(resultCode: .SQLITE_INTERNAL) }
                return SessionRecord(row)
            }
        }
    }

    /// Forgets a session with its tasks and events, and returns what its tasks had.
    func removeSession(_ id: Int64) async throws(DaemonError) -> Removed {
        try await write { database in
            let rows = try Row.fetchAll(
                database,
                sql: "SELECT id, part FROM task WHERE session = ?",
                arguments: [id]
            )
            try database.execute(sql: "DELETE FROM session WHERE id = ?", arguments: [id])
            return try Removed(rows, in: database)
        }
    }

    /// Forgets the first tasks of a session that has more than ``stepCount``, that many with their events,
    /// and returns what they had; nothing once no more are left, which are forgotten with their session.
    ///
    /// After a crash a smaller session is still wholly there, or not at all; of a larger one the last tasks
    /// may be there.
    func removeTasks(of session: Int64) async throws(DaemonError) -> Removed {
        try await write { database in
            let more = try Int64.fetchOne(
                database,
                sql: "SELECT id FROM task WHERE session = ? LIMIT 1 OFFSET \(Self.stepCount)",
                arguments: [session]
            )
            guard more != nil else { return Removed(tasks: [], parts: []) }
            let rows = try Row.fetchAll(
                database,
                sql: """
                    DELETE FROM task WHERE id IN
                        (SELECT id FROM task WHERE session = ? ORDER BY id LIMIT \(Self.stepCount))
                    RETURNING id, part
                    """,
                arguments: [session]
            )
            let tasks: [Int64] = rows.map { $0["id"] }
            if let last = tasks.max() {
                try database.execute(
                    sql: "DELETE FROM event WHERE session = ? AND task <= ?",
                    arguments: [session, last]
                )
            }
            return try Removed(rows, in: database)
        }
    }

    /// The most tasks or events that one request forgets at once: other requests wait for so long.
    static let stepCount = 1000

    /// Writes down what is known of launches of a session's handler (P7, P10).
    func update(_ relaunch: Relaunch, of session: Int64) async throws(DaemonError) {
        try await write { database in
            try database.execute(
                sql: "UPDATE session SET relaunch = ? WHERE id = ?",
                arguments: [try ControlFormat.encode(relaunch), session]
            )
        }
    }

    /// The durable events of a session after a number, in order: as many as a page holds.
    func events(
        of session: Int64,
        after sequence: Int64,
        limit: Int
    ) async throws(DaemonError) -> [SessionEvent] {
        try await read { database in
            let rows = try Row.fetchCursor(
                database,
                sql: """
                    SELECT sequence, task, body FROM event WHERE session = ? AND sequence > ?
                    ORDER BY sequence LIMIT ?
                    """,
                arguments: [session, sequence, limit]
            )
            var events: [SessionEvent] = []
            var bytes = 0
            while bytes < Self.pageBytes, let row = try rows.next() {
                events.append(SessionEvent(row))
                bytes += Self.size(row["body"])
            }
            return events
        }
    }

    /// Takes note that a client has taken in all events up to a number, and forgets these with the
    /// tasks that they ended (P9).
    func acknowledge(
        _ sequence: Int64,
        of session: Int64,
        _ relaunch: Relaunch?
    ) async throws(DaemonError) -> Removed {
        try await write { database in
            try database.execute(
                sql: "UPDATE session SET acknowledged = max(acknowledged, ?) WHERE id = ?",
                arguments: [sequence, session]
            )
            if let relaunch {
                try database.execute(
                    sql: "UPDATE session SET relaunch = ? WHERE id = ?",
                    arguments: [try ControlFormat.encode(relaunch), session]
                )
            }
            let rows = try Row.fetchAll(
                database,
                sql: """
                    DELETE FROM task WHERE state = 2 AND id IN
                        (SELECT task FROM event WHERE session = ? AND sequence <= ? AND final)
                    RETURNING id, part
                    """,
                arguments: [session, sequence]
            )
            try database.execute(
                sql: "DELETE FROM event WHERE session = ? AND sequence <= ?",
                arguments: [session, sequence]
            )
            return try Removed(rows, in: database)
        }
    }
}

extension SessionEvent {
    /// Reads a row; one that is damaged tells that its task was lost, so that those after it are told.
    init(_ row: Row) {
        if let event = row.json(SessionEvent.self, "body") {
            self = event
        } else {
            self.init(.failed, time: .now)
            sequence = row["sequence"]
            task = row["task"]
            failure = FullTask.loss
        }
    }
}
