import Foundation
import GRDB
import StageControl
import SystemPackage

extension Journal {
    /// Makes tasks, all or none, and returns their records in order (P1).
    ///
    /// A token that the session has already stands for the task that has it. Nothing is made that its
    /// user would have more than `limit` bytes with.
    func create(
        _ tasks: [NewTask],
        in session: Int64,
        by creator: UInt32,
        created: Date,
        limit: Int64
    ) async throws(DaemonError) -> [(record: TaskRecord, isNew: Bool)] {
        let floor = floor
        return try await write { database in
            let find = try database.cachedStatement(
                sql: "SELECT \(TaskRecord.columns) FROM task WHERE session = ? AND token = ?"
            )
            let user = try Self.user(of: session, database)
            return try Self.write(for: user, limit: limit, database) {
                var first = try Self.lastNumber(database) < floor ? floor + 1 : nil
                return try tasks.map { task in
                    let known = try Row.fetchOne(find, arguments: [session, task.request.token])
                    if let row = known {
                        return (TaskRecord(row), false)
                    }
                    // The numbers after it follow by themselves.
                    defer { first = nil }
                    return (
                        try Self.insert(task, first, session, creator, created, database), true
                    )
                }
            }
        }
    }

    /// Makes a task, of the number `id` or of the next one.
    private static func insert(
        _ task: NewTask,
        _ id: Int64?,
        _ session: Int64,
        _ creator: UInt32,
        _ created: Date,
        _ database: Database
    ) throws -> TaskRecord {
        let statement = try database.cachedStatement(
            sql: """
                INSERT INTO task (id, session, creator, token, state, host, priority, needs, blocks, earliest,
                    created, deadline, part, request)
                VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                """
        )
        try statement.execute(arguments: [
            id, session, creator, task.request.token, task.host, task.priority, task.needs.rawValue,
            task.blocks.rawValue, task.earliest?.timeIntervalSince1970,
            created.timeIntervalSince1970, task.deadline.timeIntervalSince1970, task.part ?? "",
            try ControlFormat.encode(task.request),
        ])
        let id = database.lastInsertedRowID
        let part = task.part ?? "task-\(id)"
        if task.part == nil {
            try database.cachedStatement(sql: "UPDATE task SET part = ? WHERE id = ?")
                .execute(arguments: [part, id])
        }
        if let remnant = task.remnant {
            try database.execute(sql: "DELETE FROM remnant WHERE token = ?", arguments: [remnant])
            // Two that go on with one file would write into it both.
            guard database.changesCount == 1 else {
                throw ControlRefusal(.invalid, "the resume token is used up")
            }
        }
        guard
            let row = try Row.fetchOne(
                try database.cachedStatement(
                    sql: "SELECT \(TaskRecord.columns) FROM task WHERE id = ?"
                ),
                arguments: [id]
            )
        else { throw DatabaseError(resultCode: .SQLITE_INTERNAL) }
        return TaskRecord(row)
    }

    /// Those of the tokens that a session's tasks have.
    func known(_ tokens: [String], in session: Int64) async throws(DaemonError) -> Set<String> {
        try await read { database in
            let statement = try database.cachedStatement(
                sql: "SELECT token FROM task WHERE session = ? AND token = ?"
            )
            return Set(
                try tokens.compactMap { token in
                    try String.fetchOne(statement, arguments: [session, token])
                }
            )
        }
    }

    /// All tasks that have not ended, and those whose content waits for its place.
    func openTasks() async throws(DaemonError) -> [TaskRecord] {
        try await read { database in
            let rows = try Row.fetchCursor(
                database,
                sql: "SELECT \(TaskRecord.columns) FROM task WHERE state < 2 ORDER BY id"
            )
            var records: [TaskRecord] = []
            while let row = try rows.next() { records.append(TaskRecord(row)) }
            return records
        }
    }

    /// A task with everything, or `nil` if there is none.
    func task(_ id: Int64) async throws(DaemonError) -> FullTask? {
        try await read { database in
            let find = try database.cachedStatement(
                sql: "SELECT \(FullTask.columns) FROM task WHERE id = ?"
            )
            return try Row.fetchOne(find, arguments: [id]).map(FullTask.init)
        }
    }

    /// The tasks of a session that come after one, in order: as many as a page holds.
    func tasks(
        of session: Int64,
        after id: Int64
    ) async throws(DaemonError) -> (tasks: [FullTask], isLast: Bool) {
        try await read { database in
            let rows = try Row.fetchCursor(
                database,
                sql: """
                    SELECT \(FullTask.columns) FROM task WHERE session = ? AND id > ? ORDER BY id
                    """,
                arguments: [session, id]
            )
            var tasks: [FullTask] = []
            var bytes = 0
            while let row = try rows.next() {
                tasks.append(FullTask(row))
                bytes += Self.size(row["request"]) + Self.size(row["outcome"])
                if tasks.count >= Self.pageCount || bytes >= Self.pageBytes {
                    return (tasks, false)
                }
            }
            return (tasks, true)
        }
    }

    /// Writes down what a client has changed of a task that has not ended, unless its user then had more
    /// than `limit` bytes.
    func update(_ task: FullTask, limit: Int64) async throws(DaemonError) {
        try await write { database in
            let user = try Self.user(of: task.record.session, database)
            try Self.write(for: user, limit: limit, database) {
                try database.execute(
                    sql: """
                        UPDATE task
                        SET priority = ?, needs = ?, blocks = ?, earliest = ?,
                            request = coalesce(?, request)
                        WHERE id = ? AND state = 0
                        """,
                    arguments: [
                        task.record.priority, task.record.needs.rawValue,
                        task.record.blocks.rawValue,
                        task.record.earliest?.timeIntervalSince1970,
                        task.isLost ? nil : try ControlFormat.encode(task.request),
                        task.record.id,
                    ]
                )
            }
        }
    }

    /// Writes down that the content of tasks is good, in which files it is, and what will be said of it (P5).
    func verified(_ items: [Finisher.Item]) async throws(DaemonError) {
        try await write { database in
            let statement = try database.cachedStatement(
                sql: """
                    UPDATE task SET state = 1, file = ?, outcome = ? WHERE id = ? AND state = 0
                    """
            )
            for item in items {
                try statement.execute(arguments: [
                    item.file.string, try ControlFormat.encode(item.event), item.task,
                ])
            }
        }
    }

    /// Writes down that tasks have ended, with the events that say so, and returns these with their
    /// numbers (P6); a task that has ended already, or is gone, yields nothing.
    func end(
        _ outcomes: [(id: Int64, event: SessionEvent)],
        leaving remnants: [Remnant] = []
    ) async throws(DaemonError) -> [(session: Int64, event: SessionEvent)] {
        try await write { database in
            var events: [(Int64, SessionEvent)] = []
            for outcome in outcomes {
                let update = try database.cachedStatement(
                    sql: "UPDATE task SET state = 2, outcome = ? WHERE id = ? AND state < 2"
                )
                let appended = try Self.append(
                    outcome.event,
                    of: outcome.id,
                    isFinal: true,
                    database
                )
                guard let appended else { continue }
                try update.execute(arguments: [appended.body, outcome.id])
                events.append((appended.session, appended.event))
            }
            for remnant in remnants where !events.isEmpty {
                try database.execute(
                    sql: "INSERT OR REPLACE INTO remnant VALUES (?, ?, ?, ?, ?)",
                    arguments: [
                        remnant.token, remnant.user, remnant.part, remnant.url,
                        remnant.expires.timeIntervalSince1970,
                    ]
                )
            }
            return events
        }
    }

    /// Writes down an event of a task that goes on, and returns it with its number.
    func record(
        _ event: SessionEvent,
        of task: Int64,
        blocks: Scheduler.Blocks
    ) async throws(DaemonError) -> (session: Int64, event: SessionEvent)? {
        try await write { database in
            let appended = try Self.append(event, of: task, isFinal: false, database)
            guard let appended else { return nil }
            try database.execute(
                sql: "UPDATE task SET blocks = ? WHERE id = ?",
                arguments: [blocks.rawValue, task]
            )
            return (appended.session, appended.event)
        }
    }

    /// The last challenge of a task that the client has not acknowledged.
    func challenge(of task: Int64) async throws(DaemonError) -> SessionEvent? {
        try await read { database in
            try Row.fetchOne(
                database,
                sql: """
                    SELECT sequence, task, body FROM event WHERE task = ? AND final = 0
                    ORDER BY sequence DESC LIMIT 1
                    """,
                arguments: [task]
            ).map(SessionEvent.init)
        }
    }

    /// Gives an event the next number of its session; `body` is the event as it was written down.
    private static func append(
        _ event: SessionEvent,
        of task: Int64,
        isFinal: Bool,
        _ database: Database
    ) throws -> (session: Int64, event: SessionEvent, body: Data)? {
        let find = try database.cachedStatement(
            sql: """
                UPDATE session SET last = last + 1
                WHERE id = (SELECT session FROM task WHERE id = ? AND state < 2)
                RETURNING id, last
                """
        )
        guard let row = try Row.fetchOne(find, arguments: [task]) else { return nil }
        let session: Int64 = row["id"]
        var event = event
        event.sequence = row["last"]
        event.task = task
        let insert = try database.cachedStatement(
            sql: "INSERT INTO event (session, sequence, task, final, body) VALUES (?, ?, ?, ?, ?)"
        )
        let body = try ControlFormat.encode(event)
        try insert.execute(arguments: [session, event.sequence, task, isFinal, body])
        return (session, event, body)
    }

    /// What an earlier download left behind under a token, if it is this user's.
    func remnant(_ token: String, of user: UInt32) async throws(DaemonError) -> Remnant? {
        try await read { database in
            try Row.fetchOne(
                database,
                sql: "SELECT * FROM remnant WHERE token = ? AND user = ? AND expires > ?",
                arguments: [token, user, Date.now.timeIntervalSince1970]
            ).map { row in
                Remnant(
                    token: row["token"],
                    user: row["user"],
                    part: row["part"],
                    url: row["url"],
                    expires: Date(timeIntervalSince1970: row["expires"])
                )
            }
        }
    }

    /// The numbers of all tasks that there are, and the last number that was given to one.
    func taskNumbers() async throws(DaemonError) -> (tasks: Set<Int64>, last: Int64) {
        try await read { database in
            (
                try Int64.fetchSet(database, sql: "SELECT id FROM task"),
                try Self.lastNumber(database)
            )
        }
    }

    /// Forgets what nobody went on with in time, and returns the names of its files.
    func removeExpiredRemnants(before now: Date) async throws(DaemonError) -> [String] {
        try await write { database in
            try String.fetchAll(
                database,
                sql: "DELETE FROM remnant WHERE expires < ? RETURNING part",
                arguments: [now.timeIntervalSince1970]
            )
        }
    }

    /// The names of all files among the parts and the copies that are still in use.
    func filesInUse() async throws(DaemonError) -> Set<String> {
        try await read { database in
            try String.fetchSet(
                database,
                sql: "SELECT part FROM task WHERE state < 2 UNION SELECT part FROM remnant"
            )
        }
    }
}

extension Journal {
    /// Writes down the end that a task gets if the daemon ends before it has another one; `nil` for none.
    func setProvisionalEnd(_ event: SessionEvent?, of id: Int64) async throws(DaemonError) {
        try await write { database in
            try database.execute(
                sql: "UPDATE task SET outcome = ? WHERE id = ? AND state = 0",
                arguments: [try event.map { try ControlFormat.encode($0) }, id]
            )
        }
    }

    /// Makes a task active again whose content got lost after P5.
    func reopen(_ id: Int64) async throws(DaemonError) {
        try await write { database in
            try database.execute(
                sql: "UPDATE task SET state = 0, file = NULL, outcome = NULL WHERE id = ?",
                arguments: [id]
            )
        }
    }
}
