import FoundationEssentials
import Logging
import StageControl
import StageDigest
import StageModel
import StagePack
import StageSystem
import Synchronization

/// Permission from the daemon for this process to stage packs now.
///
/// The daemon has a task for the staging before the first byte is received. It lists the task, makes it wait
/// for network and power, pauses and cancels it, and lets a worker resume it when this process has ended,
/// even after a reboot. This process and the worker use the same container, so each resumes the other's work.
struct StagingPermit: Sendable {
    /// Result of the work that the permit is for.
    enum Outcome: Sendable {
        /// The work has ended; `resumedTask` is the number of the task that the daemon resumes, `nil` if it
        /// resumes none.
        case finished(resumedTask: Int64?)
        /// The daemon stages the missing packs later, once these reasons to wait are gone.
        case held([PendingReason])
        /// A person has cancelled the task.
        case cancelled
    }

    /// The packs, their container, and the conditions.
    var job: StagingJob
    /// The packs that are missing now, shown in lists of tasks.
    var packs: [PackID]
    /// Environment variables with the location of the user's daemon.
    var environment: [String: String]
    /// Set if the work must wait for the permit, provided that a daemon responds.
    var usesDaemon: Bool
    /// Returns whether the daemon's task is cancelled when the current Swift task is cancelled, instead of being left to a
    /// worker; `nil` if it is always left.
    var withdrawsWhenCancelled: (@Sendable () -> Bool)?
    /// Set if the permit lasts while a person has paused the task, until a person resumes it.
    var waitsWhilePaused: Bool
    /// The address of the message bus of NetworkManager and UPower; `nil` for the address in the environment,
    /// or the system bus.
    var busAddress: String?
    /// Logger for the reasons why the daemon is not used.
    var logger: Logger
    /// Called with the reasons to wait that only a person can end.
    var report: @Sendable ([PendingReason.Kind]) -> Void

    /// Time of the last unanswered request of this process; it sends no other one for the duration of
    /// ``silence``.
    private static let lastTimeout = Mutex<ContinuousClock.Instant?>(nil)
    /// Time for which this process does not contact a daemon that did not answer.
    private static let silence = Duration.seconds(300)
    /// Time limit for each answer of a daemon, whose disk may be slow.
    private static let answerTimeout = Duration.seconds(15)

    /// Connection to the daemon and number of the task there.
    private struct DaemonTask: Sendable {
        var connection: SessionConnection
        var id: Int64
    }

    /// An event of the daemon's task, of the connection, or of the work.
    enum Step: Sendable {
        case running
        case held([PendingReason])
        case cancelled
        /// The daemon has ended the task, so this process need not wait for it.
        case over
        /// The connection is lost, and may be restored.
        case lost
        /// The daemon cannot be reached again.
        case gone
        /// The daemon did not grant the permit in time.
        case timedOut
        case ended(StagedPacks)
    }

    /// Runs the work once the daemon grants the permit.
    ///
    /// Without a daemon, or if it refuses, runs the work at once if the network and the power supply meet the
    /// conditions of the job.
    ///
    /// Cancels the work while the daemon holds the task, and runs it again after that. A worker resumes
    /// interrupted work, also if the current Swift task is cancelled, unless that withdraws it.
    ///
    /// - Parameter work: Stages the packs. Receives the results of the attempts before if the daemon has held the task
    ///   since their plan was made, and `nil` otherwise.
    /// - Returns: The outcomes of the packs in all attempts, and the result.
    func perform(
        _ work: @escaping @Sendable (_ earlier: StagedPacks?) async -> StagedPacks
    ) async -> (StagedPacks, Outcome) {
        let (steps, step) = AsyncStream.makeStream(of: Step.self)
        guard let daemonTask = await open(reportingTo: step) else {
            let reasons = await unmetConditions()
            return reasons.isEmpty
                ? (await work(nil), .finished(resumedTask: nil)) : (StagedPacks(), .held(reasons))
        }
        let reporter = DaemonProgressReporter(of: daemonTask.id, environment: environment)
        // The task is outside of the group, whose end would wait for a daemon that hangs.
        let reports = Task { await reporter.run() }
        defer { reports.cancel() }
        return await withTaskGroup(of: StagedPacks?.self) { group in
            group.addTask { [timeout] in
                // Cancelled: nothing waits for the daemon any more.
                if (try? await Task.sleep(for: timeout, clock: .suspending)) != nil {
                    step.yield(.timedOut)
                }
                return nil
            }
            var state = State(isDiscretionary: job.conditions != nil)
            let outcome = await run(steps, updating: &state) { stop, earlier in
                group.addTask {
                    let staged = await DaemonProgressReporter.$current.withValue(reporter) {
                        await stop.run { await work(earlier) }
                    }
                    step.yield(.ended(staged))
                    return staged
                }
            }
            defer { daemonTask.connection.close() }
            if case .finished = outcome {
                let ended = await finish(daemonTask, with: state.staged.end(of: packs))
                group.cancelAll()
                return (state.staged, ended)
            }
            group.cancelAll()
            if let outcome { return (state.staged, outcome) }
            // This task was cancelled. Work that runs returns its own outcomes; work that has not begun is
            // run once, and fails as cancelled.
            if state.work != nil {
                // Only the last attempt: the results of the stopped ones before it were added already.
                var last = StagedPacks()
                for await staged in group { last = staged ?? last }
                state.staged.add(last)
            } else {
                state.staged.add(await work(nil))
            }
            return (state.staged, await leave(daemonTask))
        }
    }

    /// Time limit for the daemon to grant the permit.
    ///
    /// Longer for a discretionary staging, since the daemon first determines the state of network and power.
    private var timeout: Duration {
        job.conditions != nil ? Self.answerTimeout : ControlClient.discoveryTimeout
    }

    /// State of the work.
    private struct State {
        let isDiscretionary: Bool
        /// The merged result of all attempts so far.
        var staged = StagedPacks()
        /// Switch that stops the running work; `nil` if none runs.
        var work: StopSwitch?
        /// The daemon's latest reasons to wait that bind this process; `nil` before its first message.
        var pendingReasons: [PendingReason]?
        /// Set if the work was stopped because of ``pendingReasons``.
        var isStopped = false
        /// Set if the daemon has held the task since the plan was made.
        var wasHeld = false
        var isCancelled = false

        /// True if a person has paused the task.
        var isPaused: Bool { pendingReasons?.contains(where: \.kind.isOfPerson) ?? false }

        /// Returns the reasons to wait that bind this process: network and power bind only discretionary
        /// stagings.
        func binding(_ reasons: [PendingReason]) -> [PendingReason] {
            reasons.filter { reason in
                reason.kind.isOfPerson || isDiscretionary && reason.kind != .slot
            }
        }
    }

    /// Handles the steps, starting and stopping the work; returns `nil` if this Swift task was cancelled.
    private func run(
        _ steps: AsyncStream<Step>,
        updating state: inout State,
        start: (StopSwitch, _ earlier: StagedPacks?) -> Void
    ) async -> Outcome? {
        for await step in steps {
            var begins = false
            switch step {
            case .running, .over:
                state.pendingReasons = []
                begins = true
            case .lost: begins = !state.isPaused
            case .timedOut: begins = state.pendingReasons == nil
            case .gone:
                if state.isPaused, state.work == nil { return .held(state.pendingReasons ?? []) }
                begins = true
            case .held(let reasons):
                let binding = state.binding(reasons)
                let waitsForOthers = reasons.contains { $0.kind == .slot }
                // The daemon has not granted the permit yet, and will send another message.
                if binding.isEmpty, state.isDiscretionary || waitsForOthers { break }
                state.pendingReasons = binding
                if let outcome = hold(&state) { return outcome }
                begins = binding.isEmpty
            case .cancelled:
                guard let work = state.work else { return .cancelled }
                state.isCancelled = true
                work.stop()
            case .ended(let staged):
                state.staged.add(staged)
                if state.isCancelled { return .cancelled }
                if Task.isCancelled || !state.isStopped { return .finished(resumedTask: nil) }
                (state.work, state.isStopped) = (nil, false)
                if let outcome = hold(&state) { return outcome }
                // The daemon may have lifted the hold before the work had stopped.
                begins = state.pendingReasons?.isEmpty ?? true
            }
            if begins, state.work == nil {
                let stop = StopSwitch()
                state.work = stop
                start(stop, state.wasHeld ? state.staged : nil)
            }
        }
        return nil
    }

    /// Stops the work if the daemon has reasons to wait; returns the result if they end it.
    private func hold(_ state: inout State) -> Outcome? {
        guard let reasons = state.pendingReasons, !reasons.isEmpty else { return nil }
        state.wasHeld = true
        if let work = state.work {
            state.isStopped = true
            work.stop()
            return nil
        }
        // A timer waits for no person: its other runs would wait, too.
        guard state.isPaused, waitsWhilePaused, !job.isPeriodic else { return .held(reasons) }
        report(reasons.map(\.kind))
        return nil
    }

    /// Reports the end of the work to the daemon unless a worker is to resume it, and returns the result.
    private func finish(_ daemonTask: DaemonTask, with end: StagingEnd?) async -> Outcome {
        if withdrawsWhenCancelled != nil, Task.isCancelled { return await leave(daemonTask) }
        var isReported = true
        if let end, !Task.isCancelled {
            var change = TransferChange()
            change.stagingEnd = end
            isReported = await submit(change, to: daemonTask)
        }
        let isLeft = end == nil || end?.pendingReason != nil
        return .finished(resumedTask: isReported && isLeft ? daemonTask.id : nil)
    }

    /// Leaves the task of cancelled work to the daemon, or cancels it there, too.
    private func leave(_ daemonTask: DaemonTask) async -> Outcome {
        guard let withdrawsWhenCancelled, withdrawsWhenCancelled() else {
            return .finished(resumedTask: daemonTask.id)
        }
        var change = TransferChange()
        change.state = .cancelled
        // An unstructured task: this Swift task is cancelled, and a request of a child would be cancelled with it.
        let isWithdrawn = await Task { [change] in await submit(change, to: daemonTask) }.value
        return .finished(resumedTask: isWithdrawn ? nil : daemonTask.id)
    }

    /// Sends a change to the daemon; returns `false` if the request fails or takes longer than
    /// `ControlClient.discoveryTimeout`.
    private func submit(_ change: TransferChange, to daemonTask: DaemonTask) async -> Bool {
        await withTaskGroup(of: Bool?.self) { group in
            group.addTask { await send(change, to: daemonTask) }
            group.addTask {
                // Cancelled: the daemon has answered.
                let limit = ControlClient.discoveryTimeout
                guard (try? await Task.sleep(for: limit, clock: .suspending)) != nil else {
                    return nil
                }
                Self.lastTimeout.withLock { $0 = .now }
                return false
            }
            defer { group.cancelAll() }
            return await group.next()?.flatMap(\.self) ?? false
        }
    }

    private func send(_ change: TransferChange, to daemonTask: DaemonTask) async -> Bool {
        do throws(ControlError) {
            try await daemonTask.connection.client.withoutBlocking {
                [change] client throws(ControlError) in
                _ = try client.change(daemonTask.id, by: change)
            }
            return true
        } catch {
            // A worker that the daemon starts nevertheless finds the packs staged.
            logger.debug("A change was not sent to the daemon", metadata: ["error": "\(error)"])
            return false
        }
    }

    private func open(reportingTo step: AsyncStream<Step>.Continuation) async -> DaemonTask? {
        let isSilent = Self.lastTimeout.withLock { last in
            last.map { ContinuousClock.now - $0 < Self.silence } ?? false
        }
        guard usesDaemon, !isSilent else { return nil }
        var configuration = SessionConfiguration()
        configuration.isTransient = true
        // A short timeout suffices: without the daemon, this process stages the packs alone.
        let client = SessionClient(
            Self.identifier(of: job),
            configuration: configuration,
            environment: environment,
            timeout: Self.answerTimeout
        )
        let connection = SessionConnection(client)
        let receiver = StagingPermitReceiver(client, steps: step)
        do throws(ControlError) {
            try connection.start(receiver)
            try await attachment(of: connection)
            let id = try await createTask(by: client)
            receiver.begin(id)
            return DaemonTask(connection: connection, id: id)
        } catch {
            connection.close()
            if case .lost(_, .some) = error { Self.lastTimeout.withLock { $0 = .now } }
            // Without a daemon, this process stages the packs alone.
            logger.debug(
                "The daemon is unavailable; this process stages the packs",
                metadata: ["error": "\(error)"]
            )
            return nil
        }
    }

    /// Creates the task, and returns its number.
    ///
    /// Not cancelled on its way, as the daemon may have recorded the task already: only one whose number is known can be
    /// withdrawn, or named to the person who has to end it. A daemon that hangs gets `ControlClient.discoveryTimeout` then.
    private func createTask(by client: SessionClient) async throws(ControlError) -> Int64 {
        let result = await withTaskCancellationHandler { [request] in
            await withBlockingThread {
                Result { () throws(ControlError) in try client.createTasks([request])[0] }
            }
        } onCancel: {
            // The client of a task that is withdrawn has another request to send.
            guard withdrawsWhenCancelled == nil else { return }
            Task {
                // This sleep is never cancelled.
                try? await Task.sleep(for: ControlClient.discoveryTimeout, clock: .suspending)
                client.close()
            }
        }
        return try result.get()
    }

    /// Waits until the connection is attached; cancelling the task closes the connection.
    private func attachment(of connection: SessionConnection) async throws(ControlError) {
        let problem = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                connection.whenSettled { continuation.resume(returning: $0) }
            }
        } onCancel: {
            connection.close()
            connection.client.close()
        }
        if let problem { throw problem }
        if Task.isCancelled { throw .cancelled }
    }

    private var request: TransferRequest {
        let name = job.application ?? job.manifests?.first ?? ""
        var request = TransferRequest(token: "staging", kind: .staging, url: name)
        request.staging = job
        request.setDescription(listing: packs)
        return request
    }

    /// Returns a session identifier for a job, under which a later process with the same job replaces
    /// the worker.
    private static func identifier(of job: StagingJob) -> String {
        let text = (try? ControlFormat.encode(job)).map(Array.init) ?? []
        let digest = "\(Digest(of: text))".prefix(16)
        return "stagepack/\(digest)/\(UUID().uuidString.lowercased().prefix(8))"
    }
}

extension PendingReason.Kind {
    /// True if the reason lasts until a person resumes the task.
    fileprivate var isOfPerson: Bool { self == .pausedByUser || self == .pausedByClient }
}
