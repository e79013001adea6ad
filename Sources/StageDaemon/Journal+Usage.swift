import Foundation
import GRDB
import StageControl
import StageModel
import StageSystem
import SystemPackage

/// Bytes of each user in the journal. SQLite triggers maintain the sums within every transaction.
extension Journal {
    /// Maximum number of tasks or events in a page.
    static let pageCount = 128
    /// Number of bytes of stored tasks or events after which a page ends.
    static let pageBytes = 128 << 10

    /// Returns the bytes of a column's value.
    static func size(_ value: Data?) -> Int { value?.count ?? 0 }

    /// Index for listing the tasks of a session, and sums by user with their triggers.
    ///
    /// Each row counts 256 bytes extra, for its other columns and indexes.
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

    /// Returns an SQL expression for the bytes of a row.
    private static func bytes(of table: String, in row: String) -> String {
        let columns =
            switch table {
            case "session": ["identifier", "rights", "configuration", "relaunch"]
            case "task": ["token", "host", "part", "file", "request", "outcome", "upload"]
            case "event": ["body"]
            default: ["token", "part", "url"]
            }
        let sizes = columns.map { "coalesce(length(CAST(\(row).\($0) AS BLOB)), 0)" }
        return "(256 + \(sizes.joined(separator: " + ")))"
    }

    /// Returns the triggers that count the rows of a table.
    ///
    /// Tasks and events count for the user of their session.
    private static func counting(_ table: String, task: Bool) -> String {
        func user(_ row: String) -> String {
            task ? "(SELECT user FROM session WHERE id = \(row).session)" : "\(row).user"
        }
        let (old, new) = (bytes(of: table, in: "OLD"), bytes(of: table, in: "NEW"))
        // Deleting a session cascades to its tasks and events, whose user can no longer be looked up then.
        let further =
            table == "session"
            ? """
             - coalesce((SELECT sum(\(bytes(of: "task", in: "task"))) FROM task
                WHERE session = OLD.id), 0)
             - coalesce((SELECT sum(\(bytes(of: "event", in: "event"))) FROM event
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

    /// User of a part file or upload copy, and its task unless it is kept for another one.
    struct PartOwner: Sendable {
        var user: UInt32
        var task: Int64?
    }

    /// Returns the owner of each part file and upload copy.
    func partOwners() async throws(DaemonError) -> [String: PartOwner] {
        try await read { database in
            let rows = try Row.fetchCursor(
                database,
                sql: """
                    SELECT part, user, task.id AS id FROM task JOIN session ON session.id = task.session
                    WHERE state < ? UNION SELECT part, user, NULL FROM remnant
                    """,
                arguments: [StoredState.ended]
            )
            var owners: [String: PartOwner] = [:]
            while let row = try rows.next() {
                owners[row["part"]] = PartOwner(user: row["user"], task: row["id"])
            }
            return owners
        }
    }

    /// Returns each user's finished tasks that are not acknowledged yet.
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

    /// Returns the size of the journal's files, as far as they can be read.
    func size() async -> ByteCount {
        let path = path
        return await withBlockingThread {
            ["", "-wal"].reduce(ByteCount.zero) { sum, suffix in
                // The log of changes may be missing.
                let size = try? File.open(reading: FilePath(path + suffix)).status().size
                return sum + ByteCount(size ?? 0)
            }
        }
    }

    /// Returns the bytes of a user in the journal.
    func usage(of user: UInt32) async throws(DaemonError) -> Int64 {
        try await read { try Self.usage(of: user, in: $0) }
    }

    static func usage(of user: UInt32, in database: Database) throws -> Int64 {
        let statement = try database.cachedStatement(
            sql: "SELECT bytes FROM usage WHERE user = ?"
        )
        return try Int64.fetchOne(statement, arguments: [user]) ?? 0
    }

    /// Runs `body`, and throws if it increases the user's bytes above `limit`, which makes the caller roll back.
    static func write<Value>(
        for user: UInt32,
        limit: Int64,
        in database: Database,
        _ body: () throws -> Value
    ) throws -> Value {
        let before = try usage(of: user, in: database)
        let value = try body()
        let after = try usage(of: user, in: database)
        guard after <= max(limit, before) else {
            throw ControlRefusal(
                .quota,
                message:
                    "your sessions, tasks and events may use \(limit.quantity(of: "byte")) in the daemon's journal: "
                    + "acknowledge events, or remove sessions"
            )
        }
        return value
    }

    /// Returns the user of a session.
    ///
    /// - Throws: ``ControlRefusal`` if the session was removed.
    static func user(of session: Int64, in database: Database) throws -> UInt32 {
        let statement = try database.cachedStatement(sql: "SELECT user FROM session WHERE id = ?")
        guard let user = try UInt32.fetchOne(statement, arguments: [session]) else {
            throw ControlRefusal.sessionEnds
        }
        return user
    }
}
