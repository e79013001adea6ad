import Foundation
import Logging
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// The connections of a session's WebSocket tasks, on a transfer engine that runs while there are any.
final class WebSocketConnections: Sendable {
    /// A connection from its handshake to its end.
    typealias Connection = @Sendable (TransferEngine) async -> Void

    private struct State {
        var count = 0
        var added: AsyncStream<Connection>.Continuation?
    }

    private let timeout: Duration
    private let state = Mutex(State())

    /// Creates the connections of a session.
    init(_ rules: URLSessionConfiguration) { timeout = .limit(rules.timeoutIntervalForRequest) }

    /// Runs a connection, beside others.
    func run(_ connection: @escaping Connection) {
        state.withLock { state in
            state.count += 1
            if state.added == nil { state.added = start() }
            state.added?.yield { [self] engine in
                await connection(engine)
                end()
            }
        }
    }

    private func end() {
        state.withLock { state in
            state.count -= 1
            guard state.count == 0 else { return }
            state.added.take()?.finish()
        }
    }

    /// Starts an engine that ends with the last of its connections.
    private func start() -> AsyncStream<Connection>.Continuation {
        let (connections, continuation) = AsyncStream.makeStream(of: Connection.self)
        var configuration = TransferConfiguration()
        let environment = ProcessEnvironment.current
        configuration.proxies = ProxySettings(environment: environment)
        configuration.certificateAuthorities =
            (environment["CURL_CA_BUNDLE"] ?? environment["SSL_CERT_FILE"]).map { FilePath($0) }
        configuration.connectTimeout = timeout
        let rules = configuration
        // The application's methods return at once, so there is no task of its that could wait for the connections.
        Task {
            let logger = Logger(label: "stage-session") { _ in SwiftLogNoOpLogHandler() }
            await withTransferEngine(rules, logger: logger) { engine in
                await withDiscardingTaskGroup { group in
                    for await connection in connections {
                        group.addTask { await connection(engine) }
                    }
                }
            }
        }
        return continuation
    }
}
