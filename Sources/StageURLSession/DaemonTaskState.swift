import FoundationEssentials
import StageControl

/// State in the client of a task that the daemon carries out.
struct DaemonTaskState {
    /// The daemon's number of the task.
    var number: Int64?
    /// Time of creation in this process; `nil` for a task that the daemon had before.
    let created: ContinuousClock.Instant?
    /// Value of the session's `attachments` when it learned of the task from the daemon; `nil` for a task of this process.
    var discoveryAttachment: Int?
    /// Reasons for which the task waits.
    var pendingReasons: [PendingReason] = []
    /// Pending reasons that the reader of the session's events received last.
    var reportedReasons: [PendingReason] = []
    /// Time of the last resumption; the daemon repeats the event, with this time, to a client that may have missed it.
    var lastResumption: Date?
    /// Number of events that were recorded.
    var eventCount = 0
    /// Number of requests to create the task that the daemon may have received.
    var requests = 0
    /// `true` if requests to create the task leave out its description and expected sizes, which the daemon may have refused.
    var omitsDetails = false
    /// Changes that have to be sent.
    var pending = TransferChange()
    /// `true` while a change is being sent to the daemon.
    var isSending = false

    /// `true` if the daemon has the task with all changes.
    var isStored: Bool { number != nil && pending == TransferChange() && !isSending }
}
