import FoundationEssentials
import Logging
import StageControl
import StageEngine
import StageModel
import StageSystem
import StageTransfer
import Synchronization

/// Has the daemon fetch archives, so that they go on arriving when this process has ended.
///
/// Each application has a session. An archive is a task whose token is its digest, so whoever asks for
/// it later finds what has arrived. When this process is gone before an archive has, the session's
/// handler completes the staging.
final class DaemonCourier: ArchiveCourier {
    private let client: ControlClient
    private let session: String
    private let allowedDomains: [String]?
    /// Whether this process has waited for a daemon in vain: it does so once, not for each application.
    private static let isSilent = Mutex(false)
    private let state = Mutex(State())

    private struct State {
        /// What waits for the end of a task, or has it.
        var waiting: [Int64: Waiting] = [:]
        /// The events that were delivered, and whether they need no further delivery.
        var delivered: [Delivered] = []
        /// The ends of tasks that nobody has waited for yet.
        var endings: [Int64: SessionEvent] = [:]
        var isLost = false
    }

    /// An event that was delivered.
    private struct Delivered {
        var sequence: Int64
        var task: Int64
        var location: String?
        /// Whether somebody here has asked for it.
        var isTaken = false
        /// Whether it needs no further delivery.
        var isDone = false
    }

    private struct Waiting {
        var report: @Sendable (StagingEvent) -> Void
        var ending: AsyncStream<SessionEvent>.Continuation
        var failures = 0
        /// The end of the wait after the last failure: what is told twice counts once.
        var retryTime: Date?
    }

    private init(_ client: ControlClient, _ session: String, _ allowedDomains: [String]?) {
        self.client = client
        self.session = session
        self.allowedDomains = allowedDomains
    }

    /// Runs `body` with the daemon as courier, or with `nil` where no daemon answers, it refuses, or
    /// another process has its part for the same application.
    ///
    /// - Parameters:
    ///   - name: Names the application.
    ///   - handler: What completes the staging when this process is gone.
    ///   - allowedDomains: The hosts that archives may come from; `nil` stands for all.
    ///   - body: Is given the daemon.
    /// - Returns: What `body` returns.
    static func with<Value: Sendable>(
        _ name: String,
        handler: [String]?,
        allowedDomains: [String]?,
        _ body: @escaping @Sendable (DaemonCourier?) async -> Value
    ) async -> Value {
        guard let (courier, events) = await open(name, handler, allowedDomains) else {
            return await body(nil)
        }
        return await withTaskGroup(of: Value?.self) { group in
            group.addTask {
                let value = await body(courier)
                if !Task.isCancelled { await courier.clearUp() }
                return value
            }
            group.addTask {
                await courier.follow(events)
                return nil
            }
            while let result = await group.next() {
                guard let result else { continue }
                events.close()
                group.cancelAll()
                return result
            }
            preconditionFailure("a body returns")
        }
    }

    private static func open(
        _ name: String,
        _ handler: [String]?,
        _ allowedDomains: [String]?
    ) async -> (DaemonCourier, ControlEvents)? {
        guard !isSilent.withLock({ $0 }) else { return nil }
        let session = "stagepack/\(name)"
        var configuration = SessionConfiguration()
        configuration.handler = handler.map(LaunchHandler.init)
        configuration.handler?.version = Version.text
        // Where this process finds registrations and containers, the handler has to.
        configuration.handler?.environment = ProcessEnvironment.current.filter {
            ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"].contains($0.key)
        }
        do throws(ControlError) {
            var client = try await ControlClient.discover(environment: ProcessEnvironment.current)
            // A daemon that hangs is not worth waiting for: this process can fetch by itself.
            client.patience = ControlClient.firstPatience
            try await makeSession(session, configuration, by: client)
            let launch = ProcessEnvironment.current["STAGEPACK_LAUNCH"]
            let events = try await client.events(of: session, launch: launch)
            client.patience = ControlClient.usualPatience
            return (DaemonCourier(client, session, allowedDomains), events)
        } catch {
            if case .lost(_, .some) = error { isSilent.withLock { $0 = true } }
            // Without a daemon everything works all the same.
            Log.logger.debug("The daemon does not help", metadata: ["error": "\(error)"])
            return nil
        }
    }
}

extension DaemonCourier {
    /// Makes the session, without its handler where the daemon refuses this process one: as a service
    /// that runs confined, whose next run completes what this one leaves.
    private static func makeSession(
        _ identifier: String,
        _ configuration: SessionConfiguration,
        by client: ControlClient
    ) async throws(ControlError) {
        do throws(ControlError) {
            try await client.makeSession(identifier, configuration: configuration)
        } catch .refused(let refusal)
            where refusal.code == .forbidden && configuration.handler != nil
        {
            var plain = configuration
            plain.handler = nil
            try await client.makeSession(identifier, configuration: plain)
        }
    }

    func fetch(
        _ order: ArchiveOrder,
        report: @escaping @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> ArchiveDelivery? {
        let (endings, ending) = AsyncStream.makeStream(of: SessionEvent.self)
        guard let id = await create(order) else { return nil }
        if let url = order.urls.first { report(.connecting(url: url)) }
        let isLost = state.withLock { state in
            state.waiting[id] = Waiting(report: report, ending: ending)
            // The end may have been told before anybody waited for it.
            if let event = state.endings.removeValue(forKey: id) { ending.yield(event) }
            return state.isLost
        }
        defer { state.withLock { $0.waiting[id] = nil } }
        if isLost { return nil }
        if try await hasEnded(id, order) { return nil }
        for await event in endings {
            return try await take(event, order, id)
        }
        if Task.isCancelled { throw .cancelled }
        return nil
    }

    /// Whether a task has ended for somebody else in this process, who was told.
    ///
    /// - Throws: ``StageError`` if it waits for the world already, which is not told again.
    private func hasEnded(
        _ id: Int64,
        _ order: ArchiveOrder
    ) async throws(StageError) -> Bool {
        let task: TransferTask
        do throws(ControlError) {
            task = try await client.task(id)
        } catch {
            // Then the stream has broken as well, and says so.
            return false
        }
        if task.hasEnded {
            return state.withLock { state in
                state.delivered.contains { $0.task == id && $0.isTaken }
            }
        }
        if let hold = task.holds.first(where: { mustGiveUp(task: id, $0) }) {
            throw Self.waiting(hold, order)
        }
        return false
    }

    private static func waiting(_ hold: Hold?, _ order: ArchiveOrder) -> StageError {
        let url = order.urls.first ?? ""
        if hold?.reason == .portal { return .transfer(.captivePortal(url: url, answeredBy: url)) }
        let detail = "\(hold?.cause ?? "it waits"); the daemon goes on with it"
        return .transfer(.unreachable(url: url, detail: detail))
    }

    private func create(_ order: ArchiveOrder) async -> Int64? {
        var request = TransferRequest(
            token: order.digest.description,
            kind: .download,
            url: order.urls.first ?? ""
        )
        request.mirrors = order.urls.count > 1 ? Array(order.urls.dropFirst()) : nil
        request.size = order.size
        request.sha256 = order.digest.description
        request.allowedDomains = allowedDomains
        request.description = order.pack.description
        // Any number of a manifest's has its place between 0 and 1, in their order.
        let priority = Double(order.priority)
        request.priority = 0.5 + 0.5 * priority / (abs(priority) + 1000)
        do throws(ControlError) {
            return try await client.createTasks([request], in: session).first
        } catch {
            Log.logger.debug("The daemon refused an archive", metadata: ["error": "\(error)"])
            return nil
        }
    }

    private func take(
        _ event: SessionEvent,
        _ order: ArchiveOrder,
        _ id: Int64
    ) async throws(StageError) -> ArchiveDelivery? {
        let sequence = event.sequence ?? 0
        if event.kind == .changed {
            // Nobody waits for days at a terminal, or in a hook.
            throw Self.waiting(event.holds?.first, order)
        }
        state.withLock { state in
            for index in state.delivered.indices where state.delivered[index].task == id {
                state.delivered[index].isTaken = true
            }
        }
        guard event.kind == .completed, let location = event.location else {
            // It failed, or another process took it: the engine finds out what there is to say.
            await done(sequence)
            return nil
        }
        guard let entry = client.staged?.entry(at: location) else {
            Log.logger.warning(
                "The daemon names a file that is not taken, and the archive is fetched again",
                metadata: ["file.path": "\(location.forDisplay())"]
            )
            await done(sequence)
            return nil
        }
        return ArchiveDelivery(
            entry.name,
            in: entry.directory,
            url: event.response?.url ?? order.urls.first ?? "",
            bytesReceived: event.metrics?.bytesReceived ?? order.size
        ) {
            await self.done(sequence)
        }
    }

    /// Says that what nobody here wanted needs no further delivery: archives that an earlier run has
    /// taken, or that the manifest no longer names.
    private func clearUp() async {
        let left = state.withLock { state in
            let left = state.delivered.filter { !$0.isTaken }
            for index in state.delivered.indices where !state.delivered[index].isTaken {
                state.delivered[index].isDone = true
            }
            return left
        }
        if let last = left.last { await done(last.sequence) }
    }

    /// Takes note that an event needs no further delivery, and says so of all up to the first that does.
    private func done(_ sequence: Int64) async {
        let upTo = state.withLock { state -> Int64? in
            for index in state.delivered.indices where state.delivered[index].sequence == sequence {
                state.delivered[index].isDone = true
            }
            var last: Int64?
            while let first = state.delivered.first, first.isDone {
                last = first.sequence
                state.delivered.removeFirst()
            }
            return last
        }
        guard let upTo else { return }
        do throws(ControlError) {
            let launch = ProcessEnvironment.current["STAGEPACK_LAUNCH"]
            let message = Acknowledgement(sequence: upTo, launch: launch)
            try await client.acknowledge(message, in: session)
        } catch {
            // It is told again to whoever comes next, who finds the pack staged.
            Log.logger.debug("The daemon was not told", metadata: ["error": "\(error)"])
        }
    }

    /// Hands events on until the stream ends.
    private func follow(_ events: ControlEvents) async {
        do throws(ControlError) {
            for try await event in events { hand(event) }
        } catch {
            Log.logger.debug("The daemon is gone", metadata: ["error": "\(error)"])
        }
        // Whoever waits fetches for themselves.
        state.withLock { state in
            state.isLost = true
            for waiting in state.waiting.values { waiting.ending.finish() }
        }
    }

    /// Whether to stop waiting for a task that is held: at once where only the world can change that,
    /// after some attempts where it fails.
    private func mustGiveUp(task: Int64, _ hold: Hold) -> Bool {
        switch hold.reason {
        case .slot, .earliestBegin: return false
        case .backoff, .server:
            return state.withLock { state in
                if hold.until == nil || state.waiting[task]?.retryTime != hold.until {
                    state.waiting[task]?.retryTime = hold.until
                    state.waiting[task]?.failures += 1
                }
                return state.waiting[task]?.failures ?? 0 >= Self.patience
            }
        default: return true
        }
    }

    /// How many failed attempts are waited for: some 20 seconds.
    private static let patience = 5

    private func hand(_ event: SessionEvent) {
        let waiting = state.withLock { state -> Waiting? in
            guard let task = event.task else { return nil }
            if let sequence = event.sequence {
                state.delivered.append(
                    Delivered(sequence: sequence, task: task, location: event.location)
                )
                if state.waiting[task] == nil { state.endings[task] = event }
            }
            return state.waiting[task]
        }
        guard let waiting else { return }
        switch event.kind {
        case .completed, .failed, .cancelled: waiting.ending.yield(event)
        case .progress:
            if let count = event.bytesReceived { waiting.report(.received(count, reused: .zero)) }
        case .changed:
            guard let hold = event.holds?.first else { return }
            let seconds = hold.until.map { max($0.timeIntervalSinceNow, 0) } ?? 0
            waiting.report(.waiting(reason: hold.cause, seconds: seconds))
            if mustGiveUp(task: event.task ?? 0, hold) { waiting.ending.yield(event) }
        default: break
        }
    }
}
