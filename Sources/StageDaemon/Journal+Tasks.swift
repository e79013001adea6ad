import Foundation
import GRDB
import StageControl
import StageTransfer
import SystemPackage

extension Journal {
    private typealias Columns = TaskRecord.Columns

    /// Creates tasks, all or none, and returns their records in order.
    ///
    /// A token that already exists in the session yields the existing task. Refused if the user's part of the journal
    /// would exceed `limit` bytes.
    ///
    /// Deletes the unfinished stagings of the `replaced` sessions in the same transaction, so that after a crash the journal
    /// has either those or the new ones; returns how many they were, by session.
    func create(
        _ tasks: [NewTask],
        in session: Int64,
        by creator: UInt32,
        created: Date,
        limit: Int64,
        replacing replaced: [Int64] = []
    ) async throws(DaemonError)
        -> (tasks: [(record: TaskRecord, isNew: Bool)], replaced: [Int64: Int])
    {
        let taskIDLowerBound = taskIDLowerBound
        return try await write { database in
            let user = try Self.user(of: session, in: database)
            return try Self.write(for: user, limit: limit, in: database) {
                let counts = try Self.deleteStagings(of: replaced, in: database)
                var last = max(try Self.lastNumber(database), taskIDLowerBound)
                var known = try Self.tasks(
                    of: session,
                    with: tasks.map(\.request.token),
                    in: database
                )
                let records = try tasks.map { task -> (record: TaskRecord, isNew: Bool) in
                    if let record = known[Array(task.request.token.utf8)] { return (record, false) }
                    last += 1
                    let made = FullTask(task, id: last, in: session, by: creator, created: created)
                    try made.insert(database)
                    if let token = task.usedResumeToken {
                        // Two tasks that resume the same part file would both write to it.
                        guard try ResumeData.deleteOne(database, key: token) else {
                            throw ControlRefusal(
                                .invalid,
                                message: "the resume token was used already"
                            )
                        }
                    }
                    known[Array(task.request.token.utf8)] = made.record
                    return (made.record, true)
                }
                return (tasks: records, replaced: counts)
            }
        }
    }

    /// Returns the tasks of a session that have one of the tokens, by the token's bytes: tokens that Unicode
    /// considers equivalent are still different tokens.
    private static func tasks(
        of session: Int64,
        with tokens: [String],
        in database: Database
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

    /// Returns those of the tokens that exist in the session, as bytes.
    func knownTokens(
        _ tokens: [String],
        in session: Int64
    ) async throws(DaemonError) -> Set<[UInt8]> {
        try await read { database in
            Set(try Self.tasks(of: session, with: tokens, in: database).keys)
        }
    }

    /// Returns the unfinished tasks, including those whose verified content is not committed yet.
    func unfinishedTasks() async throws(DaemonError) -> [TaskRecord] {
        try await read { database in
            try TaskRecord.filter(Columns.state < StoredState.ended).order(Columns.id)
                .fetchAll(database)
        }
    }

    /// Returns a task with its request, or `nil` if there is none.
    func task(_ id: Int64) async throws(DaemonError) -> FullTask? {
        try await read { try FullTask.fetchOne($0, key: id) }
    }

    /// Returns a page of a session's tasks after an identifier, in order.
    ///
    /// With `token`, returns only tasks whose token is this text, or begins with it and '/'.
    func tasks(
        of session: Int64,
        named token: String?,
        after id: Int64
    ) async throws(DaemonError) -> (tasks: [FullTask], isLast: Bool) {
        try await read { database in
            var wanted = FullTask.filter(Columns.session == session && Columns.id > id)
            if let token {
                // The index of tokens finds the range; "0" is the character after "/".
                let (first, end): (String, String) = ("\(token)/", "\(token)0")
                wanted = wanted.filter(Columns.token >= token && Columns.token < end)
                    .filter(Columns.token == token || Columns.token >= first)
            }
            let rows = try wanted.order(Columns.id)
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

    /// Returns the unfinished uploads of a session that have an upload resource, in order.
    func uploads(of session: Int64, limit: Int) async throws(DaemonError) -> [FullTask] {
        try await read { database in
            try FullTask.filter(Columns.session == session && Columns.upload != nil)
                .filter(Columns.state == StoredState.active)
                .order(Columns.id)
                .limit(limit)
                .fetchAll(database)
        }
    }

    /// Writes a client's changes of an unfinished task.
    ///
    /// Refused if the user's part of the journal would exceed `limit` bytes.
    func update(_ task: FullTask, limit: Int64) async throws(DaemonError) {
        try await write { database in
            let (user, record) = (try Self.user(of: task.record.session, in: database), task.record)
            var changes = [
                Columns.priority.set(to: record.priority),
                Columns.constraints.set(to: record.constraints),
                Columns.blocks.set(to: record.blocks),
                Columns.earliest.set(to: record.earliest?.timeIntervalSince1970),
            ]
            if !task.isLost {
                changes.append(Columns.request.set(to: try StoredForm.encode(task.request)))
            }
            _ = try Self.write(for: user, limit: limit, in: database) {
                try TaskRecord
                    .filter(Columns.id == record.id && Columns.state != StoredState.ended)
                    .updateAll(database, changes)
            }
        }
    }

    /// Returns a query for the task if it is active: not verified and not ended.
    private static func active(_ id: Int64) -> QueryInterfaceRequest<TaskRecord> {
        TaskRecord.filter(Columns.id == id && Columns.state == StoredState.active)
    }

    /// Records tasks as verified, with the names of their files and their final events.
    func recordVerified(_ items: [DownloadCommitter.CompletedDownload]) async throws(DaemonError) {
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

    /// Records tasks as ended.
    ///
    /// Returns their final events with sequence numbers; skips tasks that have already ended or do not exist.
    func end(
        _ outcomes: [(id: Int64, event: SessionEvent)],
        leaving kept: [ResumeData] = []
    ) async throws(DaemonError) -> [(session: Int64, event: SessionEvent)] {
        try await write { database in
            let update = try database.cachedStatement(
                sql: "UPDATE task SET state = ?, outcome = ?, upload = NULL WHERE id = ?"
            )
            var events: [(Int64, SessionEvent)] = []
            for outcome in outcomes {
                let record = try Self.append(
                    outcome.event,
                    of: outcome.id,
                    isFinal: true,
                    in: database
                )
                guard let record else { continue }
                try update.execute(arguments: [StoredState.ended, record.body, outcome.id])
                events.append((record.session, outcome.event.numbered(record)))
            }
            if !events.isEmpty {
                for resumeData in kept { try resumeData.insert(database, onConflict: .replace) }
            }
            return events
        }
    }

    /// Records a durable event of an unfinished task; returns it with its sequence number.
    func record(
        _ event: SessionEvent,
        of task: Int64,
        blocks: Scheduler.Blocks
    ) async throws(DaemonError) -> (session: Int64, event: SessionEvent)? {
        try await write { database in
            let record = try Self.append(event, of: task, isFinal: false, in: database)
            guard let record else { return nil }
            try TaskRecord.filter(key: task).updateAll(database, Columns.blocks.set(to: blocks))
            return (record.session, event.numbered(record))
        }
    }

    /// Returns the last unacknowledged challenge of a task.
    func challenge(of task: Int64) async throws(DaemonError) -> SessionEvent? {
        try await read { database in
            try EventRecord
                .filter(EventRecord.Columns.task == task && !EventRecord.Columns.final)
                .order(EventRecord.Columns.sequence.desc)
                .fetchOne(database)?
                .event
        }
    }

    /// Appends an event of an unfinished task, with the next sequence number of its session.
    private static func append(
        _ event: SessionEvent,
        of task: Int64,
        isFinal: Bool,
        in database: Database
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

    /// Returns the unexpired resume data with a token, if it belongs to the user.
    func resumeData(_ token: String, of user: UInt32) async throws(DaemonError) -> ResumeData? {
        try await read { database in
            try ResumeData.filter(key: token).filter(ResumeData.Columns.user == user)
                .filter(ResumeData.Columns.expires > Date.now.timeIntervalSince1970)
                .fetchOne(database)
        }
    }

    /// Returns the identifiers of all tasks, and the highest identifier assigned so far.
    func taskNumbers() async throws(DaemonError) -> (tasks: Set<Int64>, last: Int64) {
        try await read { database in
            (
                try TaskRecord.select(Columns.id, as: Int64.self).fetchSet(database),
                try Self.lastNumber(database)
            )
        }
    }

    /// Removes expired resume data; returns the names of its part files.
    func removeExpiredResumeData(before now: Date) async throws(DaemonError) -> [String] {
        try await write { database in
            try ResumeData.filter(ResumeData.Columns.expires < now.timeIntervalSince1970)
                .deleteAndFetchAll(database)
                .map(\.part)
        }
    }

    /// Moves the dates of unfinished tasks and of resume data by a change of the clock in seconds.
    func moveDates(by seconds: Double) async throws(DaemonError) {
        try await write { database in
            // A missing earliest date stays missing.
            try database.execute(
                sql:
                    "UPDATE task SET deadline = deadline + ?1, earliest = earliest + ?1 WHERE state <> ?2",
                arguments: [seconds, StoredState.ended]
            )
            try database.execute(
                sql: "UPDATE remnant SET expires = expires + ?",
                arguments: [seconds]
            )
        }
    }

    /// Returns the names of all part files and upload copies in use.
    func filesInUse() async throws(DaemonError) -> Set<String> {
        Set(try await partOwners().keys)
    }

    /// Records the end that a task gets if the daemon stops before the task ends otherwise; `nil` removes it.
    func setProvisionalEnd(_ event: SessionEvent?, of id: Int64) async throws(DaemonError) {
        try await write { database in
            let outcome = try event.map { try StoredForm.encode($0) }
            try Self.active(id).updateAll(database, Columns.outcome.set(to: outcome))
        }
    }

    /// Records the resource at which an upload resumes, in place of a provisional end; `nil` removes it.
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

    /// Makes a verified task active again, since its file was lost.
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
    /// Creates the task to insert.
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
            constraints: task.constraints,
            blocks: task.blocks,
            earliest: task.earliest,
            created: created,
            deadline: task.deadline,
            part: task.part ?? TaskRecord.ownPart(of: id),
            hasMirrors: task.request.mirrors?.isEmpty == false,
            failsWithoutRetry: task.request.failsWithoutRetry == true
        )
        request = task.request
    }
}

extension SessionEvent {
    /// Returns the event with the sequence number that the journal assigned.
    fileprivate func numbered(_ record: EventRecord) -> SessionEvent {
        var event = self
        event.sequence = record.sequence
        event.task = record.task
        return event
    }
}
