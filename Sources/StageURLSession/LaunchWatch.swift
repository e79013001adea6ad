import StageControl
import Synchronization

/// Watch over a launched process that cannot reach the daemon.
///
/// The daemon ends a launched process that exceeds its time. Without a daemon nothing does, and the events that the
/// process waits for never come. The attempts of the session's connection advance the watch, which has no timer. The time in which
/// the machine is suspended does not count, as for the daemon's time limit of the process.
final class LaunchWatch: Sendable {
    private struct State {
        /// Time of the first failed attempt since the last successful one; `nil` while the daemon answers.
        var lostAt: SuspendingClock.Instant?
        var error: ControlError?
        var waiters: [@Sendable (ControlError) -> Void] = []
    }

    private static let current = Mutex<LaunchWatch?>(nil)

    /// Identifier of the session that the process was launched for.
    private let identifier: String
    private let limit: Duration
    private let state = Mutex(State())

    /// Creates the watch of a session, which expires after the daemon was not reached for `limit`.
    init(_ identifier: String, limit: Duration) {
        self.identifier = identifier
        self.limit = limit
    }

    /// Makes this the watch of the process.
    func begin() { Self.current.withLock { $0 = self } }

    /// Calls `body` once the watch has expired, with the error that tells why no events come.
    func whenExpired(_ body: @escaping @Sendable (ControlError) -> Void) {
        let error = state.withLock { state in
            if state.error == nil { state.waiters.append(body) }
            return state.error
        }
        if let error { body(error) }
    }

    /// Records that the daemon has answered a request about a session.
    static func daemonAnswered(_ identifier: String) {
        watch(of: identifier)?.state.withLock { $0.lostAt = nil }
    }

    /// Records a failed attempt to reach the daemon for a session.
    static func attemptFailed(
        _ identifier: String,
        with problem: ControlError,
        at now: SuspendingClock.Instant
    ) {
        // A daemon that refuses a request also ends the process.
        if case .refused = problem { return daemonAnswered(identifier) }
        watch(of: identifier)?.attemptFailed(with: problem, at: now)
    }

    private static func watch(of identifier: String) -> LaunchWatch? {
        current.withLock { $0?.identifier == identifier ? $0 : nil }
    }

    private func attemptFailed(with problem: ControlError, at now: SuspendingClock.Instant) {
        let error = problem.lasting(limit)
        let waiters = state.withLock { state -> [@Sendable (ControlError) -> Void] in
            let lostAt = state.lostAt ?? now
            state.lostAt = lostAt
            guard now - lostAt >= limit else { return [] }
            state.error = error
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter(error) }
    }
}

extension ControlError {
    /// Returns the error of a daemon that was not reached for a time.
    fileprivate func lasting(_ time: Duration) -> ControlError {
        switch self {
        case .lost(let path, _): .lost(path, after: time)
        case .notRunning(let paths): paths.first.map { .lost($0, after: time) } ?? self
        default: self
        }
    }
}
