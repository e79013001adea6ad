import CCurl
import Dispatch
import Glibc
public import Logging
import StageModel
package import StageSystem

/// Runs many concurrent transfers on one dedicated thread.
///
/// Create it by ``withTransferEngine(_:logger:_:)``. The engine's thread, which is the actor's executor, makes every
/// libcurl call; the compiler, not a lock, excludes other threads. The engine reuses connections for as long as it
/// lives, and remembers failures of mirrors for later transfers of the same user.
public actor TransferEngine {
    nonisolated let configuration: TransferConfiguration
    nonisolated let logger: Logger
    private nonisolated let executor: PollingExecutor
    /// Serial queue for work that waits for the disk.
    nonisolated let storage = DispatchQueue(label: "stage.checkpoint")
    /// Clock of retry delays and durations, which counts the time in which the machine is suspended, as servers do.
    nonisolated let clock = ContinuousClock()
    /// Clock of the activity of connections: the time in which the machine is suspended is no silence of the server.
    nonisolated let activityClock = SuspendingClock()

    var histories: MirrorHistories
    let beginning: ContinuousClock.Instant
    var jitter = JitterGenerator(seed: .random(in: 0 ... .max))
    private var exchanges: [Int: Exchange] = [:]
    /// Open connections of ``connect(to:requiresNewestTLS:)``.
    private var connections: [Int: RawConnection] = [:]
    var checkpoints: [ObjectIdentifier: CheckpointTracker] = [:]
    private var nextTag = 1
    var allocator: ConnectionAllocator
    private var owners = ConnectionOwners()
    private var budget: BandwidthBudget?
    /// Number of exchanges that can pause while they keep their connections.
    private var pausableExchanges = 0
    private var lastTick: SuspendingClock.Instant
    /// Interval between checks for stalled transfers.
    private var tick: Duration

    init(configuration: TransferConfiguration, logger: Logger) {
        self.configuration = configuration
        self.logger = logger
        histories = MirrorHistories(sharesDelays: configuration.sharesDelays)
        executor = PollingExecutor(connections: max(configuration.connections, 1))
        allocator = ConnectionAllocator(
            perHost: configuration.connectionsPerHost,
            total: configuration.connections
        )
        beginning = clock.now
        lastTick = activityClock.now
        tick = Self.tick(for: configuration.stall.window)
        budget = configuration.bandwidth.map {
            BandwidthBudget(bytesPerSecond: $0.rawValue, now: SuspendingClock.now)
        }
    }

    /// Executor of the engine's own thread.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    /// Starts the thread; returns the error if the system refuses it.
    fileprivate nonisolated func start() -> FileError? {
        do throws(FileError) {
            try executor.start { [weak self] cancelled in
                self?.assumeIsolated { $0.drive(cancelled) }
                    ?? PollingExecutor.Pause(milliseconds: 0)
            }
            return nil
        } catch {
            return error
        }
    }

    fileprivate func shutDown() {
        for tag in Array(exchanges.keys) { finish(tag, code: nil) }
        for tag in Array(connections.keys) { close(tag) }
    }

    fileprivate nonisolated func stop() async { await executor.stop() }
}

extension TransferEngine {
    /// Sends a request once a connection is free, and returns when the exchange has ended.
    func perform(_ exchange: Exchange) async -> ExchangeEnd {
        let tag = nextTag
        nextTag += 1
        // The limit concerns received bytes; the response to an upload is small.
        exchange.budget = exchange.source == nil ? budget : nil
        exchange.wake = { [weak self] in self?.wake() }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                exchange.continuation = continuation
                exchanges[tag] = exchange
                if exchange.canPause { pausableExchanges += 1 }
                startAfterLookups(activityClock.now)
                let request = exchange.request
                if Task.isCancelled {
                    finish(tag, code: nil)
                } else if allocator.acquire(
                    tag,
                    host: request.url.authority,
                    user: request.user,
                    mayLookUpName: configuration.mayLookUpName(for: request.url),
                    priority: request.priority
                ) {
                    run(tag)
                } else {
                    exchange.receiver.wait()
                }
            }
        } onCancel: {
            executor.cancel(tag)
        }
    }

    /// Adds an exchange that has its connection slot to libcurl.
    private func run(_ tag: Int) {
        guard let exchange = exchanges[tag] else { return }
        exchange.window = (activityClock.now, 0)
        exchange.lastActivity = (activityClock.now, 0)
        if let timeout = exchange.request.timeout { tick = min(tick, Self.tick(for: timeout)) }
        exchange.keepsConnection = owners.begin(
            exchange.request.user,
            server: configuration.connectionKey(for: exchange.request.url),
            at: activityClock.now
        )
        exchange.receiver.connect()
        let code = unsafe exchange.start(on: executor.multi, configuration: configuration, tag: tag)
        if code != CURLE_OK { finish(tag, code: code) }
    }

    /// Starts the exchanges that have waited for abandoned lookups of their user to end.
    private func startAfterLookups(_ now: SuspendingClock.Instant) {
        for tag in allocator.endLookups(at: now) { run(tag) }
    }

    /// Lets libcurl work, completes the exchanges that have ended, and returns the longest time to sleep.
    private func drive(_ cancelled: [Int]) -> PollingExecutor.Pause {
        for tag in cancelled {
            finish(tag, code: nil)
            close(tag)
        }
        guard !exchanges.isEmpty || !connections.isEmpty else {
            return PollingExecutor.Pause(milliseconds: 60_000)
        }
        var running: CInt = 0
        // libcurl reports a failed transfer by a message; a failure of the multi handle ends all transfers.
        if unsafe curl_multi_perform(executor.multi, &running) != CURLM_OK { shutDown() }
        completeExchanges()
        let sockets = connections.values.compactMap { $0.advance() }
        let now = activityClock.now
        let isThrottled = pausableExchanges > 0 && resumePaused(now)
        if now - lastTick >= tick {
            lastTick = now
            for exchange in exchanges.values where exchange.isRunning {
                exchange.receiver.reportProgress()
                exchange.source?.reportProgress()
            }
            startAfterLookups(now)
            endWaitsForLookups(now)
            findStalled(now)
            startCheckpoints(clock.now)
        }
        let milliseconds = isThrottled ? 20 : tick.wholeMilliseconds
        return PollingExecutor.Pause(milliseconds: milliseconds, sockets: sockets)
    }

    private static func tick(for window: Duration) -> Duration {
        min(.milliseconds(500), max(window / 4, .milliseconds(10)))
    }

    /// Time without a byte after which the local address of a connection is checked: one that returns sooner does no harm.
    private static let silentTime = Duration.seconds(10)

    private func completeExchanges() {
        var waiting: CInt = 0
        while let message = unsafe curl_multi_info_read(executor.multi, &waiting) {
            guard unsafe message.pointee.msg == CURLMSG_DONE else { continue }
            let code = unsafe stage_message_result(message)
            var tag: UnsafeMutableRawPointer?
            guard unsafe stage_easy_private(message.pointee.easy_handle, &tag) == CURLE_OK else {
                continue
            }
            if let connection = connections[Int(bitPattern: tag)] {
                if code == CURLE_OPERATION_TIMEDOUT, connection.isLookingUp {
                    allocator.lookups.add(of: nil, at: activityClock.now)
                }
                connection.didConnect(code)
            } else {
                finish(Int(bitPattern: tag), code: code)
            }
        }
    }

    private func finish(
        _ tag: Int,
        code: CURLcode?,
        stalled: Duration? = nil,
        systemError: Int32? = nil,
        detail: String? = nil
    ) {
        guard let exchange = exchanges.removeValue(forKey: tag) else { return }
        if exchange.canPause { pausableExchanges -= 1 }
        var end = exchange.end(code)
        end.stalled = stalled
        if let detail { end.detail = detail }
        if let systemError { end.connection?.systemError = systemError }
        if exchange.isRunning {
            let (host, user) = (exchange.request.url.authority, exchange.request.user)
            if exchange.isLookingUp(at: code) {
                allocator.lookups.add(of: user, at: activityClock.now)
            }
            unsafe exchange.remove(from: executor.multi)
            if exchange.keepsConnection {
                let server = configuration.connectionKey(for: exchange.request.url)
                owners.end(server: server, at: activityClock.now)
            }
            if configuration.adaptsConnections {
                allocator.adjust(to: exchange.status, of: host, user: user)
            }
            for next in allocator.release(host: host, user: user) { run(next) }
        } else {
            _ = allocator.cancel(tag)
        }
        if exchanges.isEmpty { tick = Self.tick(for: configuration.stall.window) }
        exchange.continuation?.resume(returning: end)
    }

    /// Ends the exchanges that have waited for earlier lookups as long as a connection may take to open, its lookup included.
    private func endWaitsForLookups(_ now: SuspendingClock.Instant) {
        let waiting = Set(allocator.waitersForLookups())
        for (tag, exchange) in exchanges where !exchange.isRunning {
            guard waiting.contains(tag) else {
                exchange.window = (now, 0)
                continue
            }
            let limit = min(
                exchange.request.timeout ?? configuration.connectTimeout,
                configuration.connectTimeout
            )
            guard now - exchange.window.start >= limit else { continue }
            let detail =
                "its name was not looked up within \(limit.inWords), because many earlier lookups did not end"
            finish(tag, code: CURLE_COULDNT_RESOLVE_HOST, detail: detail)
        }
    }

    private func findStalled(_ now: SuspendingClock.Instant) {
        let rule = configuration.stall
        for (tag, exchange) in exchanges where exchange.isRunning {
            // A server may have fallen silent before the window filled up.
            if exchange.isPaused || exchange.receiveWindow?.isFull == true {
                exchange.window = (now, exchange.moved)
                exchange.lastActivity = (now, exchange.moved)
                continue
            }
            if exchange.moved > exchange.lastActivity.bytes {
                exchange.lastActivity = (now, exchange.moved)
            }
            if now - exchange.lastActivity.time >= Self.silentTime, exchange.hasLostAddress {
                // The kernel reports it to no connection that only receives.
                finish(tag, code: CURLE_RECV_ERROR, systemError: EADDRNOTAVAIL)
            } else if let timeout = exchange.request.timeout {
                if exchange.moved > exchange.window.bytes {
                    exchange.window = (now, exchange.moved)
                } else if now - exchange.window.start >= timeout {
                    finish(tag, code: nil, stalled: timeout)
                }
            } else if isStalled(exchange, at: now) {
                finish(tag, code: nil, stalled: rule.window)
            }
        }
    }

    /// Returns whether an exchange is stalled by the configuration's rule, and begins its next window if one has ended.
    private func isStalled(_ exchange: Exchange, at now: SuspendingClock.Instant) -> Bool {
        let rule = configuration.stall
        // Checked first: bytes that arrived before the silence may suffice for the window.
        guard now - exchange.lastActivity.time < rule.window else { return true }
        guard now - exchange.window.start >= rule.window else { return false }
        let moved = exchange.moved - exchange.window.bytes
        let received = exchange.bytes - moved
        defer {
            exchange.window = (now, exchange.moved)
            exchange.windows += 1
        }
        if let body = exchange.body {
            return moved < rule.minimum(ofBody: body.size, missing: body.missing + moved)
        }
        guard exchange.status != nil else { return moved < rule.minimum.rawValue }
        return moved < rule.minimum(afterWindows: exchange.windows, received: received)
    }

    /// Resumes exchanges that no longer need to pause, and returns whether any waits for bandwidth: other reasons to
    /// pause wake the engine when they end.
    private func resumePaused(_ now: SuspendingClock.Instant) -> Bool {
        for exchange in Array(exchanges.values) where exchange.isPaused {
            exchange.resumeIfPossible(at: now)
        }
        return exchanges.values.contains { $0.isThrottled }
    }
}

extension TransferEngine {
    /// Adds a connection that the caller uses, and lets libcurl open it.
    func add(_ connection: RawConnection, tag: Int) {
        connections[tag] = connection
        startAfterLookups(activityClock.now)
        unsafe connection.start(
            on: executor.multi,
            configuration: configuration,
            tag: tag,
            mayAbandonLookup: allocator.lookups.hasRoom(for: nil)
        )
    }

    /// Returns a tag that no exchange and no connection has used.
    func takeTag() -> Int {
        defer { nextTag += 1 }
        return nextTag
    }

    /// Returns an open connection by its tag; `nil` if it was closed.
    func connection(_ tag: Int) -> RawConnection? { connections[tag] }

    /// Closes a connection that the caller uses, if it is open.
    func close(_ tag: Int) {
        guard let connection = connections.removeValue(forKey: tag) else { return }
        if connection.isLookingUp { allocator.lookups.add(of: nil, at: activityClock.now) }
        unsafe connection.close(on: executor.multi)
    }

    /// Makes the engine's thread close a connection; callable from any thread.
    nonisolated func closeSoon(_ tag: Int) { executor.cancel(tag) }

    /// Makes the engine's thread resume paused exchanges; callable from any thread.
    nonisolated func wake() { executor.wake() }
}

/// Runs `body` with a transfer engine, and stops its thread when `body` returns or throws.
///
/// The engine must not be used after that; transfers that still run then are cancelled.
///
/// - Throws: ``TransferError/storage(_:)`` if the system refuses a thread, and the errors of `body`.
public func withTransferEngine<Result>(
    _ configuration: TransferConfiguration,
    logger: Logger,
    _ body: (TransferEngine) async throws -> Result
) async throws -> Result {
    try await withTransferEngine(configuration, logger: logger, run: body) { error in
        throw TransferError.storage(error)
    }
}

/// Runs `body` with a transfer engine, and stops its thread when `body` returns or throws, or runs `other` if the
/// system refuses a thread.
///
/// The engine must not be used after that; transfers that still run then are cancelled.
package func withTransferEngine<Result, Failure: Error>(
    _ configuration: TransferConfiguration,
    logger: Logger,
    run body: (TransferEngine) async throws(Failure) -> Result,
    orElse other: (FileError) async throws(Failure) -> Result
) async throws(Failure) -> Result {
    let engine = TransferEngine(configuration: configuration, logger: logger)
    if let problem = engine.start() { return try await other(problem) }
    do throws(Failure) {
        let result = try await body(engine)
        await engine.shutDown()
        await engine.stop()
        return result
    } catch {
        await engine.shutDown()
        await engine.stop()
        throw error
    }
}
