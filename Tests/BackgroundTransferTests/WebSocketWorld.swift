import BackgroundTransfer
import Foundation
import Logging
import StageOrigin
import StageSystem
import StageTesting
import StageWebSocket
import Synchronization
import Testing

/// A delegate that records its calls for WebSocket tasks, which it numbers in the order of their creation.
final class SocketRecorder: NSObject, URLSessionWebSocketDelegate {
    private struct State {
        var lines: [String] = []
        var identifiers: [Int] = []
    }

    private let state = Mutex(State())

    /// Calls so far, a line for each.
    var lines: [String] { state.withLock { $0.lines } }

    /// Waits until the delegate has recorded a line.
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

/// Runs a script for each connection to the test's server; returns the URL of the connection.
func serve(
    subprotocols: [String] = [],
    _ script: @escaping @Sendable (inout WebSocketPeer) -> Void
) throws -> URL {
    TestServer.current.answer("/socket", with: .webSocket(subprotocols: subprotocols, script))
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
