import Foundation
import FoundationNetworking
import StageControl
import StageModel
import StageTransfer
import Synchronization

/// Last response to a transfer in this process, with the times of its request.
struct ForegroundResponse {
    /// Head of the response.
    var head: ResponseSummary
    /// Time when the request was sent.
    var asked: Date
    /// Time when the head of the response arrived.
    var answered: Date
    /// Number of redirects before the response.
    var redirects: Int
}

extension URLSessionTask {
    /// Records that a request is being sent.
    func noteRequest(at time: Date = .now) {
        record.withLock { $0.process?.noteRequest(at: time) }
    }

    /// Records the head of a response.
    ///
    /// - Parameters:
    ///   - head: The head.
    ///   - time: Time when it arrived.
    ///   - redirects: Number of redirects before it; `nil` for the number that the engine has followed.
    func takeHead(_ head: ResponseSummary, at time: Date = .now, redirects: Int? = nil) {
        record.withLock { record in
            let asked = record.process?.asked ?? time
            record.process?.lastResponse = ForegroundResponse(
                head: head,
                asked: asked,
                answered: time,
                redirects: redirects ?? head.redirects
            )
            record.response = HTTPURLResponse(TransferResponse(head))
        }
        storeCredential(afterStatus: head.status)
    }
}

extension ClientTaskState {
    /// Returns the metrics of a transfer in this process that ended at a date.
    func metrics(ended: Date) -> TransferMetrics {
        var metrics = TransferMetrics(ended: ended)
        metrics.started = process?.started
        metrics.attempts = process?.attempts ?? 0
        metrics.bytesReceived = ByteCount(bytesReceived)
        metrics.bytesSent = ByteCount((process?.bytesSentBefore ?? 0) + bytesSent)
        guard let answer = process?.lastResponse else { return metrics }
        metrics.redirects = answer.redirects
        var attempt = AttemptMetrics()
        attempt.fetchStart = answer.asked
        attempt.responseStart = answer.answered
        attempt.responseEnd = ended
        attempt.bytesReceived = bytesReceived
        attempt.bytesSent = bytesSent
        if let connection = answer.head.connection { attempt.note(connection) }
        metrics.attempt = attempt
        return metrics
    }
}

extension AttemptMetrics {
    /// Records the times and addresses of a connection.
    fileprivate mutating func note(_ connection: ConnectionSummary) {
        func seconds(_ duration: Duration) -> Double { duration / .seconds(1) }
        nameLookup = seconds(connection.nameLookup)
        connect = connection.connect.map(seconds)
        secureConnect = connection.secureConnect.map(seconds)
        requestStart = seconds(connection.requestStart)
        firstByte = seconds(connection.firstByte)
        networkProtocol = connection.networkProtocol
        (remoteAddress, remotePort) = connection.remote
        (localAddress, localPort) = connection.local
        isReusedConnection = connection.isReused
        requestHeaderBytes = connection.requestHeaderBytes
        responseHeaderBytes = connection.responseHeaderBytes
    }
}

extension TransferResponse {
    /// Creates the daemon's representation of a response's head.
    init(_ head: ResponseSummary) {
        self.init(
            url: head.url,
            status: head.status,
            headers: head.fields.map { [$0.name, $0.value] }
        )
    }
}
