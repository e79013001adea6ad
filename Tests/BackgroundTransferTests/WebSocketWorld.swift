import BackgroundTransfer
import Foundation
import Logging
import StageOrigin
import StageSystem
import StageTesting
import StageWebSocket
import Synchronization
import Testing

/// A delegate that writes down what it is told of WebSocket tasks, which it numbers in the order of their creation.
final class SocketRecorder: NSObject, URLSessionWebSocketDelegate {
    private struct State {
        var lines: [String] = []
        var identifiers: [Int] = []
    }

    private let state = Mutex(State())

    /// Calls so far, a line for each.
    var lines: [String] { state.withLock { $0.lines } }

    /// Waits until the delegate was told a line.
    func wait(for line: String) async throws {
        do {
            try await poll { lines.contains(line) }
        } catch {
            Issue.record("expected '\(line)', found \(lines)")
            throw error
        }
    }

    private func add(_ line: String) { state.withLock { $0.lines.append(line) } }

    private func number(of task: URLSessionTask) -> Int {
        state.withLock { ($0.identifiers.firstIndex(of: task.taskIdentifier) ?? -1) + 1 }
    }

    func urlSession(_ session: URLSession, didCreateTask task: URLSessionTask) {
        state.withLock { $0.identifiers.append(task.taskIdentifier) }
        add("created \(number(of: task))")
    }

    func urlSession(
        _ session: URLSession,
        webSocketTask: URLSessionWebSocketTask,
        didOpenWithProtocol protocol: String?
    ) { add("opened \(number(of: webSocketTask)): \(`protocol` ?? "-")") }

    func urlSession(
        _ session: URLSession,
        webSocketTask: URLSessionWebSocketTask,
        didCloseWith closeCode: URLSessionWebSocketTask.CloseCode,
        reason: Data?
    ) {
        let reason = reason.map { String(decoding: $0, as: UTF8.self) } ?? "-"
        add("closed \(number(of: webSocketTask)): \(closeCode.rawValue) \(reason)")
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) { add("completed \(number(of: task)): \(error.map(name) ?? "well")") }

    func urlSession(_ session: URLSession, didBecomeInvalidWithError error: (any Error)?) {
        add("invalid: \(error.map(name) ?? "well")")
    }
}

/// The domain and code of an error.
func name(_ error: any Error) -> String {
    switch error {
    case let error as URLError: "URL \(error.code.rawValue)"
    case let error as POSIXError: "POSIX \(error.code)"
    default: "\(error)"
    }
}

/// The server's side of a WebSocket connection, in a script of ``TestServer``.
struct Peer: ~Copyable {
    private let wire: Wire
    private var machine: WebSocketMachine

    /// Accepts the handshake of a connection, with a subprotocol of these where it is offered.
    init(_ wire: Wire, subprotocols: [String] = []) {
        self.wire = wire
        let names = [
            "host", "upgrade", "connection", "sec-websocket-key", "sec-websocket-version",
            "sec-websocket-protocol",
        ]
        let head = HTTPHead(
            line: "GET \(wire.request.target) HTTP/1.1",
            fields: names.compactMap { name in
                wire.request[name].map { WebSocketField(name: name, value: $0) }
            }
        )
        switch ServerHandshake(subprotocols: subprotocols).answer(to: head) {
        case .accept(let head, _, _), .refuse(let head): wire.send(head.bytes)
        }
        machine = WebSocketMachine(role: .server)
    }

    /// Waits for the next event, and returns `nil` at the end of the connection.
    mutating func next() -> WebSocketEvent? {
        while true {
            if let event = machine.nextEvent() {
                flush()
                return event
            }
            flush()
            // The server ends the connection (RFC 6455, section 7.1.1).
            if machine.isFinished { return nil }
            let bytes = wire.receive()
            guard !bytes.isEmpty else { return nil }
            machine.receive(bytes.span)
        }
    }

    /// Sends a message.
    mutating func send(_ message: WebSocketMessage) {
        // A closed connection takes nothing.
        try? machine.send(message)
        flush()
    }

    /// Sends a close frame.
    mutating func close(_ code: UInt16, reason: String = "") {
        machine.close(WebSocketClose(code: CloseCode(rawValue: code), reason: reason))
        flush()
    }

    private mutating func flush() {
        let output = machine.takeOutput()
        if !output.isEmpty { wire.send(output) }
    }
}

/// Has the server of the test follow a script; returns the URL of the connection.
func serve(
    subprotocols: [String] = [],
    _ script: @escaping @Sendable (inout Peer) -> Void
) throws -> URL {
    TestServer.current.answer(
        "/socket",
        with: .script { wire in
            var peer = Peer(wire, subprotocols: subprotocols)
            script(&peer)
        }
    )
    return try URL(text: "ws://127.0.0.1:\(TestServer.current.port)/socket")
}

/// Runs `body` with the URL of the echo of 'stagepack serve'; the test needs the trait `.directory`.
func withEcho<Result>(_ body: (URL) async throws -> Result) async throws -> Result {
    try await withOrigin(
        try TemporaryDirectory.required().path,
        configuration: OriginConfiguration(),
        logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    ) { address in
        try await body(try URL(text: "ws://127.0.0.1:\(address.port)/.stagepack/echo"))
    }
}

/// Runs `body` with a session in this process, and ends it.
func withSession<Result>(
    _ configuration: URLSessionConfiguration = .default,
    _ body: (URLSession, SocketRecorder) async throws -> Result
) async throws -> Result {
    let recorder = SocketRecorder()
    let session = URLSession(
        configuration: configuration,
        delegate: recorder,
        delegateQueue: nil
    )
    defer { session.invalidateAndCancel() }
    return try await body(session, recorder)
}

extension URLSessionWebSocketTask.Message: Equatable {
    static func == (one: Self, other: Self) -> Bool {
        switch (one, other) {
        case (.data(let one), .data(let other)): one == other
        case (.string(let one), .string(let other)): one == other
        default: false
        }
    }
}
