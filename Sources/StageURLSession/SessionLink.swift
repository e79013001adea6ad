import Foundation
import StageControl
import StageSystem
import Synchronization

/// A session's communication with the daemon: its connection, and the queue of requests about tasks.
///
/// The connection's threads deliver and acknowledge events. Two more threads send requests about tasks, and run while
/// the queue is not empty (``TaskOutbox``): no call of the application waits for the daemon.
final class SessionLink: Sendable {
    /// Identifier of the session.
    let identifier: String
    /// Launch of the session, if this process was started for it.
    let launch: BackgroundLaunch?
    /// Connection for the session's events and their acknowledgement.
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

    /// Reason why no events arrive at present; `nil` while connected.
    var problem: ControlError? { connection.problem }

    /// Starts receiving events for `session`, which is retained until ``end(then:)``.
    ///
    /// - Throws: ``ControlError/system(_:)`` if the process cannot create more threads.
    func start(_ session: URLSession) throws(ControlError) {
        try connection.start(SessionEvents(session))
    }

    /// Acknowledges delivered events, detaches, and calls `body`.
    func end(then body: @escaping @Sendable () -> Void) {
        whenSent { [self] in connection.end(then: body) }
    }

    /// Calls `body` as soon as the session's tasks are known, or no daemon can be reached.
    func whenSettled(_ body: @escaping @Sendable () -> Void) {
        connection.whenSettled { _ in body() }
    }

    /// Acknowledges an event that was handled completely.
    func finish(_ sequence: Int64?) { connection.finish(sequence) }

    /// Acknowledges an event that the delegate has handled, once the daemon has the tasks that the delegate has
    /// created since `position`: after a kill, the next process finds either the event or these tasks.
    func finish(_ sequence: Int64?, afterSendingSince position: Int) {
        whenSent(since: position) { [self] in finish(sequence) }
    }

    /// Returns whether the daemon may deliver a finished download at this path.
    func accepts(_ location: String) -> Bool { client.accepts(location) }

    /// Records that events up to a number are delivered; returns `true` once, when all older events are.
    func deliverBacklog(upTo sequence: Int64) -> Bool {
        backlog.withLock { $0.deliver(upTo: sequence) }
    }

    /// Sends a request to the daemon on the caller's thread, and returns the response.
    func ask<Answer>(_ request: ControlRequest<Answer>) throws(ControlError) -> Answer {
        try client.answer(to: request)
    }

    /// Synchronizes the tasks of `session` with those of the daemon.
    func reconcile(_ session: URLSession) throws(ControlError) {
        if let first = client.firstStatus {
            let (last, known) = (first.lastEvent, first.acknowledgedEvent)
            backlog.withLock { [isLaunched = launch != nil] in
                $0.begin(lastEvent: last, acknowledged: known, isLaunched: isLaunched)
            }
        }
        // The list may lack tasks that are created meanwhile.
        let earlier = session.numbers
        let list = try ask(.tasks(in: identifier, headers: true)).tasks
        session.reconcile(with: list, earlier: earlier)
    }
}

/// Delivers the events of a connection to its session, which it retains.
private struct SessionEvents: SessionReceiver {
    private let session: URLSession

    init(_ session: URLSession) { self.session = session }

    func prepare(_ status: SessionStatus) throws(ControlError) {
        LaunchWatch.daemonAnswered(session.link.identifier)
        try session.link.reconcile(session)
        session.link.resumeSending()
        session.sendChanges(of: session.unfinished)
    }

    func take(_ event: SessionEvent) throws(ControlError) { try session.take(event) }

    func wasDetached(by problem: ControlError, failures: Int) -> Bool {
        LaunchWatch.attemptFailed(session.link.identifier, with: problem, at: .now)
        session.expireTasks(now: .now)
        session.link.wasDetached(by: problem)
        return true
    }
}
