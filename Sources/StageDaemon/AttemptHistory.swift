import FoundationEssentials
import StageControl
import StageModel

/// Outcome of one attempt, as its ``LiveTransfer`` reports it.
struct AttemptReport: Sendable {
    var received = ByteCount.zero
    var sent = ByteCount.zero
    /// Upload offset that the server has confirmed, for resumable uploads.
    var uploadOffset = ByteCount.zero
    var total: ByteCount?
    /// Number of requests sent.
    var attempts = 0
    var problem: String?
    /// Set if the host could not be reached.
    var isUnreachable = false
    /// Time of the first request.
    var started: Date?
    var redirects = 0
    /// Head of the response, with its header fields limited in size for task lists.
    var response: TransferResponse?
    /// Complete head of the response, used if it is a challenge.
    var challenge: TransferResponse?
    /// Response body of an upload, used if the response is a challenge.
    var challengeBody: Data?
    /// Set if the response has a status that the daemon usually retries.
    var hasTransientStatus = false
    /// Set if the server responded that another request has locked the upload resource (423).
    var isLocked = false
    var metrics: AttemptMetrics?

    /// Returns the first 64 KiB of an upload's response body, or `nil` if the body is empty.
    static func body(_ bytes: [UInt8]) -> Data? {
        bytes.isEmpty ? nil : Data(bytes.prefix(64 << 10))
    }
}

/// Results of earlier attempts of an unfinished task.
///
/// They are kept in memory only.
struct AttemptHistory: Sendable {
    /// Number of consecutive failed attempts without notable progress.
    var failures = 0
    var problem: String?
    /// Content bytes received by the last attempt, including what it resumed from.
    private(set) var received = ByteCount.zero
    /// File bytes sent by the last attempt.
    private(set) var sent = ByteCount.zero
    /// Maximum of the content bytes that an attempt had, including those that it resumed from.
    private(set) var highestReceived = ByteCount.zero
    /// Highest upload offset that the server of a resumable upload has confirmed.
    private var highestUploadOffset = ByteCount.zero
    private(set) var total: ByteCount?
    private(set) var attempts = 0
    /// Head of the last attempt's response.
    private(set) var response: TransferResponse?
    /// Metrics of the last attempt.
    private(set) var metrics: AttemptMetrics?
    /// Number of redirects followed by the last attempt.
    private(set) var redirects = 0
    /// Start of the first attempt.
    private(set) var started: Date?
    /// Number of times that the received content could not be committed.
    private var failedCommits = 0
    /// Points for consecutive responses with a retried status: one for a locked upload, two for any other.
    private var refusalPoints = 0

    /// Creates the history of a task without attempts; an earlier run of the daemon has received `received` bytes of its content.
    init(received: ByteCount = .zero) { self.received = received }

    /// Set if the next attempt accepts any status, including those that are usually retried.
    ///
    /// A server that is overloaded for a minute does not end a transfer. A status that never changes does, because otherwise
    /// the application would wait for a week.
    var acceptsAnyStatus: Bool { refusalPoints >= Self.mostRefusalPoints }

    /// Limit of ``refusalPoints``: five responses, which take about a minute with the usual delays, or ten of a
    /// locked upload, about a quarter of an hour.
    ///
    /// A server may need minutes to notice that a request was interrupted, and has lost nothing meanwhile.
    private static let mostRefusalPoints = 10

    /// Adds the report of an attempt that has ended.
    mutating func note(_ report: AttemptReport) {
        // Progress resets the backoff: a download that received content is retried soon, unless an earlier attempt had
        // that content and lost it.
        if report.received >= highestReceived + .kibibytes(256) {
            (failures, highestReceived) = (0, report.received)
        }
        // An upload that advanced by 256 KiB beyond its highest offset, or reached its end, resets the backoff, too.
        let isWhole =
            report.uploadOffset == report.total && report.uploadOffset > highestUploadOffset
        if report.uploadOffset >= highestUploadOffset + .kibibytes(256) || isWhole {
            (failures, highestUploadOffset) = (0, report.uploadOffset)
        }
        received = report.received
        sent = report.sent
        attempts += report.attempts
        problem = report.problem
        // A server that was not reached has not changed the size.
        if report.response != nil || report.total != nil { total = report.total }
        metrics = report.metrics
        started = started ?? report.started
        redirects = report.redirects
        response = report.response
    }

    /// Replaces the head of the last response.
    mutating func keep(_ head: TransferResponse?) { response = head }

    /// Counts a failed attempt that will be retried, and adds points if the status of its response is the reason.
    ///
    /// A connection that breaks in the middle of the content adds no points.
    mutating func noteFailure(_ report: AttemptReport) {
        failures += 1
        let points = report.hasTransientStatus ? 2 : report.isLocked ? 1 : 0
        refusalPoints = points > 0 ? refusalPoints + points : 0
    }

    /// Counts a failed commit, and returns the number of them.
    mutating func noteFailedCommit() -> Int {
        failedCommits += 1
        return failedCommits
    }

    /// Returns the final event of a task that failed or was cancelled.
    func ending(
        _ kind: SessionEvent.Kind,
        of request: TransferRequest,
        at now: Date
    ) -> SessionEvent {
        var event = SessionEvent(kind, time: now)
        event.response = response
        if request.kind == .download { event.bytesReceived = received }
        if request.kind == .upload { event.bytesSent = sent }
        event.bytesExpected = request.size ?? total
        return event
    }

    /// Returns the metrics of a task that failed.
    func metrics(ended now: Date) -> TransferMetrics {
        var metrics = TransferMetrics(ended: now)
        metrics.attempts = attempts
        metrics.started = started
        metrics.attempt = self.metrics
        metrics.redirects = redirects
        return metrics
    }
}
