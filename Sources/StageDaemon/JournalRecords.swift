import Foundation
import GRDB
import StageControl
import StageSystem
import StageTransfer

/// State of a task in the journal; all finer states are derived in memory.
enum StoredState: Int, DatabaseValueConvertible, Sendable {
    /// The task is waiting or running.
    case active = 0
    /// The content is verified, and ``FullTask/outcome`` is its final event. Only the move to the user's directory
    /// and the end remain.
    case verified = 1
    /// The task has ended, and its final event is recorded.
    case ended = 2
}

extension TransferConstraints: DatabaseValueConvertible {}
extension Scheduler.Blocks: DatabaseValueConvertible {}

/// Columns of a task that the scheduler needs.
struct TaskRecord: Sendable {
    var id: Int64
    var session: Int64
    /// User who created the task: the session's user or a member of its group.
    var creator: UInt32
    var state = StoredState.active
    var host: String
    var priority: Int
    var constraints: TransferConstraints
    var blocks: Scheduler.Blocks
    var earliest: Date?
    var created: Date
    var deadline: Date
    /// Name of the part file, or of the copy of the file to upload.
    var part: String
    /// Name of the file with the verified content.
    var file: String?
    /// Set if an earlier attempt may have sent a request that must not be repeated, and its result is unknown.
    var hasProvisionalEnd = false
    /// Set if the request has mirrors.
    var hasMirrors = false
    /// Set if the task fails instead of waiting.
    var failsWithoutRetry = false
}

extension TaskRecord: FetchableRecord, TableRecord {
    static let databaseTableName = "task"

    enum Columns: String, ColumnExpression {
        case id, session, creator, token, state, host, priority, blocks, earliest, created
        case deadline, part, file, request, outcome, upload
        case constraints = "needs"
        /// Results of a selection, not stored columns: the task has an outcome, and two facts about its request.
        case hasOutcome, hasMirrors, failsWithoutRetry
    }

    /// Bytes that only requests with mirrors have: names and texts in a document cannot contain these quotation marks.
    private static let beginOfMirrors = Data(#""mirrors":[""#.utf8)
    /// Bytes that only requests of tasks have that fail instead of waiting.
    private static let failureWithoutRetry = Data(#""failsWithoutRetry":true"#.utf8)

    static var databaseSelection: [any SQLSelectable] {
        [
            Columns.id, Columns.session, Columns.creator, Columns.state, Columns.host,
            Columns.priority, Columns.constraints, Columns.blocks, Columns.earliest,
            Columns.created,
            Columns.deadline, Columns.part, Columns.file,
            (Columns.outcome != nil).forKey(Columns.hasOutcome.rawValue),
            // Requests of any number of tasks are not decoded at the start of the daemon.
            SQL(sql: "instr(request, ?) > 0", arguments: [beginOfMirrors])
                .forKey(Columns.hasMirrors.rawValue),
            SQL(sql: "instr(request, ?) > 0", arguments: [failureWithoutRetry])
                .forKey(Columns.failsWithoutRetry.rawValue),
        ]
    }

    init(row: Row) {
        id = row[Columns.id]
        session = row[Columns.session]
        creator = row[Columns.creator]
        state = StoredState(rawValue: row[Columns.state]) ?? .active
        host = row[Columns.host]
        priority = row[Columns.priority]
        constraints = TransferConstraints(rawValue: row[Columns.constraints])
        blocks = Scheduler.Blocks(rawValue: row[Columns.blocks])
        earliest = (row[Columns.earliest] as Double?).map(Date.init(timeIntervalSince1970:))
        created = Date(timeIntervalSince1970: row[Columns.created])
        deadline = Date(timeIntervalSince1970: row[Columns.deadline])
        part = row[Columns.part]
        file = row[Columns.file]
        hasProvisionalEnd = state == .active && row[Columns.hasOutcome]
        hasMirrors = row[Columns.hasMirrors]
        failsWithoutRetry = row[Columns.failsWithoutRetry]
    }

    /// Set if a person waits for the task.
    var isPromoted: Bool { priority >= NewTask.promotedPriority }

    /// Returns the name of a task's own part file, which is used unless the task resumes another one's.
    static func ownPart(of id: Int64) -> String { "task-\(id)" }
}

/// Task with its request and outcome.
struct FullTask: Sendable {
    var record: TaskRecord
    var request: TransferRequest
    /// Final event, once it is decided.
    var outcome: SessionEvent?
    /// Resource at which the upload resumes.
    var upload: UploadResource?
    /// Set if the stored request is damaged; ``request`` then contains only the token.
    var isLost = false

    /// Failure of a task whose row is damaged.
    static let damaged = TransferFailure(
        .lost,
        reason: "the daemon's record of the task is damaged; create the task again"
    )
}

extension UploadResource {
    /// Replacement for a damaged resource.
    ///
    /// No upload resumes there, since the server may already have acted.
    fileprivate static let unreadable = {
        var resource = UploadResource(url: "", uploadProtocol: .plain)
        resource.mayBeComplete = true
        return resource
    }()
}

extension FullTask: FetchableRecord, PersistableRecord {
    static let databaseTableName = TaskRecord.databaseTableName
    typealias Columns = TaskRecord.Columns

    static var databaseSelection: [any SQLSelectable] {
        TaskRecord.databaseSelection + [
            Columns.token, Columns.request, Columns.outcome, Columns.upload,
        ]
    }

    /// Reads a row.
    ///
    /// Damaged columns affect this task only, not the list that contains it.
    init(row: Row) {
        record = TaskRecord(row: row)
        if let request = row.document(TransferRequest.self, in: Columns.request) {
            self.request = request
        } else {
            request = TransferRequest(token: row[Columns.token], kind: .download, url: "")
            isLost = true
        }
        outcome = row.document(SessionEvent.self, in: Columns.outcome)
        outcome?.task = record.id
        upload = row.document(UploadResource.self, in: Columns.upload)
        if upload == nil, row.hasValue(Columns.upload) { upload = .unreadable }
    }

    func encode(to container: inout PersistenceContainer) throws {
        container[Columns.id] = record.id
        container[Columns.session] = record.session
        container[Columns.creator] = record.creator
        container[Columns.token] = request.token
        container[Columns.state] = record.state
        container[Columns.host] = record.host
        container[Columns.priority] = record.priority
        container[Columns.constraints] = record.constraints
        container[Columns.blocks] = record.blocks
        container[Columns.earliest] = record.earliest?.timeIntervalSince1970
        container[Columns.created] = record.created.timeIntervalSince1970
        container[Columns.deadline] = record.deadline.timeIntervalSince1970
        container[Columns.part] = record.part
        container[Columns.file] = record.file
        container[Columns.request] = try StoredForm.encode(request)
        container[Columns.outcome] = try outcome.map { try StoredForm.encode($0) }
        container[Columns.upload] = try upload.map { try StoredForm.encode($0) }
    }
}

/// Task that is about to be created.
struct NewTask: Sendable {
    var request: TransferRequest
    var host: String
    var priority: Int
    var constraints: TransferConstraints
    var blocks: Scheduler.Blocks
    var earliest: Date?
    var deadline: Date
    /// Name of the part file to resume, or of the copy of the file to upload.
    var part: String?
    /// Resume token that creating the task uses up.
    var usedResumeToken: String?
}

/// Groups of the process that created a session; its handler gets no others.
struct SessionRights: Equatable, Sendable {
    /// Primary group.
    var group: UInt32
    /// Supplementary groups.
    var groups: [UInt32]
}

/// Session in the journal.
struct SessionRecord: Sendable {
    var id: Int64
    var user: UInt32
    var identifier: String
    var rights: SessionRights
    var configuration: SessionConfiguration
    /// Group whose members may use the session; `nil` also until ``resolveGroup()`` has looked it up.
    var group: UInt32?
    var launchLimiter: LaunchLimiter
    var last: Int64
    var acknowledged: Int64
}

extension SessionRecord {
    /// Key of the sessions of one user for the same staging job: the stagings of a new one replace those of the others.
    struct JobKey: Hashable {
        fileprivate let user: UInt32
        /// Bytes of the sessions' identifiers before the last `/`.
        fileprivate let name: [UInt8]
    }

    /// The key of the session's staging job; `nil` if its identifier has no name before a `/`.
    var jobKey: JobKey? {
        let bytes = identifier.utf8
        guard let end = bytes.lastIndex(of: UInt8(ascii: "/")), end > bytes.startIndex else {
            return nil
        }
        return JobKey(user: user, name: Array(bytes[..<end]))
    }
}

extension SessionRecord: FetchableRecord, TableRecord {
    static let databaseTableName = "session"

    enum Columns: String, ColumnExpression {
        case id, user, identifier, rights, configuration, last, acknowledged
        case launchLimiter = "relaunch"
    }

    /// Reads a row, without the number of the group.
    ///
    /// Damaged columns get defaults: no handler, no header fields, no groups.
    init(row: Row) {
        id = row[Columns.id]
        user = row[Columns.user]
        identifier = row[Columns.identifier]
        rights = row.document(SessionRights.self, in: Columns.rights) ?? .blank
        configuration = row.document(SessionConfiguration.self, in: Columns.configuration) ?? .blank
        launchLimiter = row.document(LaunchLimiter.self, in: Columns.launchLimiter) ?? .blank
        last = row[Columns.last]
        acknowledged = row[Columns.acknowledged]
    }

    /// Looks up the group of the configuration; blocks the thread, since the database may be on another machine.
    mutating func resolveGroup() { group = configuration.group.flatMap { UInt32.group(named: $0) } }
}

/// Event that its client has not acknowledged.
struct EventRecord: Codable, Sendable {
    var session: Int64
    var sequence: Int64
    var task: Int64
    /// Set if the event ends its task.
    var final: Bool
    /// The event in its stored form.
    var body: Data
}

extension EventRecord: FetchableRecord, PersistableRecord {
    static let databaseTableName = "event"

    enum Columns: String, ColumnExpression {
        case session, sequence, task, final, body
    }

    /// The decoded event.
    ///
    /// A damaged one becomes a failure of its task, so that the events after it are still delivered.
    var event: SessionEvent {
        var event: SessionEvent
        do {
            event = try StoredForm.decode(SessionEvent.self, from: body)
        } catch {
            event = SessionEvent(.failed, time: .now)
            event.failure = FullTask.damaged
        }
        event.sequence = sequence
        event.task = task
        return event
    }
}

/// Resume data of a cancelled or failed download, which another task can resume.
struct ResumeData: Codable, Sendable {
    var token: String
    var user: UInt32
    var part: String
    var url: String
    var expires: Date
}

extension ResumeData: FetchableRecord, PersistableRecord {
    static let databaseTableName = "remnant"

    enum Columns: String, ColumnExpression {
        case token, user, part, url, expires
    }

    static func databaseDateEncodingStrategy(for column: String) -> DatabaseDateEncodingStrategy {
        .timeIntervalSince1970
    }

    static func databaseDateDecodingStrategy(for column: String) -> DatabaseDateDecodingStrategy {
        .timeIntervalSince1970
    }
}

/// Files of a deleted task.
struct TaskFiles: FetchableRecord, TableRecord {
    static let databaseTableName = TaskRecord.databaseTableName
    static var databaseSelection: [any SQLSelectable] {
        [TaskRecord.Columns.id, TaskRecord.Columns.part, TaskRecord.Columns.state]
    }

    var id: Int64
    var part: String
    /// Set if the task had not ended.
    var isUnfinished: Bool

    init(row: Row) {
        id = row[TaskRecord.Columns.id]
        isUnfinished = row[TaskRecord.Columns.state] != StoredState.ended.rawValue
        part = row[TaskRecord.Columns.part]
    }
}

/// Deleted tasks, and the files that no other task uses.
struct RemovedTasks: Sendable {
    var tasks: [Int64]
    var parts: [String]
    /// Number of the tasks that had not ended.
    var unfinished = 0
}

extension RemovedTasks {
    /// Collects deleted tasks, without part files that resume data or another task still uses.
    init(_ deleted: [TaskFiles], in database: Database) throws {
        let users = try database.cachedStatement(
            sql: """
                SELECT EXISTS (SELECT 1 FROM remnant WHERE part = ?1)
                    OR EXISTS (SELECT 1 FROM task WHERE part = ?1 AND part <> 'task-' || id)
                """
        )
        tasks = deleted.map(\.id)
        unfinished = deleted.count(where: \.isUnfinished)
        parts = try deleted.map(\.part).filter {
            try Bool.fetchOne(users, arguments: [$0]) != true
        }
    }
}

extension Row {
    /// Decodes the document in a column; returns `nil` if the column is empty or damaged.
    func document<Document: StoredDocument>(
        _ type: Document.Type,
        in column: some ColumnExpression
    ) -> Document? {
        // Only disk corruption causes this error; the caller supplies a replacement.
        (self[column] as Data?).flatMap { try? StoredForm.decode(type, from: $0) }
    }

    /// Returns whether a column is not `NULL`.
    fileprivate func hasValue(_ column: some ColumnExpression) -> Bool {
        !(self[column] as DatabaseValue).isNull
    }
}
