import FoundationEssentials
import StageControl

/// Handler to start once its launch is recorded.
struct PlannedLaunch: Sendable {
    var session: SessionRecord
    var handler: LaunchHandler
    var token: String
    /// Launch state before the decision.
    fileprivate var before: LaunchLimiter
    /// Launch state to record.
    fileprivate(set) var decided: LaunchLimiter
}

/// Launches of handlers.
extension TransferState {
    /// Next step after recording a launch.
    enum LaunchStep: Equatable {
        case start
        /// Record that there is no launch, since a client has attached in the meantime.
        case withdraw
        case none
    }

    /// Returns whether a session has events that require its handler: all tasks have ended, or a challenge is
    /// pending.
    private func needsHandler(_ session: Session) -> Bool {
        let isPending = session.record.acknowledged < session.record.last
        return isPending
            && (session.unfinished + session.reserved == 0 || !session.challenged.isEmpty)
    }

    /// Returns whether a session's handler should be started as soon as the delay permits.
    func mayLaunch(_ session: Session) -> Bool {
        let configuration = session.record.configuration
        return !session.isAttached && !session.isEnding && session.launch == nil
            && configuration.sendsLaunchEvents && configuration.handler != nil
            && !session.record.launchLimiter.isExhausted(LaunchLimiter.Policy())
            && needsHandler(session)
    }

    /// Decides whether to start a session's handler now; `token` identifies the launch.
    mutating func decideLaunch(
        of id: Int64,
        token: String,
        boot: String,
        at now: Date
    ) -> PlannedLaunch? {
        guard let session = sessions[id], !session.isAttached, !session.isEnding,
            session.launch == nil, needsHandler(session),
            mayStartHandler(of: session.record.user),
            session.record.configuration.sendsLaunchEvents,
            let handler = session.record.configuration.handler
        else { return nil }
        let before = session.record.launchLimiter
        var decided = before
        let decision = decided.decide(
            token: token,
            version: handler.version,
            boot: boot,
            policy: LaunchLimiter.Policy(delay: configuration.relaunchDelay),
            at: now
        )
        sessions[id]?.record.launchLimiter = decided
        guard decision == .launch else { return nil }
        sessions[id]?.launch = token
        launches[token] = session.record.user
        return PlannedLaunch(
            session: session.record,
            handler: handler,
            token: token,
            before: before,
            decided: decided
        )
    }

    /// Decides whether to start a handler after its launch was recorded.
    ///
    /// If a client has attached in the meantime, it receives the events itself.
    mutating func launchRecorded(_ planned: PlannedLaunch, isOnDisk: Bool) -> LaunchStep {
        let id = planned.session.id
        guard let session = sessions[id], session.launch == planned.token else {
            launches[planned.token] = nil
            return .none
        }
        if isOnDisk, !session.isAttached, !session.isEnding { return .start }
        launches[planned.token] = nil
        sessions[id]?.launch = nil
        if session.record.launchLimiter == planned.decided, !isOnDisk {
            sessions[id]?.record.launchLimiter = planned.before
        } else {
            sessions[id]?.record.launchLimiter.withdraw(planned.token)
        }
        return isOnDisk ? .withdraw : .none
    }

    /// Processes the end of a handler; returns whether it has acknowledged all events, or `nil` if the session has
    /// another launch.
    mutating func launchEnded(_ token: String, of id: Int64) -> Bool? {
        launches[token] = nil
        guard let session = sessions[id], session.launch == token else { return nil }
        let isDone = session.record.acknowledged >= session.record.last
        sessions[id]?.launch = nil
        sessions[id]?.record.launchLimiter.ended(token, wasAcknowledged: isDone)
        return isDone
    }

    /// Sessions whose handlers should be started as soon as the delay and the other handlers permit, in order.
    var launchable: [Int64] { sessions.values.filter(mayLaunch).map(\.record.id).sorted() }

    /// Returns whether the limits permit another handler of a user.
    private func mayStartHandler(of user: UInt32) -> Bool {
        launches.count < Self.mostHandlers
            && launches.values.count(where: { $0 == user }) < Self.mostHandlersPerUser
    }

    /// Maximum number of concurrent handlers, including those whose sessions were removed.
    static let mostHandlers = 32
    /// Maximum number of concurrent handlers of one user.
    static let mostHandlersPerUser = 4
}
