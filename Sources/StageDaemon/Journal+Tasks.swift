import Foundation
import GRDB
import StageControl
import StageTransfer
import SystemPackage

extension Journal {
    private typealias Columns = TaskRecord.Columns

    /// Makes tasks, all or none, and returns their records in order.
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
            let user = try Self.user(of: session, database)
            return try Self.write(for: user, limit: limit, database) {
                var last = max(try Self.lastNumber(database), floor)
                var known = try Self.tasks(of: session, with: tasks.map(\.request.token), database)
                return try tasks.map { task in
                    if let record = known[Array(task.request.token.utf8)] { return (record, false) }
                    last += 1
                    let made = FullTask(task, id: last, in: session, by: creator, created: created)
                    try made.insert(database)
                    if let token = task.remnant {
                        // Two that go on with one file would write into it both.
                        guard try Remnant.deleteOne(database, key: token) else {
                            throw ControlRefusal(.invalid, "the resume token is used up")
                        }
                    }
                    known[Array(task.request.token.utf8)] = made.record
                    return (made.record, true)
                }
            }
        }
    }

    /// The tasks of a session that have one of the tokens, by the token's bytes: strings that Unicode holds
    /// equivalent are different tokens.
    private static func tasks(
        of session: Int64,
        with tokens: [String],
        _ database: Database
    ) throws -> [[UInt8]: TaskRecord] {
        let rows = try TaskRecord.select(TaskRecord.databaseSelection + [Columns.token])
            .filter(Columns.session == session && tokens.contains(Columns.token))
            .asRequest(of: Row.self)
            .fetchCursor(database)
        var tasks: [[UInt8]: TaskRecord] = [:]
        while let row = try rows.next() {
            tasks[Array((row[Columns.token] as String).utf8)] = TaskRecord(row: row)
        }
        return tasks
    }

    /// The bytes of those of the tokens that a session's tasks have.
    func known(_ tokens: [String], in session: Int64) async throws(DaemonError) -> Set<[UInt8]> {
        try await read { database in
            Set(try Self.tasks(of: session, with: tokens, database).keys)
        }
    }

    /// All tasks that have not ended, and those whose content waits for its place.
    func openTasks() async throws(DaemonError) -> [TaskRecord] {
        try await read { database in
            try TaskRecord.filter(Columns.state < StoredState.ended).order(Columns.id)
                .fetchAll(database)
        }
    }

    /// A task with everything, or `nil` if there is none.
    func task(_ id: Int64) async throws(DaemonError) -> FullTask? {
        try await read { try FullTask.fetchOne($0, key: id) }
    }

    /// The tasks of a session that come after one, in order: as many as a page holds.
    func tasks(
        of session: Int64,
        after id: Int64
    ) async throws(DaemonError) -> (tasks: [FullTask], isLast: Bool) {
        try await read { database in
            let rows = try FullTask.filter(Columns.session == session && Columns.id > id)
                .order(Columns.id)
                .asRequest(of: Row.self)
                .fetchCursor(database)
            var tasks: [FullTask] = []
            var bytes = 0
            while let row = try rows.next() {
                tasks.append(FullTask(row: row))
                bytes += Self.size(row[Columns.request]) + Self.size(row[Columns.outcome])
                if tasks.count >= Self.pageCount || bytes >= Self.pageBytes {
                    return (tasks, false)
                }
            }
            return (tasks, true)
        }
    }

    /// The uploads of a session that have not ended and have an upload resource, in order.
    func uploads(of session: Int64, limit: Int) async throws(DaemonError) -> [FullTask] {
        try await read { database in
            try FullTask.filter(Columns.session == session && Columns.upload != nil)
                .filter(Columns.state == StoredState.active)
                .order(Columns.id)
                .limit(limit)
                .fetchAll(database)
        }
    }

    /// Writes down what a client has changed of a task that has not ended, unless its user then had more
    /// than `limit` bytes.
    func update(_ task: FullTask, limit: Int64) async throws(DaemonError) {
        try await write { database in
            let (user, record) = (try Self.user(of: task.record.session, database), task.record)
            var changes = [
                Columns.priority.set(to: record.priority), Columns.needs.set(to: record.needs),
                Columns.blocks.set(to: record.blocks),
                Columns.earliest.set(to: record.earliest?.timeIntervalSince1970),
            ]
            if !task.isLost {
                changes.append(Columns.request.set(to: try StoredForm.encode(task.request)))
            }
            _ = try Self.write(for: user, limit: limit, database) {
                try Self.active(record.id).updateAll(database, changes)
            }
        }
    }

    /// A task, unless its content is verified or it has ended.
    private static func active(_ id: Int64) -> QueryInterfaceRequest<TaskRecord> {
        TaskRecord.filter(Columns.id == id && Columns.state == StoredState.active)
    }

    /// Writes down that the content of tasks is good, in which files it is, and what will be said of it.
    func verified(_ items: [Finisher.Item]) async throws(DaemonError) {
        try await write { database in
            let statement = try database.cachedStatement(
                sql: """
                    UPDATE task SET state = :verified, file = :file, outcome = :outcome
                    WHERE id = :id AND state = :active
                    """
            )
            for item in items {
                try statement.execute(arguments: [
                    "id": item.task, "file": item.file.string,
                    "outcome": try StoredForm.encode(item.event),
                    "active": StoredState.active, "verified": StoredState.verified,
                ])
            }
        }
    }

    /// Writes down that tasks have ended, with the events that say so, and returns these with their
    /// numbers; a task that has ended already, or is gone, yields nothing.
    func end(
        _ outcomes: [(id: Int64, event: SessionEvent)],
        leaving remnants: [Remnant] = []
    ) async throws(DaemonError) -> [(session: Int64, event: SessionEvent)] {
        try await write { database in
            let update = try database.cachedStatement(
                sql: "UPDATE task SET state = ?, outcome = ?, upload = NULL WHERE id = ?"
            )
            var events: [(Int64, SessionEvent)] = []
            for outcome in outcomes {
                let record = try Self.append(outcome.event, of: outcome.id, isFinal: true, database)
                guard let record else { continue }
                try update.execute(arguments: [StoredState.ended, record.body, outcome.id])
                events.append((record.session, outcome.event.numbered(record)))
            }
            if !events.isEmpty {
                for remnant in remnants { try remnant.insert(database, onConflict: .replace) }
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
            let record = try Self.append(event, of: task, isFinal: false, database)
            guard let record else { return nil }
            try TaskRecord.filter(key: task).updateAll(database, Columns.blocks.set(to: blocks))
            return (record.session, event.numbered(record))
        }
    }

    /// The last challenge of a task that the client has not acknowledged.
    func challenge(of task: Int64) async throws(DaemonError) -> SessionEvent? {
        try await read { database in
            try EventRecord
                .filter(EventRecord.Columns.task == task && !EventRecord.Columns.final)
                .order(EventRecord.Columns.sequence.desc)
                .fetchOne(database)?
                .event
        }
    }

    /// Gives an event of a task that has not ended the next number of its session.
    private static func append(
        _ event: SessionEvent,
        of task: Int64,
        isFinal: Bool,
        _ database: Database
    ) throws -> EventRecord? {
        let find = try database.cachedStatement(
            sql: """
                UPDATE session SET last = last + 1
                WHERE id = (SELECT session FROM task WHERE id = ? AND state < ?)
                RETURNING id, last
                """
        )
        let row = try Row.fetchOne(find, arguments: [task, StoredState.ended])
        guard let row else { return nil }
        let record = EventRecord(
            session: row[SessionRecord.Columns.id],
            sequence: row[SessionRecord.Columns.last],
            task: task,
            final: isFinal,
            body: try StoredForm.encode(event)
        )
        try record.insert(database)
        return record
    }

    /// What an earlier download left behind under a token, if it is this user's.
    func remnant(_ token: String, of user: UInt32) async throws(DaemonError) -> Remnant? {
        try await read { database in
            try Remnant.filter(key: token).filter(Remnant.Columns.user == user)
                .filter(Remnant.Columns.expires > Date.now.timeIntervalSince1970)
                .fetchOne(database)
        }
    }

    /// The numbers of all tasks that there are, and the last number that was given to one.
    func taskNumbers() async throws(DaemonError) -> (tasks: Set<Int64>, last: Int64) {
        try await read { database in
            (
                try TaskRecord.select(Columns.id, as: Int64.self).fetchSet(database),
                try Self.lastNumber(database)
            )
        }
    }

    /// Forgets what nobody went on with in time, and returns the names of its files.
    func removeExpiredRemnants(before now: Date) async throws(DaemonError) -> [String] {
        try await write { database in
            try Remnant.filter(Remnant.Columns.expires < now.timeIntervalSince1970)
                .deleteAndFetchAll(database)
                .map(\.part)
        }
    }

    /// The names of all files among the parts and the copies that are still in use.
    func filesInUse() async throws(DaemonError) -> Set<String> {
        Set(try await partOwners().keys)
    }

    /// Writes down the end that a task gets if the daemon ends before it has another one; `nil` for none.
    func setProvisionalEnd(_ event: SessionEvent?, of id: Int64) async throws(DaemonError) {
        try await write { database in
            let outcome = try event.map { try StoredForm.encode($0) }
            try Self.active(id).updateAll(database, Columns.outcome.set(to: outcome))
        }
    }

    /// Writes down where an upload resumes, which takes the place of a provisional end; `nil` for nowhere.
    func setUpload(_ resource: UploadResource?, of id: Int64) async throws(DaemonError) {
        try await write { database in
            let document = try resource.map { try StoredForm.encode($0) }
            try Self.active(id).updateAll(
                database,
                Columns.upload.set(to: document),
                Columns.outcome.set(to: nil)
            )
        }
    }

    /// Makes a task active again whose content was called good and got lost.
    func reopen(_ id: Int64) async throws(DaemonError) {
        try await write { database in
            try TaskRecord.filter(key: id).updateAll(
                database,
                Columns.state.set(to: StoredState.active),
                Columns.file.set(to: nil),
                Columns.outcome.set(to: nil)
            )
        }
    }
}

extension FullTask {
    /// The record of a task that is created.
    fileprivate init(
        _ task: NewTask,
        id: Int64,
        in session: Int64,
        by creator: UInt32,
        created: Date
    ) {
        record = TaskRecord(
            id: id,
            session: session,
            creator: creator,
            host: task.host,
            priority: task.priority,
            needs: task.needs,
            blocks: task.blocks,
            earliest: task.earliest,
            created: created,
            deadline: task.deadline,
            part: task.part ?? TaskRecord.ownPart(of: id)
        )
        request = task.request
    }
}

extension SessionEvent {
    /// The event with the number that it has in the journal.
    fileprivate func numbered(_ record: EventRecord) -> SessionEvent {
        var event = self
        event.sequence = record.sequence
        event.task = record.task
        return event
    }
}
