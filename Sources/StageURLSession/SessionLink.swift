import Foundation
import StageControl
import StageSystem
import Synchronization

/// The connection of a session to the daemon, made again whenever it is lost.
///
/// Two threads: one attaches and takes the events in, one acknowledges them. Calls of the application use its own.
final class SessionLink: Sendable {
    /// What questions are asked with.
    struct Wire {
        var client: ControlClient?
        var hasSession = false
    }

    private enum Phase {
        case attempting
        case attached
        case waiting
    }

    private struct State {
        var phase = Phase.attempting
        var window = AcknowledgementWindow()
        var events: ControlEvents?
        var problem: ControlError?
        var mustTry = false
        var isOver = false
        var whenOver: (@Sendable () -> Void)?
        var waiters: [@Sendable () -> Void] = []
        var whenLaunchIsOver: (@Sendable (Bool) -> Void)?
        var acknowledgesNothing = false
    }

    /// What the acknowledging thread does next.
    private enum Job {
        case acknowledge(Acknowledgement)
        case end
    }

    /// The session's identifier.
    let identifier: String
    /// The session's launch, if this process was started for it.
    let launch: BackgroundLaunch?
    let message: SessionConfiguration
    /// The application group of the configuration.
    let group: String?
    private let candidates: [String: String]
    private let wire = Mutex(Wire())
    /// Directory that the daemon leaves finished downloads in.
    let staged = Mutex<StagedDirectory?>(nil)
    let backlog = Mutex(EventBacklog())
    private let monitor = Monitor(State())

    /// Creates the link of a session; it does nothing before ``start(_:)``.
    init(_ configuration: URLSessionConfiguration, launch: BackgroundLaunch?) {
        identifier = configuration.identifier ?? ""
        self.launch = launch?.identifier == configuration.identifier ? launch : nil
        message = configuration.message
        group = configuration.sharedContainerIdentifier
        candidates =
            configuration.serviceSocketPath.map { ["STAGEPACK_SOCKET": $0] }
            ?? ProcessEnvironment.current
    }

    /// Why no events come at present.
    var problem: ControlError? { monitor.change { $0.problem } }

    /// Starts taking events in for `session`, which is held until ``end(then:)``.
    func start(_ session: URLSession) {
        do throws(FileError) {
            try SystemThread(name: "stage-events") { [self] in takeEvents(session) }.detach()
            try SystemThread(name: "stage-acks") { [self] in acknowledge() }.detach()
        } catch {
            preconditionFailure("a session needs two threads: \(error)")
        }
    }

    /// Acknowledges what there is, detaches, and calls `body`.
    func end(then body: @escaping @Sendable () -> Void) {
        monitor.change { state in
            state.isOver = true
            state.whenOver = body
        }
    }

    /// Calls `body` as soon as it is known which tasks there are, or that nobody can say.
    func whenSettled(_ body: @escaping @Sendable () -> Void) {
        let isSettled = monitor.change { state in
            guard !state.isOver, state.phase != .attached else { return true }
            state.waiters.append(body)
            state.mustTry = true
            return false
        }
        if isSettled { body() }
    }

    /// Takes an event's number in; returns `false` if it came before.
    func receive(_ sequence: Int64) -> Bool { monitor.change { $0.window.receive(sequence) } }

    /// Takes in that everything was done for an event.
    func finish(_ sequence: Int64?) {
        guard let sequence else { return }
        monitor.change { $0.window.finish(sequence) }
    }

    /// Acknowledges the launch of this process, and calls `body` once the daemon knows, or with `false`
    /// when it cannot be told by this session any more.
    func finishLaunch(then body: @escaping @Sendable (Bool) -> Void) {
        let isOver = monitor.change { state in
            if !state.acknowledgesNothing { state.whenLaunchIsOver = body }
            return state.acknowledgesNothing
        }
        if isOver { body(false) }
    }

    private func takeEvents(_ session: URLSession) {
        var backoff = Backoff()
        while !monitor.change({ $0.isOver }) {
            let problem = attempt(session, &backoff)
            let waiters = monitor.change { state in
                if !state.isOver { state.phase = .waiting }
                state.events = nil
                state.problem = state.isOver ? nil : problem
                defer { state.waiters = [] }
                return state.waiters
            }
            for waiter in waiters { waiter() }
            session.expireTasks(now: .now)
            _ = monitor.wait(atMost: backoff.next()) { state in
                state.isOver || state.mustTry ? true : nil
            }
        }
    }

    /// Attaches and takes events in until that is over; returns why.
    private func attempt(_ session: URLSession, _ backoff: inout Backoff) -> ControlError {
        monitor.change { state in
            state.phase = .attempting
            state.mustTry = false
        }
        var attached: ContinuousClock.Instant?
        defer {
            // A daemon that takes clients in and soon drops them is not to be tried without pause.
            if let attached, attached.duration(to: .now) > Backoff.last { backoff.reset() }
        }
        do throws(ControlError) {
            let events = try attach(session)
            while let event = try events.nextEvent() {
                if event.kind == .attached {
                    attached = .now
                    settle(events)
                }
                session.take(event)
            }
            return .lost(events.path)
        } catch {
            return error
        }
    }

    private func attach(_ session: URLSession) throws(ControlError) -> ControlEvents {
        let client = try wire.withLock { wire throws(ControlError) in
            wire = Wire()
            let client = try connect(&wire)
            let list = try ask(.tasks(in: identifier), &wire)
            session.reconcile(with: list.tasks)
            return client
        }
        // What could not be told is tried again as everything is: after a while.
        if let problem = session.tell(session.unfinished) { throw problem }
        let after = monitor.change { $0.window.received }
        return try client.openEvents(
            .events(of: identifier, after: after, launch: launch?.token)
        )
    }

    private func settle(_ events: ControlEvents) {
        let waiters = monitor.change { state in
            state.phase = .attached
            state.problem = nil
            state.events = events
            state.mustTry = false
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter() }
    }

    private func acknowledge() {
        while true {
            let job = monitor.wait { state in nextJob(state) }
            guard case .acknowledge(let acknowledgement) = job else { break }
            do throws(ControlError) {
                try wire.withLock { wire throws(ControlError) in
                    _ = try ask(.acknowledge(acknowledgement, in: identifier), &wire)
                }
            } catch {
                guard case .refused(let refusal) = error,
                    [.notFound, .invalid, .forbidden, .malformed].contains(refusal.code)
                else {
                    if monitor.change({ $0.isOver }) { break }
                    reconnect()
                    continue
                }
                // The daemon does not know the session or the event any more: it has nothing to forget.
            }
            wasAcknowledged(acknowledgement)
        }
        let (body, launchBody, events) = monitor.change { state in
            state.acknowledgesNothing = true
            return (state.whenOver, state.whenLaunchIsOver, state.events)
        }
        events?.close()
        body?()
        launchBody?(false)
    }

    private func nextJob(_ state: State) -> Job? {
        if state.phase == .attached || state.isOver {
            if state.whenLaunchIsOver != nil, let launch {
                let acknowledgement = Acknowledgement(
                    sequence: state.window.finished,
                    launch: launch.token
                )
                return .acknowledge(acknowledgement)
            }
            if let due = state.window.due { return .acknowledge(Acknowledgement(sequence: due)) }
        }
        return state.isOver ? .end : nil
    }

    private func wasAcknowledged(_ acknowledgement: Acknowledgement) {
        let body = monitor.change { state -> (@Sendable (Bool) -> Void)? in
            state.window.wasAcknowledged(acknowledgement.sequence)
            guard acknowledgement.launch != nil else { return nil }
            defer { state.whenLaunchIsOver = nil }
            return state.whenLaunchIsOver
        }
        body?(true)
    }

    /// Has the other thread attach anew.
    private func reconnect() {
        let events = monitor.change { state in
            state.phase = .attempting
            return state.events
        }
        events?.close()
    }

    /// Asks the daemon, on the thread of the caller.
    func ask<Answer>(_ request: ControlRequest<Answer>) throws(ControlError) -> Answer {
        try wire.withLock { wire throws(ControlError) in
            _ = try connect(&wire)
            return try ask(request, &wire)
        }
    }

    /// Tells the daemon what it has not been told of `tasks`, calls `refuse` with those that it refuses,
    /// and returns why it has to be told again, if it has.
    func tell(
        _ tasks: [URLSessionTask],
        refuse: (URLSessionTask, ControlError) -> Void
    ) -> ControlError? {
        let (refusals, problem) = wire.withLock { wire in
            var refusals: [(URLSessionTask, ControlError)] = []
            var problem: ControlError?
            do throws(ControlError) {
                for start in stride(from: 0, to: tasks.count, by: ControlFormat.taskLimit) {
                    let some = Array(tasks[start...].prefix(ControlFormat.taskLimit))
                    try create(some, &wire, &refusals)
                }
                for task in tasks { try change(task, &wire, &refusals) }
            } catch {
                // It is told when there is a daemon again.
                wire = Wire()
                problem = error
                reconnect()
            }
            return (refusals, problem)
        }
        for (task, error) in refusals { refuse(task, error) }
        return problem
    }

    private func create(
        _ tasks: [URLSessionTask],
        _ wire: inout Wire,
        _ refusals: inout [(URLSessionTask, ControlError)]
    ) throws(ControlError) {
        var new: [URLSessionTask] = []
        var requests: [TransferRequest] = []
        for task in tasks {
            let request = task.record.withLock { record -> TransferRequest? in
                guard record.number == nil, case .create(let request)? = record.nextStep() else {
                    return nil
                }
                return request
            }
            guard let request else { continue }
            new.append(task)
            requests.append(request)
        }
        guard !new.isEmpty else { return }
        do throws(ControlError) {
            _ = try connect(&wire)
            let message = NewTasks(requests, launch: launch?.token)
            // The daemon copies files before it answers, however long that takes.
            let isCopy = requests.contains { $0.kind == .upload }
            let patience = isCopy ? nil : ControlClient.usualPatience
            let ids = try ask(.createTasks(message, in: identifier), &wire, patience).ids
            guard ids.count == new.count else { throw .malformed("it has too few numbers") }
            for (task, id) in zip(new, ids) { task.wasCreated(as: id) }
        } catch {
            guard case .refused(let refusal) = error,
                ![.unavailable, .notFound].contains(refusal.code)
            else {
                let mayHaveArrived = if case .lost = error { true } else { false }
                if !mayHaveArrived { for task in new { task.record.withLock { $0.wasNotSent() } } }
                throw error
            }
            for task in new { task.record.withLock { $0.wasNotSent() } }
            guard new.count > 1 else {
                refusals.append((new[0], error))
                return
            }
            // All or none: which it was is found out one by one.
            for task in new { try create([task], &wire, &refusals) }
        }
    }

    private func change(
        _ task: URLSessionTask,
        _ wire: inout Wire,
        _ refusals: inout [(URLSessionTask, ControlError)]
    ) throws(ControlError) {
        let step = task.record.withLock { $0.number == nil ? nil : $0.nextStep() }
        guard case .change(let id, let change)? = step else { return }
        do throws(ControlError) {
            _ = try connect(&wire)
            let answer = try ask(.change(id, change), &wire)
            task.record.withLock { $0.update(answer) }
        } catch {
            guard case .refused(let refusal) = error, refusal.code != .unavailable else {
                task.record.withLock { $0.wasNotTold(change) }
                throw error
            }
            // A task that has ended cannot be changed, and its end is on its way.
            if refusal.code != .conflict { refusals.append((task, error)) }
        }
    }

    /// Finds the daemon, and has it make the session, where that was not done.
    private func connect(_ wire: inout Wire) throws(ControlError) -> ControlClient {
        if let client = wire.client, wire.hasSession { return client }
        let client = try ControlClient.find(environment: candidates)
        wire.client = client
        let status = try makeSession(client, &wire)
        wire.hasSession = true
        monitor.change {
            $0.window.attach(lastEvent: status.lastEvent, acknowledged: status.acknowledgedEvent)
        }
        staged.withLock { $0 = client.staged }
        backlog.withLock { [isLaunched = launch != nil] in
            let (last, known) = (status.lastEvent, status.acknowledgedEvent)
            $0.begin(lastEvent: last, acknowledged: known, isLaunched: isLaunched)
        }
        return client
    }

    func ask<Answer>(
        _ request: ControlRequest<Answer>,
        _ wire: inout Wire,
        _ patience: Duration? = ControlClient.usualPatience
    ) throws(ControlError) -> Answer {
        guard let client = wire.client else { throw .notRunning([]) }
        do throws(ControlError) {
            return try client.answer(to: request, patience: patience)
        } catch {
            if case .refused(let refusal) = error, refusal.code != .notFound { throw error }
            // A daemon that was started anew, perhaps without its records.
            wire = Wire()
            throw error
        }
    }
}
