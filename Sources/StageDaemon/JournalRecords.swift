import Foundation
import GRDB
import StageControl
import StageSystem
import StageTransfer

/// How far a task has got, as it is on disk; the rest is recomputed.
enum StoredState: Int, DatabaseValueConvertible, Sendable {
    /// It waits or runs.
    case active = 0
    /// Its content is here and good, and its end is in ``FullTask/outcome``; what is left is to
    /// give it its place.
    case verified = 1
    /// It has ended, and so says an event.
    case ended = 2
}

extension Needs: DatabaseValueConvertible {}
extension Scheduler.Blocks: DatabaseValueConvertible {}

/// What the scheduler has to know of a task.
struct TaskRecord: Sendable {
    var id: Int64
    var session: Int64
    /// The number of the user who created it: the session's, or a member of its group.
    var creator: UInt32
    var state = StoredState.active
    var host: String
    var priority: Int
    var needs: Needs
    var blocks: Scheduler.Blocks
    var earliest: Date?
    var created: Date
    var deadline: Date
    /// The name of its part file, or of the copy of the file to upload.
    var part: String
    /// The name of the file with the content, once that is verified.
    var file: String?
    /// Whether an earlier attempt has sent what is not to be sent twice, and was not seen to its end.
    var hasProvisionalEnd = false
}

extension TaskRecord: FetchableRecord, TableRecord {
    static let databaseTableName = "task"

    enum Columns: String, ColumnExpression {
        case id, session, creator, token, state, host, priority, needs, blocks, earliest, created
        case deadline, part, file, request, outcome, upload
        /// Whether there is an outcome: a column of selections alone.
        case hasOutcome
    }

    static var databaseSelection: [any SQLSelectable] {
        [
            Columns.id, Columns.session, Columns.creator, Columns.state, Columns.host,
            Columns.priority, Columns.needs, Columns.blocks, Columns.earliest, Columns.created,
            Columns.deadline, Columns.part, Columns.file,
            (Columns.outcome != nil).forKey(Columns.hasOutcome.rawValue),
        ]
    }

    init(row: Row) {
        id = row[Columns.id]
        session = row[Columns.session]
        creator = row[Columns.creator]
        state = StoredState(rawValue: row[Columns.state]) ?? .active
        host = row[Columns.host]
        priority = row[Columns.priority]
        needs = Needs(rawValue: row[Columns.needs])
        blocks = Scheduler.Blocks(rawValue: row[Columns.blocks])
        earliest = (row[Columns.earliest] as Double?).map(Date.init(timeIntervalSince1970:))
        created = Date(timeIntervalSince1970: row[Columns.created])
        deadline = Date(timeIntervalSince1970: row[Columns.deadline])
        part = row[Columns.part]
        file = row[Columns.file]
        hasProvisionalEnd = state == .active && row[Columns.hasOutcome]
    }

    /// The name of the part file of a task that goes on with no other file.
    static func ownPart(of id: Int64) -> String { "task-\(id)" }
}

/// A task with everything.
struct FullTask: Sendable {
    var record: TaskRecord
    var request: TransferRequest
    /// The event of its end, once that is settled.
    var outcome: SessionEvent?
    /// The resource at which its upload resumes.
    var upload: UploadResource?
    /// Whether ``request`` cannot be read any more; it then has the token alone.
    var isLost = false

    /// The failure that a task ends in whose row is damaged.
    static let loss = TransferFailure(
        .lost,
        reason: "the daemon's record of the task is damaged; create the task again"
    )
}

extension UploadResource {
    /// The stand-in for a damaged one, at which no upload resumes: the server may have acted there.
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
    /// What is damaged in it is the loss of one task, and of no listing.
    init(row: Row) {
        record = TaskRecord(row: row)
        if let request = row.document(TransferRequest.self, Columns.request) {
            self.request = request
        } else {
            request = TransferRequest(token: row[Columns.token], kind: .download, url: "")
            isLost = true
        }
        outcome = row.document(SessionEvent.self, Columns.outcome)
        outcome?.task = record.id
        upload = row.document(UploadResource.self, Columns.upload)
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
        container[Columns.needs] = record.needs
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

/// A task that is to be created.
struct NewTask: Sendable {
    var request: TransferRequest
    var host: String
    var priority: Int
    var needs: Needs
    var blocks: Scheduler.Blocks
    var earliest: Date?
    var deadline: Date
    /// The name of a part file to go on with, or of the copy of the file to upload.
    var part: String?
    /// The resume token that is used up.
    var remnant: String?
}

/// Groups that the process had which made a session; a handler gets no others.
struct SessionRights: Equatable, Sendable {
    /// The number of its first group.
    var group: UInt32
    /// The numbers of all of its groups.
    var groups: [UInt32]
}

/// A session as it is on disk.
struct SessionRecord: Sendable {
    var id: Int64
    var user: UInt32
    var identifier: String
    var rights: SessionRights
    var configuration: SessionConfiguration
    /// The number of the group whose members may use it, as the group database had it when the record
    /// was read.
    var group: UInt32?
    var relaunch: Relaunch
    var last: Int64
    var acknowledged: Int64
}

extension SessionRecord: FetchableRecord, TableRecord {
    static let databaseTableName = "session"

    enum Columns: String, ColumnExpression {
        case id, user, identifier, rights, configuration, relaunch, last, acknowledged
    }

    /// Reads a row; blocks the thread while the group database is asked.
    ///
    /// In place of what is damaged come defaults: no handler, no headers, no groups.
    init(row: Row) {
        id = row[Columns.id]
        user = row[Columns.user]
        identifier = row[Columns.identifier]
        rights = row.document(SessionRights.self, Columns.rights) ?? .blank
        configuration = row.document(SessionConfiguration.self, Columns.configuration) ?? .blank
        group = configuration.group.flatMap { UInt32.group(named: $0) }
        relaunch = row.document(Relaunch.self, Columns.relaunch) ?? .blank
        last = row[Columns.last]
        acknowledged = row[Columns.acknowledged]
    }
}

/// An event that its client has not acknowledged.
struct EventRecord: Codable, Sendable {
    var session: Int64
    var sequence: Int64
    var task: Int64
    /// Whether it is the end of the task.
    var final: Bool
    /// The event in its stored form.
    var body: Data
}

extension EventRecord: FetchableRecord, PersistableRecord {
    static let databaseTableName = "event"

    enum Columns: String, ColumnExpression {
        case session, sequence, task, final, body
    }

    /// The event; of one that is damaged, that its task was lost, so that those after it are told.
    var event: SessionEvent {
        var event: SessionEvent
        do {
            event = try StoredForm.decode(SessionEvent.self, from: body)
        } catch {
            event = SessionEvent(.failed, time: .now)
            event.failure = FullTask.loss
        }
        event.sequence = sequence
        event.task = task
        return event
    }
}

/// What a cancelled or failed download left behind, for another one to go on with.
struct Remnant: Codable, Sendable {
    var token: String
    var user: UInt32
    var part: String
    var url: String
    var expires: Date
}

extension Remnant: FetchableRecord, PersistableRecord {
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

/// The files of a task that is deleted.
struct TaskFiles: FetchableRecord, TableRecord {
    static let databaseTableName = TaskRecord.databaseTableName
    static var databaseSelection: [any SQLSelectable] {
        [TaskRecord.Columns.id, TaskRecord.Columns.part]
    }

    var id: Int64
    var part: String

    init(row: Row) {
        id = row[TaskRecord.Columns.id]
        part = row[TaskRecord.Columns.part]
    }
}

/// What was removed with events that were acknowledged.
struct Removed: Sendable {
    var tasks: [Int64]
    var parts: [String]
}

extension Removed {
    /// Takes tasks that are deleted, without the files that a resume token keeps, or another task goes on with.
    init(_ deleted: [TaskFiles], in database: Database) throws {
        let users = try database.cachedStatement(
            sql: """
                SELECT EXISTS (SELECT 1 FROM remnant WHERE part = ?1)
                    OR EXISTS (SELECT 1 FROM task WHERE part = ?1 AND part <> 'task-' || id)
                """
        )
        tasks = deleted.map(\.id)
        parts = try deleted.map(\.part).filter {
            try Bool.fetchOne(users, arguments: [$0]) != true
        }
    }
}

extension Row {
    /// The document that a column has; `nil` if it has none, or none that can be read.
    func document<Document: StoredDocument>(
        _ type: Document.Type,
        _ column: some ColumnExpression
    ) -> Document? {
        // Only the disk can have damaged it: the caller says what stands in its place.
        (self[column] as Data?).flatMap { try? StoredForm.decode(type, from: $0) }
    }

    /// Whether a column is not `NULL`.
    fileprivate func hasValue(_ column: some ColumnExpression) -> Bool {
        !(self[column] as DatabaseValue).isNull
    }
}
