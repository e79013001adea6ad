import StageTesting
import StageTransfer
import StageWebSocket
import StageWebSocketClient
import Synchronization
import Testing

/// URL of the server's connections.
var socketURL: String { "ws://127.0.0.1:\(TestServer.current.port)/socket" }

/// A policy that retries soon.
func quickPolicy(
    _ change: (inout WebSocketReconnectPolicy) -> Void = { _ in }
) -> WebSocketReconnectPolicy {
    var policy = WebSocketReconnectPolicy()
    policy.initialDelay = .milliseconds(10)
    policy.maximumDelay = .milliseconds(20)
    change(&policy)
    return policy
}

/// Sets the responses to the opening handshakes; the last one repeats.
func serve(_ answers: Answer...) {
    TestServer.current.answer("/socket", with: answers)
}

/// Runs `body` with an engine and a reconnecting connection to the server.
func withSocket<Result>(
    to url: String = socketURL,
    _ policy: WebSocketReconnectPolicy = quickPolicy(),
    _ options: WebSocketOptions = WebSocketOptions(),
    _ body: (ReconnectingWebSocketEvents, ReconnectingWebSocketWriter) async throws -> Result
) async throws -> Result {
    try await withEngine { engine in
        try await WebSocket.withReconnectingConnection(
            to: url,
            over: engine,
            options: options,
            policy: policy,
            body
        )
    }
}

/// Events of connections to the server, a line for each.
final class EventLines: Sendable {
    private let state = Mutex<[String]>([])
    private let delays = Mutex<[Duration]>([])

    /// The lines so far.
    var lines: [String] { state.withLock { $0 } }
    /// The delays before reconnection attempts so far.
    var retryDelays: [Duration] { delays.withLock { $0 } }

    /// Adds an event.
    func add(_ event: ReconnectingWebSocketEvent) {
        let line =
            switch event {
            case .connected: "connected"
            case .message(.text(let text)): text
            case .message(.binary(let bytes)): "\(bytes.count) bytes"
            case .disconnected(let end): "\(end.reason), \(end.failures) in a row"
            }
        state.withLock { $0.append(line) }
        if case .disconnected(let end) = event { delays.withLock { $0.append(end.retryDelay) } }
    }

    /// Adds the error that a sequence throws, or its end.
    func read(
        to url: String = socketURL,
        _ policy: WebSocketReconnectPolicy = quickPolicy(),
        _ options: WebSocketOptions = WebSocketOptions()
    ) async throws {
        let last: String
        do {
            try await withSocket(to: url, policy, options) { events, _ in
                for try await event in events { add(event) }
            }
            last = "end"
        } catch let error as WebSocketClientError {
            last = "error: \(error)"
        }
        state.withLock { $0.append(last) }
    }
}
