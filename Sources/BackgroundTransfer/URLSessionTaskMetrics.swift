public import Foundation
public import FoundationNetworking
import StageControl
import StageModel

/// What a task has cost.
public final class URLSessionTaskMetrics: NSObject, Sendable {
    /// From the first attempt, or the end where there was none, to the end of the task.
    public let taskInterval: DateInterval
    /// How many redirects the last attempt followed.
    public let redirectCount: Int
    /// The last attempt that was answered, if one was; earlier ones are not recorded one by one.
    public let transactionMetrics: [URLSessionTaskTransactionMetrics]
    /// How often a server was asked.
    ///
    /// Not of Apple's class.
    public let attemptCount: Int
    /// The bytes of bodies that were received, failed attempts included.
    ///
    /// Not of Apple's class.
    public let countOfBytesReceived: Int64
    /// The bytes of bodies that were sent, failed attempts included.
    ///
    /// Not of Apple's class.
    public let countOfBytesSent: Int64

    init(_ metrics: TransferMetrics, request: URLRequest?, response: URLResponse?) {
        let start = min(metrics.started ?? metrics.ended, metrics.ended)
        taskInterval = DateInterval(start: start, end: metrics.ended)
        redirectCount = metrics.redirects
        attemptCount = metrics.attempts
        countOfBytesReceived = metrics.bytesReceived.rawValue
        countOfBytesSent = metrics.bytesSent.rawValue
        if let request, let response {
            transactionMetrics = [
                URLSessionTaskTransactionMetrics(
                    request: request,
                    response: response,
                    responseEndDate: metrics.ended
                )
            ]
        } else {
            transactionMetrics = []
        }
    }
}

/// What is known of one attempt: what was asked and answered, and when it ended.
///
/// Unchecked, since `URLRequest` and `URLResponse` are values and objects that do not change.
public final class URLSessionTaskTransactionMetrics: NSObject, @unchecked Sendable {
    /// What was asked.
    public let request: URLRequest
    /// What was answered.
    public let response: URLResponse?
    /// When the body was complete.
    public let responseEndDate: Date?

    init(request: URLRequest, response: URLResponse?, responseEndDate: Date?) {
        self.request = request
        self.response = response
        self.responseEndDate = responseEndDate
    }
}
