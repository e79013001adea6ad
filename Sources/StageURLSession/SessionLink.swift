import Foundation
import StageControl
import StageSystem
import Synchronization

/// A session's dealings with the daemon: its connection, and what the daemon has yet to be told of tasks.
///
/// The connection's threads deliver and acknowledge events. Calls of the application use its own.
final class SessionLink: Sendable {
    /// The session's identifier.
    let identifier: String
    /// The session's launch, if this process was started for it.
    let launch: BackgroundLaunch?
    /// The session's events, and their acknowledgement.
    let connection: SessionConnection
    private let client: SessionClient
    /// Held while the daemon is told of tasks or their list is compared: one thread at a time.
    private let telling = Mutex(())
    private let backlog = Mutex(EventBacklog())

    /// Creates the link of a session; it does nothing before ``start(_:)``.
    init(_ configuration: URLSessionConfiguration, launch: BackgroundLaunch?) {
        identifier = configuration.identifier ?? ""
        self.launch = launch?.identifier == configuration.identifier ? launch : nil
        let setup = SessionSetup(configuration, isLaunched: self.launch != nil)
        client = SessionClient(
            identifier,
            environment: configuration.serviceSocketPath.map { ["STAGEPACK_SOCKET": $0] }
                ?? ProcessEnvironment.current,
            setup: { client throws(ControlError) in try setup.makeSession(client) }
        )
        connection = SessionConnection(client, launch: self.launch?.token, endsClient: true)
    }

    /// Why no events come at present.
    var problem: ControlError? { connection.problem }

    /// Starts taking events in for `session`, which is held until ``end(then:)``.
    ///
    /// - Throws: ``ControlError/system(_:)`` if the process may have no more threads.
    func start(_ session: URLSession) throws(ControlError) {
        try connection.start(SessionEvents(session))
    }

    /// Runs `body`, which may wait for the daemon, on another thread; where there is none, the daemon is told of
    /// the session's tasks over the next connection.
    func withoutWaiting(_ body: @escaping @Sendable () -> Void) {
        do throws(FileError) {
            try SystemThread(name: "stage-session", body).detach()
        } catch {
            connection.reconnect()
        }
    }

    /// Acknowledges what there is, detaches, and calls `body`.
    func end(then body: @escaping @Sendable () -> Void) { connection.end(then: body) }

    /// Calls `body` as soon as it is known which tasks there are, or that no daemon can say.
    func whenSettled(_ body: @escaping @Sendable () -> Void) {
        connection.whenSettled { _ in body() }
    }

    /// Takes in that everything was done for an event.
    func finish(_ sequence: Int64?) { connection.finish(sequence) }

    /// Whether a finished download at this place is the daemon's to give.
    func accepts(_ location: String) -> Bool { client.accepts(location) }

    /// Takes in that events up to a number are delivered; returns `true` once, when the backlog is.
    func deliverBacklog(upTo sequence: Int64) -> Bool {
        backlog.withLock { $0.deliver(upTo: sequence) }
    }

    /// Asks the daemon, on the thread of the caller.
    func ask<Answer>(_ request: ControlRequest<Answer>) throws(ControlError) -> Answer {
        try client.answer(to: request)
    }

    /// Runs `body` while no task is created, so that the number of each one that was is known.
    func whileNothingIsTold<Value: Sendable>(
        _ body: () throws(ControlError) -> Value
    ) throws(ControlError) -> Value {
        try telling.withLock { _ throws(ControlError) in try body() }
    }

    /// Has `session` compare its tasks with the daemon's.
    func reconcile(_ session: URLSession) throws(ControlError) {
        if let first = client.firstStatus {
            let (last, known) = (first.lastEvent, first.acknowledgedEvent)
            backlog.withLock { [isLaunched = launch != nil] in
                $0.begin(lastEvent: last, acknowledged: known, isLaunched: isLaunched)
            }
        }
        // A task that is created meanwhile would be one that the list does not have.
        try telling.withLock { _ throws(ControlError) in
            session.reconcile(with: try ask(.tasks(in: identifier)).tasks)
        }
    }

    /// Tells the daemon what it has not been told of `tasks`, calls `refuse` with those that it refuses,
    /// and returns why it has to be told again, if it has.
    func tell(
        _ tasks: [URLSessionTask],
        refuse: (URLSessionTask, ControlError) -> Void
    ) -> ControlError? {
        let (refusals, problem) = telling.withLock { _ in
            var refusals: [(URLSessionTask, ControlError)] = []
            var problem: ControlError?
            do throws(ControlError) {
                for start in stride(from: 0, to: tasks.count, by: ControlFormat.taskLimit) {
                    let some = Array(tasks[start...].prefix(ControlFormat.taskLimit))
                    try create(some, &refusals)
                }
                for task in tasks { try change(task, &refusals) }
            } catch {
                // It is told over the next connection.
                problem = error
                connection.reconnect()
            }
            return (refusals, problem)
        }
        for (task, error) in refusals { refuse(task, error) }
        return problem
    }

    private func create(
        _ tasks: [URLSessionTask],
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
            // The daemon copies files before it answers, however long that takes.
            let isCopy = requests.contains { $0.kind == .upload }
            let ids = try client.createTasks(
                requests,
                launch: launch?.token,
                patience: isCopy ? .zero : nil
            )
            for (task, id) in zip(new, ids) { task.wasCreated(as: id) }
        } catch {
            guard case .refused(let refusal) = error,
                ![.unavailable, .notFound].contains(refusal.code)
            else {
                switch error {
                case .lost, .malformed, .tooLarge: break
                default: for task in new { task.record.withLock { $0.wasNotSent() } }
                }
                throw error
            }
            for task in new { task.record.withLock { $0.wasNotSent() } }
            guard new.count > 1 else {
                refusals.append((new[0], error))
                return
            }
            // All or none: which it was is found out one by one.
            for task in new { try create([task], &refusals) }
        }
    }

    private func change(
        _ task: URLSessionTask,
        _ refusals: inout [(URLSessionTask, ControlError)]
    ) throws(ControlError) {
        let step = task.record.withLock { $0.number == nil ? nil : $0.nextStep() }
        guard case .change(let id, let change)? = step else { return }
        do throws(ControlError) {
            let answer = try client.change(id, change)
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
}

/// Delivers the events of a connection to its session, which it holds.
private struct SessionEvents: SessionReceiver {
    private let session: URLSession

    init(_ session: URLSession) { self.session = session }

    func prepare(_ status: SessionStatus) throws(ControlError) {
        try session.link.reconcile(session)
        // What could not be told is tried again as everything is: after a while.
        if let problem = session.tell(session.unfinished) { throw problem }
    }

    func take(_ event: SessionEvent) throws(ControlError) { try session.take(event) }

    func wasDetached(by problem: ControlError, failures: Int) -> Bool {
        session.expireTasks(now: .now)
        return true
    }
}
