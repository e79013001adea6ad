import Foundation
import FoundationNetworking

/// State of a task that this process carries out.
struct ForegroundTaskState {
    /// Request after redirects.
    var current: URLRequest?
    /// Time when the first request was sent.
    private(set) var started: Date?
    /// Time when the last request was sent.
    private(set) var asked: Date?
    /// Number of requests.
    private(set) var attempts = 0
    /// Last response of a server.
    var lastResponse: ForegroundResponse?
    /// Body bytes of earlier requests.
    var bytesSentBefore = Int64(0)

    /// Records that a request is being sent.
    mutating func noteRequest(at time: Date) {
        started = started ?? time
        asked = time
        attempts += 1
    }
}
