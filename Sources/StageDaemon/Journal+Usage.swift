import Foundation
import GRDB
import StageControl
import StageModel

/// The bytes of the journal that each user has, counted by SQLite itself, in the transaction that writes
/// them, so that whatever is written, by whichever call, is in the sum.
extension Journal {
    /// A page of what is read: tasks, or events.
    static let pageCount = 128
    /// The bytes of a page, after which it ends.
    static let pageBytes = 128 << 10

    /// The bytes of a column.
    static func size(_ value: Data?) -> Int { value?.count ?? 0 }

    /// The index by which the tasks of a session are listed in their order, and the sums by user.
    ///
    /// Triggers keep the sums from the first row on. A row counts with 256 bytes for its other columns and
    /// indexes.
    static var usageSchema: String {
        """
        CREATE INDEX task_of_session ON task (session);
        CREATE TABLE usage (user INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
        \(counting("session", task: false))
        \(counting("task", task: true))
        \(counting("event", task: true))
        \(counting("remnant", task: false))
        """
    }

    /// The triggers that count the resources of uploads with their tasks.
    static var uploadUsageSchema: String {
        """
        DROP TRIGGER session_inserted; DROP TRIGGER session_updated; DROP TRIGGER session_deleted;
        DROP TRIGGER task_inserted; DROP TRIGGER task_updated; DROP TRIGGER task_deleted;
        \(counting("session", task: false, hasUploads: true))
        \(counting("task", task: true, hasUploads: true))
        """
    }

    /// The bytes of a row, as SQL; the first tables had no resources of uploads.
    private static func bytes(
        of table: String,
        in row: String,
        hasUploads: Bool
    ) -> String {
        let columns =
            switch table {
            case "session": ["identifier", "rights", "configuration", "relaunch"]
            case "task":
                ["token", "host", "part", "file", "request", "outcome"]
                    + (hasUploads ? ["upload"] : [])
            case "event": ["body"]
            default: ["token", "part", "url"]
            }
        let sizes = columns.map { "coalesce(length(CAST(\(row).\($0) AS BLOB)), 0)" }
        return "(256 + \(sizes.joined(separator: " + ")))"
    }

    /// Triggers that count the rows of a table; those of tasks and events are their session's user's.
    private static func counting(
        _ table: String,
        task: Bool,
        hasUploads: Bool = false
    ) -> String {
        func bytes(of table: String, _ row: String) -> String {
            Self.bytes(of: table, in: row, hasUploads: hasUploads)
        }
        func user(_ row: String) -> String {
            task ? "(SELECT user FROM session WHERE id = \(row).session)" : "\(row).user"
        }
        let (old, new) = (bytes(of: table, "OLD"), bytes(of: table, "NEW"))
        // The rows of a session that is deleted go after it, when their user is not known any more.
        let further =
            table == "session"
            ? """
             - coalesce((SELECT sum(\(bytes(of: "task", "task"))) FROM task
                WHERE session = OLD.id), 0)
             - coalesce((SELECT sum(\(bytes(of: "event", "event"))) FROM event
                WHERE session = OLD.id), 0)
            """ : ""
        return """
            CREATE TRIGGER \(table)_inserted AFTER INSERT ON \(table) BEGIN
                INSERT INTO usage VALUES (\(user("NEW")), \(new))
                ON CONFLICT (user) DO UPDATE SET bytes = bytes + excluded.bytes;
            END;
            CREATE TRIGGER \(table)_updated AFTER UPDATE ON \(table) BEGIN
                UPDATE usage SET bytes = bytes + \(new) - \(old) WHERE user = \(user("NEW"));
            END;
            CREATE TRIGGER \(table)_deleted BEFORE DELETE ON \(table) BEGIN
                UPDATE usage SET bytes = bytes - \(old)\(further) WHERE user = \(user("OLD"));
            END;
            """
    }

    /// The user of each partial download and copy.
    func partOwners() async throws(DaemonError) -> [String: UInt32] {
        try await read { database in
            let rows = try Row.fetchCursor(
                database,
                sql: """
                    SELECT part, user FROM task JOIN session ON session.id = task.session
                    WHERE state < ? UNION SELECT part, user FROM remnant
                    """,
                arguments: [StoredState.ended]
            )
            var owners: [String: UInt32] = [:]
            while let row = try rows.next() { owners[row["part"]] = row["user"] }
            return owners
        }
    }

    /// The tasks of each user that have ended and were not acknowledged.
    func finishedTasks() async throws(DaemonError) -> [UInt32: [Int64]] {
        try await read { database in
            let rows = try Row.fetchCursor(
                database,
                sql: """
                    SELECT user, task.id AS id FROM task JOIN session ON session.id = task.session
                    WHERE state = ?
                    """,
                arguments: [StoredState.ended]
            )
            var tasks: [UInt32: [Int64]] = [:]
            while let row = try rows.next() { tasks[row["user"], default: []].append(row["id"]) }
            return tasks
        }
    }

    /// The bytes that a user has.
    func usage(of user: UInt32) async throws(DaemonError) -> Int64 {
        try await read { try Self.usage(of: user, $0) }
    }

    static func usage(of user: UInt32, _ database: Database) throws -> Int64 {
        let statement = try database.cachedStatement(
            sql: "SELECT bytes FROM usage WHERE user = ?"
        )
        return try Int64.fetchOne(statement, arguments: [user]) ?? 0
    }

    /// Writes what a client wishes for the session of a user, unless that user then had more than `limit`
    /// bytes, and more than before; what this throws undoes it.
    static func write<Value>(
        for user: UInt32,
        limit: Int64,
        _ database: Database,
        _ body: () throws -> Value
    ) throws -> Value {
        let before = try usage(of: user, database)
        let value = try body()
        let after = try usage(of: user, database)
        guard after <= max(limit, before) else {
            throw ControlRefusal(
                .quota,
                "your sessions, tasks and events may have \(limit.quantity(of: "byte")) in the daemon's journal: "
                    + "acknowledge events, or remove sessions"
            )
        }
        return value
    }

    static func user(of session: Int64, _ database: Database) throws -> UInt32 {
        let statement = try database.cachedStatement(sql: "SELECT user FROM session WHERE id = ?")
        return try UInt32.fetchOne(statement, arguments: [session]) ?? 0
    }
}
