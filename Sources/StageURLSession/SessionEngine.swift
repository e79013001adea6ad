import Foundation
import Logging
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// Transfer engine of a session in this process.
///
/// It starts with the first task and ends half a minute after the last one, so that the next task can reuse open
/// connections.
final class SessionEngine: Sendable {
    /// Performs the transfers of one task.
    ///
    /// The argument is `nil` if the process cannot create the engine's thread; the task must then fail.
    typealias Work = @Sendable (TransferEngine?) async -> Void

    /// Work with the priority of the task that asked for it.
    private struct PrioritizedWork {
        var priority: TaskPriority
        var body: Work
    }

    private struct State {
        var count = 0
        /// Time when the last task ended.
        var idleSince = ContinuousClock.now
        /// `true` while a task waits for the time at which an idle engine ends.
        var hasTimer = false
        var isInvalidated = false
        var added: AsyncStream<PrioritizedWork>.Continuation?
    }

    private static let idleLimit = Duration.seconds(30)

    private let connectTimeout: Duration
    private let connectionsPerHost: Int
    private let state = Mutex(State())

    /// Creates the engine of a session without starting it.
    init(_ rules: URLSessionConfiguration) {
        connectTimeout = .limit(rules.timeoutIntervalForRequest)
        connectionsPerHost = max(rules.httpMaximumConnectionsPerHost, 1)
    }

    /// Runs the transfers of a task concurrently with others.
    func run(_ work: @escaping Work) {
        state.withLock { state in
            state.count += 1
            if state.added == nil { state.added = start() }
            state.added?.yield(
                PrioritizedWork(priority: Task.currentPriority) { [self] engine in
                    await work(engine)
                    end()
                }
            )
        }
    }

    /// Ends the engine after the last running task.
    func invalidate() {
        state.withLock { state in
            state.isInvalidated = true
            if state.count == 0 { state.added.take()?.finish() }
        }
    }

    private func end() {
        let needsTimer = state.withLock { state in
            state.count -= 1
            guard state.count == 0 else { return false }
            if state.isInvalidated { state.added.take()?.finish() }
            state.idleSince = .now
            guard state.added != nil, !state.hasTimer else { return false }
            state.hasTimer = true
            return true
        }
        guard needsTimer else { return }
        // Unstructured: no task of the application lasts until the engine is idle.
        Task { [weak self] in
            var wait = Self.idleLimit
            while true {
                try? await Task.sleep(for: wait)
                guard let rest = self?.endIfIdle() else { return }
                wait = rest
            }
        }
    }

    /// Ends the engine if it was idle for long enough, and returns the time until then if it is idle.
    ///
    /// `nil` ends the timer; the next end of the last task starts another one.
    private func endIfIdle() -> Duration? {
        state.withLock { state in
            let end = state.idleSince + Self.idleLimit
            let rest = end - .now
            if state.added != nil, state.count == 0, rest > .zero { return rest }
            state.hasTimer = false
            if state.count == 0 { state.added.take()?.finish() }
            return nil
        }
    }

    deinit { state.withLock { $0.added }?.finish() }

    /// Starts an engine that ends with the stream of its work.
    private func start() -> AsyncStream<PrioritizedWork>.Continuation {
        let (added, continuation) = AsyncStream.makeStream(of: PrioritizedWork.self)
        var configuration = TransferConfiguration()
        let environment = ProcessEnvironment.current
        configuration.proxies = ProxySettings(environment: environment)
        configuration.certificateAuthorities =
            (environment["CURL_CA_BUNDLE"] ?? environment["SSL_CERT_FILE"]).map { FilePath($0) }
        configuration.connectTimeout = connectTimeout
        configuration.connectionsPerHost = connectionsPerHost
        configuration.connections = 64
        // With adapted limits, an endless response could hold the only connection, and a session does not repeat requests.
        configuration.adaptsConnections = false
        configuration.retry.maximumAttempts = 1
        let rules = configuration
        // Detached: the application's methods return at once, so no task of the application could wait for the engine, and
        // transfers must not inherit the priority of the task that has started the engine.
        Task.detached { [weak self] in
            let logger = Logger(label: "stage-session") { _ in SwiftLogNoOpLogHandler() }
            await withTransferEngine(rules, logger: logger) { engine in
                await Self.perform(added, over: engine)
            } orElse: { _ in
                // The next task starts another engine.
                self?.state.withLock { $0.added.take()?.finish() }
                await Self.perform(added, over: nil)
            }
        }
        return continuation
    }

    /// Performs work until its stream has ended.
    private static func perform(
        _ added: AsyncStream<PrioritizedWork>,
        over engine: TransferEngine?
    ) async {
        await withDiscardingTaskGroup { group in
            for await work in added {
                group.addTask(priority: work.priority) { await work.body(engine) }
            }
        }
    }
}
