import FoundationEssentials
import StageControl

/// A handler that is to be started, once its launch is on disk.
struct LaunchOrder: Sendable {
    var session: SessionRecord
    var handler: LaunchHandler
    var token: String
    /// The state of launches before the decision.
    fileprivate var before: Relaunch
    /// The state of launches that is to be on disk first.
    fileprivate(set) var decided: Relaunch
}

/// Launches of handlers.
extension TransferState {
    /// The next step when the record of a launch is on disk, or could not be written.
    enum LaunchStep: Equatable {
        case start
        /// Write down that there is no launch: a client has come meanwhile.
        case withdraw
        case none
    }

    /// Whether a session has events that a handler would be started for.
    private func hasNews(_ session: Session) -> Bool {
        let isPending = session.record.acknowledged < session.record.last
        return isPending
            && (session.unfinished + session.reserved == 0 || !session.challenged.isEmpty)
    }

    /// Whether a session's handler would be started, were it not for the delay.
    func mayLaunch(_ session: Session) -> Bool {
        let configuration = session.record.configuration
        return !session.isAttached && !session.isEnding && session.launch == nil
            && configuration.sendsLaunchEvents && configuration.handler != nil
            && !session.record.relaunch.isExhausted(Relaunch.Policy()) && hasNews(session)
    }

    /// Decides whether a session's handler is started now; `token` then names the launch.
    mutating func decideLaunch(
        of id: Int64,
        token: String,
        boot: String,
        at now: Date
    ) -> LaunchOrder? {
        guard let session = sessions[id], !session.isAttached, !session.isEnding,
            session.launch == nil, hasNews(session),
            mayStartHandler(of: session.record.user),
            session.record.configuration.sendsLaunchEvents,
            let handler = session.record.configuration.handler
        else { return nil }
        let before = session.record.relaunch
        var decided = before
        let decision = decided.decide(
            token: token,
            version: handler.version,
            boot: boot,
            policy: Relaunch.Policy(delay: configuration.relaunchDelay),
            at: now
        )
        sessions[id]?.record.relaunch = decided
        guard decision == .launch else { return nil }
        sessions[id]?.launch = token
        return LaunchOrder(
            session: session.record,
            handler: handler,
            token: token,
            before: before,
            decided: decided
        )
    }

    /// Decides whether a handler is started whose launch was to be written down.
    ///
    /// A client that has attached in the meantime receives the events itself.
    mutating func launchRecorded(_ order: LaunchOrder, isOnDisk: Bool) -> LaunchStep {
        let id = order.session.id
        guard let session = sessions[id], session.launch == order.token else { return .none }
        if isOnDisk, !session.isAttached, !session.isEnding { return .start }
        sessions[id]?.launch = nil
        if session.record.relaunch == order.decided, !isOnDisk {
            sessions[id]?.record.relaunch = order.before
        } else {
            sessions[id]?.record.relaunch.withdraw(order.token)
        }
        return isOnDisk ? .withdraw : .none
    }

    /// Notes that a handler has ended; returns whether it has acknowledged all events, or `nil` if its launch is
    /// none of the session's any more.
    mutating func launchEnded(_ token: String, of id: Int64) -> Bool? {
        guard let session = sessions[id], session.launch == token else { return nil }
        let isDone = session.record.acknowledged >= session.record.last
        sessions[id]?.launch = nil
        sessions[id]?.record.relaunch.ended(token, wasAcknowledged: isDone)
        return isDone
    }

    /// The sessions whose handlers would be started, were it not for the delay, or for others that run.
    var launchable: [Int64] { sessions.values.filter(mayLaunch).map(\.record.id).sorted() }

    /// Whether another handler of a user may run now; the others wait for one to end.
    private func mayStartHandler(of user: UInt32) -> Bool {
        let users = sessions.values.filter { $0.launch != nil }.map(\.record.user)
        return users.count < Self.mostHandlers
            && users.count(where: { $0 == user }) < Self.mostHandlersPerUser
    }

    /// The most handlers that run at once.
    static let mostHandlers = 32
    /// The most handlers of one user that run at once.
    static let mostHandlersPerUser = 4
}
