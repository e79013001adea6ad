package import Logging
import StageConditions
import StageControl
import StageSystem
import StageTransfer
package import SystemPackage

/// The daemon, which carries out transfers that outlive their clients.
///
/// Uses the socket that a service manager passes in the environment, and reports its state to the service manager
/// (sd_listen_fds(3), sd_notify(3)).
package struct Daemon: Sendable {
    /// State directory: journal, partial files and finished downloads.
    package var state: FilePath
    /// Path of the control socket, unless the service manager has opened one.
    package var socket: FilePath
    /// Configuration at the start.
    package var configuration: DaemonConfiguration
    /// Version that the daemon reports, also in its `User-Agent`.
    package var version: String
    /// Program that stages packs for users, `nil` if it is not installed: then only clients stage packs.
    package var worker: FilePath?

    private let logger: Logger

    /// Creates a daemon; ``run(reloads:)`` starts it.
    package init(
        state: FilePath,
        socket: FilePath,
        configuration: DaemonConfiguration,
        version: String,
        worker: FilePath? = nil,
        logger: Logger
    ) {
        self.state = state
        self.socket = socket
        self.configuration = configuration
        self.version = version
        self.worker = worker.flatMap { FileStatus.exists($0) ? $0 : nil }
        self.logger = logger
    }

    /// Runs until the task is cancelled, and keeps the bytes received by then.
    ///
    /// After a crash, the next run continues from what is on disk. Of a configuration in `reloads`, the settings for
    /// tasks, limits and launches take effect; network settings stay as they were at the start.
    ///
    /// - Throws: ``DaemonError`` if the daemon cannot start, or cannot write its journal any more.
    package func run(
        reloads: AsyncStream<DaemonConfiguration>
    ) async throws(DaemonError) {
        guard let stateLock = try await lockState() else { return }
        let lock = DirectoryLock(stateLock)
        defer { lock.end() }
        let path = state.appending("journal.sqlite")
        let lastChange = Journal.lastChange(of: path)
        let journal = try Journal.open(
            path,
            logger: logger
        ) { () throws(DaemonError) in try TransferFiles.setAside(state) }
        let files = try TransferFiles(state)
        files.recordHolder()
        let coordinator = TransferCoordinator(
            files: files,
            journal: journal,
            configuration: configuration,
            hasWorkers: worker != nil,
            logger: logger
        )
        let known = try await coordinator.recover(lastChange: lastChange)
        try await coordinator.recountStorage()
        let (listener, socket) = try listeningSocket()
        var transfer = TransferConfiguration(configuration)
        transfer.userAgent = "stagepackd/\(version)"
        try await withTransferEngine(
            transfer,
            logger: logger,
            run: { (engine) async throws(DaemonError) in
                let runner = TransferRunner(
                    engine: engine,
                    files: files,
                    storage: coordinator.storage,
                    journal: journal,
                    logger: logger
                )
                try await serve(
                    coordinator,
                    runner: runner,
                    listener: listener,
                    socket: socket,
                    reloads: reloads,
                    known: known
                )
            },
            orElse: { (error) throws(DaemonError) in throw .file(error) }
        )
    }

    /// Takes the lock of the state directory; waits for two seconds at most, and longer for a daemon that is ending.
    ///
    /// If a daemon is killed while it starts a handler, the handler's process may hold the lock for a moment longer.
    ///
    /// - Returns: The lock; `nil` if the task was cancelled meanwhile.
    /// - Throws: ``DaemonError`` if another daemon holds the lock.
    private func lockState() async throws(DaemonError) -> FileLock? {
        guard let lock = try await TransferFiles.lock(state, within: .seconds(2)) else {
            return try await lockStateOfEndingDaemon()
        }
        return lock
    }

    /// Takes the lock of the state directory if the daemon that holds it is ending; waits for half a minute at most.
    ///
    /// A daemon that ends waits for handlers and workers, some 15 seconds at most. Its successor may be started before it has
    /// ended, and by a program that does not try again.
    ///
    /// - Returns: The lock; `nil` if the task was cancelled meanwhile.
    /// - Throws: ``DaemonError`` if another daemon holds the lock.
    private func lockStateOfEndingDaemon() async throws(DaemonError) -> FileLock? {
        let isEnding = TransferFiles.lockHolder(of: state)?.isEnding ?? false
        if isEnding { logger.notice("Waiting for the end of another daemon") }
        guard isEnding, let lock = try await TransferFiles.lock(state, within: .seconds(30)) else {
            if Task.isCancelled { return nil }
            let holder = TransferFiles.lockHolder(of: state)
            throw .alreadyRunning(state, process: holder.flatMap { $0.isDaemon ? $0.process : nil })
        }
        return lock
    }

    private func listeningSocket() throws(DaemonError) -> (CInt, FilePath) {
        if let socket = ListeningSocket.inherited() {
            return (socket, ListeningSocket.path(of: socket) ?? self.socket)
        }
        let isShared = UserIdentity.current.user == 0
        return (try ListeningSocket.listen(socket, isShared: isShared), socket)
    }

    private func serve(
        _ coordinator: TransferCoordinator,
        runner: TransferRunner,
        listener: CInt,
        socket: FilePath,
        reloads: AsyncStream<DaemonConfiguration>,
        known: (tasks: Set<Int64>, last: Int64)
    ) async throws(DaemonError) {
        let notifier = ServiceNotifier()
        let server = ControlServer(
            responder: ControlResponder(coordinator: coordinator, version: version, logger: logger),
            logger: logger
        )
        let launcher = HandlerLauncher(socket: socket.string, logger: logger)
        let problem = await withTaskGroup(of: DaemonError?.self) { group in
            group.addTask {
                await coordinator.watchClock()
                return nil
            }
            group.addTask {
                await coordinator.relay()
                return nil
            }
            group.addTask { await watchConditions(coordinator) }
            group.addTask {
                await coordinator.removeUnknownDownloads(besides: known)
                return nil
            }
            group.addTask {
                for await configuration in reloads {
                    notifier.notify("RELOADING=1\nMONOTONIC_USEC=\(ServiceNotifier.now)")
                    await coordinator.configure(configuration)
                    notifier.notify("READY=1")
                }
                return nil
            }
            group.addTask { await keepAlive(coordinator, notifier: notifier) }
            group.addTask {
                await carryOut(commandsOf: coordinator, runner: runner, launcher: launcher)
            }
            group.addTask { await deleteResources(resourcesOf: coordinator, runner: runner) }
            group.addTask {
                do {
                    try await server.run(listener) {
                        notifier.notify("READY=1")
                        logger.notice("Ready", metadata: ["control.socket": "\(socket)"])
                    }
                    return nil
                } catch {
                    // The server ends by closing its socket.
                    return Task.isCancelled ? nil : .socket(socket, "\(error)")
                }
            }
            return await waitForEnd(&group, of: coordinator, notifier: notifier)
        }
        if let problem { throw problem }
    }
}

extension Daemon {
    /// Waits until the daemon is to end, and then for all of its tasks.
    private func waitForEnd(
        _ group: inout TaskGroup<DaemonError?>,
        of coordinator: TransferCoordinator,
        notifier: ServiceNotifier
    ) async -> DaemonError? {
        var problem: DaemonError?
        await withTaskCancellationHandler {
            while let result = await group.next() {
                guard let result else { continue }
                problem = problem ?? result
                coordinator.files.recordHolder(isEnding: true)
                group.cancelAll()
            }
        } onCancel: {
            notifier.notify("STOPPING=1")
            coordinator.files.recordHolder(isEnding: true)
        }
        return problem
    }

    /// Sends watchdog messages while the coordinator and the event loops answer.
    private func keepAlive(
        _ coordinator: TransferCoordinator,
        notifier: ServiceNotifier
    ) async -> DaemonError? {
        await notifier.keepAlive {
            await coordinator.setTimer()
            await EventLoops.waitForEachLoop()
        }
        return nil
    }

    /// Runs the attempts and handlers that the coordinator starts.
    ///
    /// When the task is cancelled, they stop and keep what they have received.
    private func carryOut(
        commandsOf coordinator: TransferCoordinator,
        runner: TransferRunner,
        launcher: HandlerLauncher
    ) async -> DaemonError? {
        let workers = WorkerRunner(
            program: worker,
            launcher: launcher,
            configuration: configuration,
            logger: logger
        )
        await withDiscardingTaskGroup { group in
            for await command in coordinator.commands {
                switch command {
                case .run(let id, let live):
                    group.addTask {
                        await runAttempt(
                            of: id,
                            transfer: live,
                            coordinator: coordinator,
                            runner: runner,
                            workers: workers
                        )
                    }
                case .launch(let launch):
                    group.addTask {
                        await launcher.run(launch)
                        await coordinator.ended(launch)
                    }
                }
            }
        }
        await coordinator.abandonAborts()
        return nil
    }

    private func runAttempt(
        of id: Int64,
        transfer live: LiveTransfer,
        coordinator: TransferCoordinator,
        runner: TransferRunner,
        workers: WorkerRunner
    ) async {
        guard let attempt = await coordinator.begin(id) else { return }
        let (task, owner) = (attempt.task, attempt.owner)
        let result =
            if attempt.isAssignedToClient {
                await WorkerRunner.awaitClient(live)
            } else if let job = task.request.staging {
                await workers.run(
                    WorkerJob(job, isRepetition: attempt.history.failures > 0),
                    of: id,
                    owner: owner,
                    transfer: live
                )
            } else {
                await runner.run(task, owner: owner, transfer: live, history: attempt.history)
            }
        guard !Task.isCancelled else {
            // The next run of the daemon continues an attempt that was stopped by the shutdown.
            _ = await coordinator.endAttempt(of: id)
            return
        }
        await coordinator.ended(task, transfer: live, result: result)
    }

    /// Sends the deletions of upload resources that the coordinator starts.
    ///
    /// Drops those that are still queued when the task is cancelled.
    private func deleteResources(
        resourcesOf coordinator: TransferCoordinator,
        runner: TransferRunner
    ) async -> DaemonError? {
        await withDiscardingTaskGroup { group in
            for await deletion in coordinator.deletions {
                group.addTask {
                    await runner.delete(deletion)
                    await coordinator.ended(deletion)
                }
            }
            group.cancelAll()
        }
        return nil
    }

    private func watchConditions(_ coordinator: TransferCoordinator) async -> DaemonError? {
        var sources = ConditionSources()
        sources.watchesNetwork = true
        sources.debounce = .seconds(configuration.settlingTime)
        if let address = configuration.busAddress { sources.busAddress = address }
        do {
            let monitor = try ConditionMonitor(sources: sources, logger: logger)
            defer { monitor.stop() }
            // Unknown conditions permit transfers, so wait until the sources have answered.
            await coordinator.start(await monitor.settled())
            await withTaskGroup(of: Void.self) { group in
                group.addTask {
                    for await _ in monitor.networkChanges { await coordinator.networkChanged() }
                }
                for await conditions in monitor.changes() {
                    await coordinator.setConditions(conditions)
                }
                group.cancelAll()
            }
        } catch {
            // Unknown conditions permit transfers.
            logger.warning(
                "Network and power conditions are unknown",
                metadata: ["error": "\(error)"]
            )
            await coordinator.start(.unknown)
        }
        return nil
    }
}

extension TransferConfiguration {
    /// Creates the transfer engine's configuration.
    fileprivate init(_ configuration: DaemonConfiguration) {
        self.init()
        connections = configuration.connections
        connectionsPerHost = configuration.connectionsPerHost
        // The scheduler does so for each user.
        sharesDelays = false
        bandwidth = configuration.bandwidth
        certificateAuthorities = configuration.certificateAuthorities.map { FilePath($0) }
        proxies = ProxySettings(
            http: configuration.httpProxy,
            https: configuration.httpsProxy,
            exceptions: configuration.proxyExceptions
        )
        // The coordinator, not the engine, waits between attempts: an attempt ends at its first wait. So only the
        // deadline of a task limits the number of attempts.
        retry = RetryPolicy(
            maximumAttempts: .max,
            base: .seconds(configuration.retryBase),
            retryTimeLimit: .seconds(10 * 365 * 86_400)
        )
    }
}

/// Owner of a file lock that keeps the lock at least until ``end()``.
private final class DirectoryLock: Sendable {
    private let lock: FileLock

    init(_ lock: consuming FileLock) { self.lock = lock }

    /// Marks the earliest point at which the lock may be released.
    func end() {}
}
