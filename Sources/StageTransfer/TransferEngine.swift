import CCurl
import Dispatch
public import Logging
import StageModel
import StageSystem
import Synchronization

/// Runs transfers, many at a time, on one thread of its own.
///
/// Use ``withTransferEngine(_:logger:_:)`` to make one. Every libcurl call is made by the engine's
/// thread, because that thread is the actor's executor; the compiler, not a lock, keeps other threads
/// out. Connections are kept and used again as long as the engine lives, and what one transfer learns
/// of a mirror serves the next.
public actor TransferEngine {
    nonisolated let configuration: TransferConfiguration
    nonisolated let logger: Logger
    private nonisolated let executor: PollingExecutor
    /// Where work that waits for the disk is done, one piece after the other.
    nonisolated let storage = DispatchQueue(label: "stage.checkpoint")
    nonisolated let clock = ContinuousClock()

    var memory = MirrorMemory()
    var jitter = JitterGenerator(seed: .random(in: 0 ... .max))
    private var exchanges: [Int: Exchange] = [:]
    /// Connections that callers use themselves.
    private var lines: [Int: OpenLine] = [:]
    private var checkpoints: [ObjectIdentifier: Checkpointing] = [:]
    private var nextTag = 1
    private var slots: TransferSlots
    private var budget: BandwidthBudget?
    /// How many exchanges may come to wait with their connections held.
    private var pausable = 0
    private var lastTick: ContinuousClock.Instant
    /// How often is looked for transfers that stand still.
    private var tick: Duration

    init(configuration: TransferConfiguration, logger: Logger) {
        self.configuration = configuration
        self.logger = logger
        executor = PollingExecutor(connections: max(configuration.connections, 1))
        slots = TransferSlots(
            perHost: configuration.connectionsPerHost,
            total: configuration.connections
        )
        lastTick = clock.now
        tick = Self.tick(for: configuration.stall.window)
        budget = configuration.bandwidth.map {
            BandwidthBudget(bytesPerSecond: $0.rawValue, now: ContinuousClock().now)
        }
    }

    /// The engine's own thread.
    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    fileprivate nonisolated func start() {
        executor.start { [weak self] cancelled in
            self?.assumeIsolated { $0.drive(cancelled) } ?? PollingExecutor.Pause(milliseconds: 0)
        }
    }

    fileprivate func shutDown() {
        for tag in Array(exchanges.keys) { finish(tag, nil) }
        for tag in Array(lines.keys) { close(tag) }
    }

    fileprivate nonisolated func stop() async { await executor.stop() }
}

extension TransferEngine {
    /// Sends a request once a connection is free, and returns when the exchange has ended.
    func perform(_ exchange: Exchange) async -> ExchangeEnd {
        let tag = nextTag
        nextTag += 1
        // What is sent is not what the limit is about, and its answer is small.
        exchange.budget = exchange.source == nil ? budget : nil
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                exchange.continuation = continuation
                exchanges[tag] = exchange
                if exchange.canPause { pausable += 1 }
                let request = exchange.request
                if Task.isCancelled {
                    finish(tag, nil)
                } else if slots.enter(
                    tag,
                    host: request.url.authority,
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

    /// Hands an exchange that has its connection to libcurl.
    private func run(_ tag: Int) {
        guard let exchange = exchanges[tag] else { return }
        exchange.window = (clock.now, 0)
        if let timeout = exchange.request.timeout { tick = min(tick, Self.tick(for: timeout)) }
        exchange.receiver.connect()
        let code = unsafe exchange.start(on: executor.multi, configuration, tag: tag)
        if code != CURLE_OK { finish(tag, code) }
    }

    /// Lets libcurl work, completes the exchanges that have ended, and returns for how long at most there is nothing
    /// to do.
    private func drive(_ cancelled: [Int]) -> PollingExecutor.Pause {
        for tag in cancelled {
            finish(tag, nil)
            close(tag)
        }
        guard !exchanges.isEmpty || !lines.isEmpty else {
            return PollingExecutor.Pause(milliseconds: 60_000)
        }
        var running: CInt = 0
        // A failure of one transfer is told by its message; one of the whole handle leaves nothing
        // that could go on.
        if unsafe curl_multi_perform(executor.multi, &running) != CURLM_OK { shutDown() }
        completeExchanges()
        let sockets = lines.values.compactMap { $0.advance() }
        let now = clock.now
        let isThrottled = pausable > 0 && resumePaused(now)
        if now - lastTick >= tick {
            lastTick = now
            findStalled(now)
            startCheckpoints(now)
        }
        let milliseconds = isThrottled ? 20 : CInt(tick.wholeMilliseconds)
        return PollingExecutor.Pause(milliseconds: milliseconds, sockets: sockets)
    }

    private static func tick(for window: Duration) -> Duration {
        min(.milliseconds(500), max(window / 4, .milliseconds(10)))
    }

    private func completeExchanges() {
        var waiting: CInt = 0
        while let message = unsafe curl_multi_info_read(executor.multi, &waiting) {
            guard unsafe message.pointee.msg == CURLMSG_DONE else { continue }
            let code = unsafe stage_message_result(message)
            var tag: UnsafeMutableRawPointer?
            guard unsafe stage_easy_private(message.pointee.easy_handle, &tag) == CURLE_OK else {
                continue
            }
            if let line = lines[Int(bitPattern: tag)] {
                line.didConnect(code)
            } else {
                finish(Int(bitPattern: tag), code)
            }
        }
    }

    private func finish(_ tag: Int, _ code: CURLcode?, stalled: Duration? = nil) {
        guard let exchange = exchanges.removeValue(forKey: tag) else { return }
        if exchange.canPause { pausable -= 1 }
        var end = exchange.end(code)
        end.stalled = stalled
        if exchange.isRunning {
            unsafe exchange.leave(executor.multi)
            if let next = slots.leave(host: exchange.request.url.authority) { run(next) }
        } else {
            _ = slots.withdraw(tag)
        }
        if exchanges.isEmpty { tick = Self.tick(for: configuration.stall.window) }
        exchange.continuation?.resume(returning: end)
    }

    private func findStalled(_ now: ContinuousClock.Instant) {
        let rule = configuration.stall
        for (tag, exchange) in exchanges where exchange.isRunning {
            let elapsed = now - exchange.window.start
            let moved = exchange.moved - exchange.window.bytes
            // A server may have fallen silent before there was anything to keep back.
            if exchange.isPaused || exchange.backlog?.isFull == true {
                exchange.window = (now, exchange.moved)
            } else if let timeout = exchange.request.timeout {
                if moved > 0 {
                    exchange.window = (now, exchange.moved)
                } else if elapsed >= timeout {
                    finish(tag, nil, stalled: timeout)
                }
            } else if elapsed >= rule.window {
                exchange.window = (now, exchange.moved)
                if moved < rule.minimum.rawValue { finish(tag, nil, stalled: rule.window) }
            }
        }
    }

    /// Lets exchanges go on that need not wait any longer, and returns whether any still waits.
    private func resumePaused(_ now: ContinuousClock.Instant) -> Bool {
        for exchange in Array(exchanges.values) where exchange.isPaused {
            exchange.goOn(at: now)
        }
        return exchanges.values.contains { $0.isPaused }
    }
}

extension TransferEngine {
    /// Adds a connection that the caller uses, and hands it to libcurl.
    func add(_ line: OpenLine, tag: Int) {
        lines[tag] = line
        unsafe line.start(on: executor.multi, configuration, tag: tag)
    }

    /// Returns a number that no exchange and no connection has had.
    func takeTag() -> Int {
        defer { nextTag += 1 }
        return nextTag
    }

    /// Returns a connection that the caller uses, unless it was closed.
    func line(_ tag: Int) -> OpenLine? { lines[tag] }

    /// Closes a connection that the caller uses, if it is open.
    func close(_ tag: Int) {
        guard let line = lines.removeValue(forKey: tag) else { return }
        unsafe line.close(executor.multi)
    }

    /// Has the engine's thread close a connection, from whatever thread.
    nonisolated func closeSoon(_ tag: Int) { executor.cancel(tag) }
}

/// A part file that is being filled, and when it was last made durable.
private final class Checkpointing: Sendable {
    let part: PartFile
    private let report: @Sendable (TransferEvent) -> Void
    private let state: Mutex<(last: ContinuousClock.Instant, isRunning: Bool)>
    private let hasEnded = Mutex(false)

    init(
        _ part: PartFile,
        _ report: @escaping @Sendable (TransferEvent) -> Void,
        _ now: ContinuousClock.Instant
    ) {
        self.part = part
        self.report = report
        state = Mutex((now, false))
    }

    /// Whether a checkpoint begins now.
    func begins(_ now: ContinuousClock.Instant, _ rule: CheckpointRule) -> Bool {
        let newBytes = part.length.rawValue - part.durable
        return state.withLock { state in
            guard !state.isRunning, rule.isDue(newBytes: newBytes, sinceLast: now - state.last)
            else { return false }
            state.isRunning = true
            return true
        }
    }

    /// Called on whatever thread: the engine may have ended meanwhile.
    func end(_ now: ContinuousClock.Instant) {
        state.withLock { $0 = (now, false) }
    }

    /// Makes the part file durable, and says so unless the attempt is over.
    func checkpoint() throws(FileError) {
        try part.checkpoint { durable in
            hasEnded.withLock { if !$0 { report(.checkpointed(durable)) } }
        }
    }

    /// Keeps what is still under way from being reported, and returns whether anything is.
    func silence() -> Bool {
        hasEnded.withLock { $0 = true }
        return state.withLock { $0.isRunning }
    }
}

extension TransferEngine {
    /// Makes the part file durable from time to time, until ``endCheckpoints(of:isComplete:)``, and reports each time.
    func beginCheckpoints(
        of part: PartFile,
        _ report: @escaping @Sendable (TransferEvent) -> Void
    ) {
        checkpoints[ObjectIdentifier(part)] = Checkpointing(part, report, clock.now)
    }

    /// Ends what ``beginCheckpoints(of:_:)`` began; of content that is complete nothing is recorded after this.
    func endCheckpoints(of part: PartFile, isComplete: Bool) async {
        let entry = checkpoints.removeValue(forKey: ObjectIdentifier(part))
        guard entry?.silence() == true, isComplete else { return }
        // The checkpoint under way may wait for the disk for long, and that is nothing to wait for.
        await withBlockingThread { part.complete() }
    }

    private func startCheckpoints(_ now: ContinuousClock.Instant) {
        for entry in checkpoints.values where entry.begins(now, configuration.checkpoint) {
            storage.async { [logger, clock] in
                Self.checkpoint(entry, logger)
                entry.end(clock.now)
            }
        }
    }

    /// Waits until everything received is on disk, and every checkpoint begun before has ended.
    ///
    /// Between ``beginCheckpoints(of:_:)`` and ``endCheckpoints(of:isComplete:)`` only.
    func flush(_ part: PartFile) async {
        guard let entry = checkpoints[ObjectIdentifier(part)] else { return }
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            storage.async { [logger] in
                Self.checkpoint(entry, logger)
                continuation.resume()
            }
        }
    }

    private nonisolated static func checkpoint(_ entry: Checkpointing, _ logger: Logger) {
        do throws(FileError) {
            try entry.checkpoint()
        } catch {
            // The transfer itself goes on: the bytes may still be of use, and writing more of them
            // fails with a better error if they are not.
            logger.warning(
                "A part file could not be made durable",
                metadata: ["file.path": "\(error.path)", "error": "\(error)"]
            )
        }
    }
}

/// Runs `body` with a transfer engine, and stops its thread when `body` returns or throws.
///
/// The engine must not be used after that; what still runs then is cancelled.
public func withTransferEngine<Result, Failure: Error>(
    _ configuration: TransferConfiguration,
    logger: Logger,
    _ body: (TransferEngine) async throws(Failure) -> Result
) async throws(Failure) -> Result {
    let engine = TransferEngine(configuration: configuration, logger: logger)
    engine.start()
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
