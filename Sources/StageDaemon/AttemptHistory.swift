import FoundationEssentials
import StageControl
import StageModel

/// An attempt of a task as its transfer describes it.
struct AttemptReport: Sendable {
    var received = ByteCount.zero
    var sent = ByteCount.zero
    /// The bytes that the server of an upload that resumes has.
    var stored = ByteCount.zero
    var total: ByteCount?
    /// The number of requests that were sent.
    var attempts = 0
    var problem: String?
    /// Whether the problem is that no answer came.
    var isUnreachable = false
    /// When the first request was sent.
    var started: Date?
    var redirects = 0
    /// The head of the answer, bounded for lists.
    var response: TransferResponse?
    /// The whole head of the answer, which is a challenge's.
    var challenge: TransferResponse?
    /// The body of the answer to an upload that is a challenge.
    var challengeBody: Data?
    /// Whether an answer came whose status usually leads to another attempt.
    var hasTransientStatus = false
    /// Whether the answer is that another request holds the upload resource (423).
    var isLocked = false
    var metrics: AttemptMetrics?

    /// The part of the body of an answer to an upload that is kept.
    static func body(_ bytes: [UInt8]) -> Data? {
        bytes.isEmpty ? nil : Data(bytes.prefix(64 << 10))
    }
}

/// The results of the earlier attempts of an unfinished task, which are not persisted.
struct AttemptHistory: Sendable {
    /// The number of attempts in a row that failed without receiving much.
    var failures = 0
    var problem: String?
    /// The bytes of the content that earlier attempts received.
    private(set) var received = ByteCount.zero
    /// The bytes of the file that the last attempt sent.
    private(set) var sent = ByteCount.zero
    /// The most bytes that the server of an upload that resumes had.
    private var stored = ByteCount.zero
    private(set) var total: ByteCount?
    private(set) var attempts = 0
    /// The head of the last attempt's answer.
    private(set) var response: TransferResponse?
    /// The metrics of the last attempt.
    private(set) var metrics: AttemptMetrics?
    /// The number of redirects that the last attempt followed.
    private(set) var redirects = 0
    /// When the first attempt began.
    private(set) var started: Date?
    /// The answers in a row whose status led to another attempt: one point for an upload that is locked, two for others.
    private var refusalPoints = 0

    /// Whether the next attempt takes an answer whose status usually leads to another attempt.
    ///
    /// A server that is overloaded for a minute ends no transfer; an application is not left waiting for a week for
    /// an answer that is always the same.
    var takesAnyAnswer: Bool { refusalPoints >= Self.mostRefusalPoints }

    /// The points of answers in a row that lead to another attempt: five answers, with the usual waits those of about a
    /// minute, or ten of a locked upload, those of a quarter of an hour: a server may take minutes to notice that a
    /// request broke off, and has lost nothing.
    private static let mostRefusalPoints = 10

    /// Adds an attempt that has ended.
    mutating func note(_ report: AttemptReport) {
        // An attempt that received content is worth repeating soon.
        if report.received > received + .kibibytes(256) { failures = 0 }
        // And so is an upload that got much further than ever, or to its end.
        let isWhole = report.stored == report.total && report.stored > stored
        if report.stored >= stored + .kibibytes(256) || isWhole {
            (failures, stored) = (0, report.stored)
        }
        received = report.received
        sent = report.sent
        attempts += report.attempts
        problem = report.problem
        total = report.total
        metrics = report.metrics
        started = started ?? report.started
        redirects = report.redirects
        response = report.response
    }

    /// Counts an attempt that is repeated, and its answer if the status of that is the reason.
    ///
    /// A connection that breaks within the content is no refusal.
    mutating func noteFailure(_ report: AttemptReport) {
        failures += 1
        let points = report.hasTransientStatus ? 2 : report.isLocked ? 1 : 0
        refusalPoints = points > 0 ? refusalPoints + points : 0
    }

    /// The event of a task's end in an error, or by its client.
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

    /// The metrics of a task that has ended in an error.
    func metrics(ended now: Date) -> TransferMetrics {
        var metrics = TransferMetrics(ended: now)
        metrics.attempts = attempts
        metrics.started = started
        metrics.attempt = self.metrics
        metrics.redirects = redirects
        return metrics
    }
}
