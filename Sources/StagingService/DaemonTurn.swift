import FoundationEssentials
import Logging
package import StageControl
import StageDigest
import StageModel
import StagePack
import StageSystem
import Synchronization

/// The turn that the daemon gives this process to stage packs.
///
/// The daemon knows of the staging from before the first byte: it shows it, holds it for network and
/// power, pauses and cancels it, and has a worker go on with it when this process has gone, after another
/// start of the machine, too. Both work in the same container, so each goes on where the other ended.
struct DaemonTurn: Sendable {
    /// The end of a turn.
    enum Outcome: Sendable {
        /// The work has ended; the daemon goes on with the task of this number, if there is one.
        case done(goesOn: Int64?)
        /// The daemon has staged later what is missing: that is what it waits for.
        case held([PendingReason])
        /// A person has cancelled it.
        case cancelled
    }

    /// The packs, their container, and the conditions.
    var order: StagingOrder
    /// The packs that are missing now; for lists.
    var packs: [PackID]
    /// The variables that say where the user's daemon is.
    var environment: [String: String]
    /// Whether a daemon that answers gives the turn.
    var usesDaemon: Bool
    /// The address of the message bus of NetworkManager and UPower; `nil` for the one of the environment, or the
    /// system's.
    var busAddress: String?
    /// Told that the daemon does not help.
    var logger: Logger
    /// Told the reasons to wait that a person has to end.
    var report: @Sendable ([PendingReason.Kind]) -> Void

    /// The last time that this process has waited for a daemon in vain, which it does once in ``silence``.
    private static let lastSilence = Mutex<ContinuousClock.Instant?>(nil)
    /// The time for which a daemon that did not answer is not asked again.
    private static let silence = Duration.seconds(300)
    /// The time that a daemon has for each answer: a worker may have to end first.
    private static let answerPatience = Duration.seconds(15)

    /// The daemon's side of a turn.
    private struct Place: Sendable {
        var connection: SessionConnection
        var task: Int64
    }

    /// Something that happens during a turn.
    enum Step: Sendable {
        case running
        case held([PendingReason])
        case cancelled
        /// The daemon has ended the task, so nothing holds it.
        case over
        /// The connection is lost.
        case lost
        /// The daemon is gone for good.
        case gone
        /// The daemon's time to answer has passed.
        case late
        case ended(StagedPacks)
    }

    /// Does the work when the daemon gives the turn; where none answers or it refuses, at once if network and power
    /// meet the conditions of the order.
    ///
    /// The work is cancelled while the daemon holds it, and done again after that. What is interrupted,
    /// with this task or without, is left to a worker.
    ///
    /// - Returns: What became of the packs in all of it, and how the turn ended.
    func take(
        _ work: @escaping @Sendable () async -> StagedPacks
    ) async -> (StagedPacks, Outcome) {
        let (steps, step) = AsyncStream.makeStream(of: Step.self)
        guard let place = await open(telling: step) else {
            let holds = await unmetConditions()
            return holds.isEmpty
                ? (await work(), .done(goesOn: nil)) : (StagedPacks(), .held(holds))
        }
        let progress = TurnProgress(of: place.task, environment: environment)
        defer { progress.end() }
        return await withTaskGroup(of: StagedPacks?.self) { group in
            group.addTask { [patience] in
                // Cancelled: nothing waits for it any more.
                if (try? await Task.sleep(for: patience)) != nil { step.yield(.late) }
                return nil
            }
            var state = State(isDiscretionary: order.conditions != nil)
            let outcome = await run(steps, &state) { stop in
                group.addTask {
                    let staged = await TurnProgress.$current.withValue(progress) {
                        await stop.run(work)
                    }
                    step.yield(.ended(staged))
                    return staged
                }
            }
            defer { place.connection.close() }
            if case .done = outcome {
                let end = state.staged.end
                let isTold = await tell(end, to: place)
                group.cancelAll()
                let isLeft = end == nil || end?.hold != nil
                return (state.staged, .done(goesOn: isTold && isLeft ? place.task : nil))
            }
            group.cancelAll()
            if let outcome { return (state.staged, outcome) }
            // Cancelled: what has begun says what that means to it, and what has not does so, too.
            if state.work != nil {
                // The last one: those before it were stopped, and are in it already.
                var last = StagedPacks()
                for await staged in group { last = staged ?? last }
                state.staged.add(last)
            } else {
                state.staged.add(await work())
            }
            return (state.staged, .done(goesOn: place.task))
        }
    }

    /// The time that the daemon has to give the turn.
    ///
    /// For a discretionary staging it first finds out the state of network and power.
    private var patience: Duration {
        order.conditions != nil ? Self.answerPatience : ControlClient.discoveryTimeout
    }

    /// The state of a turn.
    private struct State {
        let isDiscretionary: Bool
        /// The result of all attempts so far.
        var staged = StagedPacks()
        /// Ends the work that runs.
        var work: StopSwitch?
        /// The daemon's last reasons to wait that bind this process; `nil` before its first message.
        var holds: [PendingReason]?
        /// Whether the work was stopped because of it.
        var isStopped = false
        var isCancelled = false

        /// Whether a person holds it.
        var isPaused: Bool { holds?.contains(where: \.kind.isOfPerson) ?? false }

        /// The reasons to wait that bind this process: network and power bind discretionary stagings only.
        func binding(_ holds: [PendingReason]) -> [PendingReason] {
            holds.filter { hold in
                hold.kind.isOfPerson || isDiscretionary && hold.kind != .slot
            }
        }
    }

    /// Goes through what happens, and has the work started and stopped; `nil` if the task was cancelled.
    private func run(
        _ steps: AsyncStream<Step>,
        _ state: inout State,
        start: (StopSwitch) -> Void
    ) async -> Outcome? {
        for await step in steps {
            var begins = false
            switch step {
            case .running, .over:
                state.holds = []
                begins = true
            case .lost: begins = !state.isPaused
            case .late: begins = state.holds == nil
            case .gone:
                if state.isPaused, state.work == nil { return .held(state.holds ?? []) }
                begins = true
            case .held(let reasons):
                let binding = state.binding(reasons)
                // The daemon has not had its turn yet: it says more.
                if binding.isEmpty, state.isDiscretionary { break }
                state.holds = binding
                if let outcome = hold(&state) { return outcome }
                begins = binding.isEmpty
            case .cancelled:
                guard let work = state.work else { return .cancelled }
                state.isCancelled = true
                work.stop()
            case .ended(let staged):
                state.staged.add(staged)
                if state.isCancelled { return .cancelled }
                if Task.isCancelled || !state.isStopped { return .done(goesOn: nil) }
                (state.work, state.isStopped) = (nil, false)
                if let outcome = hold(&state) { return outcome }
                // It may go on, and was told so before it had stopped.
                begins = state.holds?.isEmpty ?? true
            }
            if begins, state.work == nil {
                let stop = StopSwitch()
                state.work = stop
                start(stop)
            }
        }
        return nil
    }

    /// Does what the daemon's reasons ask for; returns how the turn ends if they end it.
    private func hold(_ state: inout State) -> Outcome? {
        guard let holds = state.holds, !holds.isEmpty else { return nil }
        if let work = state.work {
            state.isStopped = true
            work.stop()
            return nil
        }
        guard state.isPaused else { return .held(holds) }
        report(holds.map(\.kind))
        return nil
    }

    /// Tells the daemon how the work ended, where it is not to go on at once; returns whether it knows.
    private func tell(_ end: StagingEnd?, to place: Place) async -> Bool {
        guard let end, !Task.isCancelled else { return true }
        var change = TransferChange()
        change.stagingEnd = end
        do throws(ControlError) {
            try await place.connection.client.withoutBlocking {
                [change] client throws(ControlError) in
                _ = try client.change(place.task, by: change)
            }
            return true
        } catch {
            // A worker finds everything staged.
            logger.debug("The daemon was not told", metadata: ["error": "\(error)"])
            return false
        }
    }

    private func open(telling step: AsyncStream<Step>.Continuation) async -> Place? {
        let isSilent = Self.lastSilence.withLock { last in
            last.map { ContinuousClock.now - $0 < Self.silence } ?? false
        }
        guard usesDaemon, !isSilent else { return nil }
        var configuration = SessionConfiguration()
        configuration.isTransient = true
        // A daemon that hangs is not worth waiting for: this process can do everything.
        let client = SessionClient(
            Self.identifier(of: order),
            configuration: configuration,
            environment: environment,
            timeout: Self.answerPatience
        )
        let connection = SessionConnection(client)
        let receiver = TurnReceiver(client, steps: step)
        do throws(ControlError) {
            try connection.start(receiver)
            try await attachment(of: connection)
            let id = try await client.withoutBlocking { [request] client throws(ControlError) in
                try client.createTasks([request])[0]
            }
            receiver.begin(id)
            return Place(connection: connection, task: id)
        } catch {
            connection.close()
            if case .lost(_, .some) = error { Self.lastSilence.withLock { $0 = .now } }
            // Without a daemon everything works all the same.
            logger.debug("The daemon does not help", metadata: ["error": "\(error)"])
            return nil
        }
    }

    /// Waits until a connection is attached; cancelling the task ends it.
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
        let name = order.application ?? order.manifests?.first ?? ""
        var request = TransferRequest(token: "staging", kind: .staging, url: name)
        request.staging = order
        request.description = String(packs.map(\.text).joined(separator: " ").prefix(2000))
        return request
    }

    /// The session identifier for an order: a later process with the same order replaces the worker.
    private static func identifier(of order: StagingOrder) -> String {
        let text = (try? ControlFormat.encode(order)).map(Array.init) ?? []
        let digest = "\(Digest(of: text))".prefix(16)
        return "stagepack/\(digest)/\(UUID().uuidString.lowercased().prefix(8))"
    }
}

extension PendingReason.Kind {
    /// Whether it lasts until a person does something about the task.
    fileprivate var isOfPerson: Bool { self == .pausedByUser || self == .pausedByClient }
}

extension StagingEnd {
    /// Creates the end of an attempt with these failures; `nil` if it was interrupted, and is to be gone on with.
    package init?(of failures: [StagingFailure]) {
        if failures.contains(where: { $0.kind == .interrupted }) { return nil }
        // A failure that another attempt may mend takes precedence.
        let failure =
            failures.first { $0.retry != .never }
            ?? failures.first { $0.kind == .noSpace } ?? failures.first
        guard let failure else {
            self.init()
            return
        }
        let (kind, hold): (TransferFailure.Kind, PendingReason.Kind) =
            switch failure.kind {
            case .captivePortal: (.unreachable, .portal)
            case .noSpace: (.storage, .disk)
            case .containerUnusable, .systemShortage: (.storage, .backoff)
            case .transferRefused, .manifestRefused: (.refused, .backoff)
            case .digestMismatch, .contentRefused, .manifestInvalid, .manifestUntrusted:
                (.wrongContent, .backoff)
            default: (.unreachable, .backoff)
            }
        self.init(
            TransferFailure(kind, reason: String(failure.description.prefix(2000))),
            // Space may come without anybody changing a thing here.
            hold: failure.retry == .never && hold != .disk ? nil : hold
        )
    }
}
