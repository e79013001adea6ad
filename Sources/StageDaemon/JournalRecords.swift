import Foundation
import GRDB
import StageControl
import StageSystem

/// How far a task has got, as it is on disk; the rest is recomputed.
enum StoredState: Int, Sendable {
    /// It waits or runs.
    case active = 0
    /// Its content is here and good, and its end is in ``TaskRecord/outcome``; what is left is to
    /// give it its place (P5).
    case verified = 1
    /// It has ended, and so says an event (P6).
    case ended = 2
}

/// What the scheduler has to know of a task.
struct TaskRecord: Sendable {
    var id: Int64
    var session: Int64
    var state: StoredState
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
    /// The number of the user who created it: the session's, or a member of its group.
    var creator: UInt32
    /// Whether an earlier attempt has sent what is not to be sent twice, and was not seen to its end.
    var hasProvisionalEnd: Bool

    static let columns = """
        id, session, state, host, priority, needs, blocks, earliest, created, deadline, part, file,
        creator, outcome IS NOT NULL AS hasOutcome
        """

    init(_ row: Row) {
        id = row["id"]
        session = row["session"]
        state = StoredState(rawValue: row["state"]) ?? .active
        host = row["host"]
        priority = row["priority"]
        needs = Needs(rawValue: row["needs"])
        blocks = Scheduler.Blocks(rawValue: row["blocks"])
        earliest = (row["earliest"] as Double?).map(Date.init(timeIntervalSince1970:))
        created = Date(timeIntervalSince1970: row["created"])
        deadline = Date(timeIntervalSince1970: row["deadline"])
        part = row["part"]
        file = row["file"]
        creator = row["creator"]
        hasProvisionalEnd = state == .active && row["hasOutcome"]
    }
}

/// A task with everything.
struct FullTask: Sendable {
    var record: TaskRecord
    var request: TransferRequest
    /// The event of its end, once that is settled.
    var outcome: SessionEvent?
    /// Whether ``request`` cannot be read any more; it then has the token alone.
    var isLost = false

    static let columns = TaskRecord.columns + ", token, request, outcome"

    /// Reads a row.
    ///
    /// What is damaged in it is the loss of one task, and of no listing.
    init(_ row: Row) {
        record = TaskRecord(row)
        if let request = row.json(TransferRequest.self, "request") {
            self.request = request
        } else {
            request = TransferRequest(token: row["token"], kind: .download, url: "")
            isLost = true
        }
        outcome = row.json(SessionEvent.self, "outcome")
    }

    /// The failure that a task ends in whose row is damaged.
    static let loss = TransferFailure(
        .lost,
        reason: "the daemon's record of the task is damaged; create the task again"
    )
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
struct SessionRights: Codable, Equatable, Sendable {
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

    /// Reads a row; blocks the thread while the group database is asked.
    ///
    /// In place of what is damaged come defaults: no handler, no headers, no groups.
    init(_ row: Row) {
        id = row["id"]
        user = row["user"]
        identifier = row["identifier"]
        rights = row.json(SessionRights.self, "rights") ?? SessionRights(group: .max, groups: [])
        configuration =
            row.json(SessionConfiguration.self, "configuration") ?? SessionConfiguration()
        group = configuration.group.flatMap { UInt32.group(named: $0) }
        relaunch = row.json(Relaunch.self, "relaunch") ?? Relaunch()
        last = row["last"]
        acknowledged = row["acknowledged"]
    }
}

/// What a cancelled or failed download left behind, for another one to go on with.
struct Remnant: Sendable {
    var token: String
    var user: UInt32
    var part: String
    var url: String
    var expires: Date
}

/// What was removed with events that were acknowledged.
struct Removed: Sendable {
    var tasks: [Int64]
    var parts: [String]
}

extension Removed {
    /// Takes the rows of tasks that are deleted, without the files that a resume token keeps, or another task
    /// goes on with.
    init(_ rows: [Row], in database: Database) throws {
        let users = try database.cachedStatement(
            sql: """
                SELECT EXISTS (SELECT 1 FROM remnant WHERE part = ?1)
                    OR EXISTS (SELECT 1 FROM task WHERE part = ?1 AND part <> 'task-' || id)
                """
        )
        tasks = rows.map { $0["id"] }
        parts = try rows.compactMap { row -> String? in
            let part: String = row["part"]
            return try Bool.fetchOne(users, arguments: [part]) == true ? nil : part
        }
    }
}

extension Row {
    /// The value that a column has as JSON; `nil` if it has none, or none that can be read.
    func json<Value: Decodable>(_ type: Value.Type, _ column: String) -> Value? {
        // Only the disk can have damaged it: the caller says what stands in its place.
        (self[column] as Data?).flatMap { try? ControlFormat.decode(type, from: $0) }
    }
}
