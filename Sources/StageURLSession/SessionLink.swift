import Foundation
import StageControl
import StageSystem
import Synchronization

/// A session's dealings with the daemon: its connection, and what the daemon has yet to be told of tasks.
///
/// The connection's threads deliver and acknowledge events. The daemon is told of tasks by two threads more, which run
/// while tasks or changes are to be told (``TaskOutbox``): no call of the application waits for it.
final class SessionLink: Sendable {
    /// The session's identifier.
    let identifier: String
    /// The session's launch, if this process was started for it.
    let launch: BackgroundLaunch?
    /// The session's events, and their acknowledgement.
    let connection: SessionConnection
    let client: SessionClient
    let outbox = ConditionVariable(TaskOutbox<URLSessionTask>())
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

    /// Acknowledges what was delivered, detaches, and calls `body`.
    func end(then body: @escaping @Sendable () -> Void) {
        whenTold { [self] in connection.end(then: body) }
    }

    /// Calls `body` as soon as it is known which tasks there are, or that no daemon can say.
    func whenSettled(_ body: @escaping @Sendable () -> Void) {
        connection.whenSettled { _ in body() }
    }

    /// Takes in that everything was done for an event.
    func finish(_ sequence: Int64?) { connection.finish(sequence) }

    /// Takes in that the delegate has handled an event, which is acknowledged once the daemon has the tasks that the
    /// delegate has created since `mark`: a process that is killed then finds the event, or these.
    func finish(_ sequence: Int64?, afterTellingSince mark: Int) {
        whenTold(since: mark) { [self] in finish(sequence) }
    }

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

    /// Has `session` compare its tasks with the daemon's.
    func reconcile(_ session: URLSession) throws(ControlError) {
        if let first = client.firstStatus {
            let (last, known) = (first.lastEvent, first.acknowledgedEvent)
            backlog.withLock { [isLaunched = launch != nil] in
                $0.begin(lastEvent: last, acknowledged: known, isLaunched: isLaunched)
            }
        }
        // A task that is created meanwhile may be one that the list does not have.
        let earlier = session.numbers
        let list = try ask(.tasks(in: identifier, headers: true)).tasks
        session.reconcile(with: list, earlier: earlier)
    }
}

/// Delivers the events of a connection to its session, which it holds.
private struct SessionEvents: SessionReceiver {
    private let session: URLSession

    init(_ session: URLSession) { self.session = session }

    func prepare(_ status: SessionStatus) throws(ControlError) {
        try session.link.reconcile(session)
        session.link.resumeTelling()
        session.tell(session.unfinished)
    }

    func take(_ event: SessionEvent) throws(ControlError) { try session.take(event) }

    func wasDetached(by problem: ControlError, failures: Int) -> Bool {
        session.expireTasks(now: .now)
        session.link.wasDetached(by: problem)
        return true
    }
}
