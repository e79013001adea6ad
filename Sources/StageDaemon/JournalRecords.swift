import Foundation
import GRDB
import StageControl

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
    /// The number of the user who created it: the session's, or a member of its group.
    var creator: UInt32

    static let columns = """
        id, session, state, host, priority, needs, blocks, earliest, created, deadline, part, creator
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
        creator = row["creator"]
    }
}

/// A task with everything.
struct FullTask: Sendable {
    var record: TaskRecord
    var request: TransferRequest
    /// The event of its end, once that is settled.
    var outcome: SessionEvent?

    static let columns = TaskRecord.columns + ", request, outcome"

    init(_ row: Row) throws {
        record = TaskRecord(row)
        request = try ControlFormat.decode(TransferRequest.self, from: row["request"])
        outcome = try (row["outcome"] as Data?).map {
            try ControlFormat.decode(SessionEvent.self, from: $0)
        }
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
    var relaunch: Relaunch
    var last: Int64
    var acknowledged: Int64

    init(_ row: Row) throws {
        id = row["id"]
        user = row["user"]
        identifier = row["identifier"]
        rights = try ControlFormat.decode(SessionRights.self, from: row["rights"])
        configuration = try ControlFormat.decode(
            SessionConfiguration.self,
            from: row["configuration"]
        )
        relaunch = try ControlFormat.decode(Relaunch.self, from: row["relaunch"])
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
