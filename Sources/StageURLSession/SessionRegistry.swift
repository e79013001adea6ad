import Glibc
import StageControl
import StageSystem
import Synchronization

/// The background sessions of this process.
enum SessionRegistry {
    private static let sessions = Mutex<[String: URLSession]>([:])
    /// `true` if ``flush()`` is registered to run at the exit of the process.
    private static let flushesAtExit = atexit { SessionRegistry.flush() } == 0
    /// Longest time for which the exit of the process is delayed.
    private static let exitDelayLimit = Duration.seconds(3)

    /// Registers a session; returns `false` if another one has its identifier.
    static func register(_ session: URLSession) -> Bool {
        // If the system refuses, a process that exits early loses unsent requests, as a killed one does.
        _ = flushesAtExit
        return sessions.withLock { sessions in
            guard sessions[session.link.identifier] == nil else { return false }
            sessions[session.link.identifier] = session
            return true
        }
    }

    /// Returns the session with an identifier.
    static func session(_ identifier: String) -> URLSession? {
        sessions.withLock { $0[identifier] }
    }

    static func remove(_ session: URLSession) {
        sessions.withLock { $0[session.link.identifier] = nil }
    }

    /// Waits until the daemon has been informed of all tasks and of the delivered events, or could not be reached.
    private static func flush() {
        let links = sessions.withLock { $0.values.map(\.link) }
        let unsent = ConditionVariable(links.count)
        for link in links { link.whenSentOrFailed { unsent.change { $0 -= 1 } } }
        let end = SuspendingClock.now + exitDelayLimit
        _ = unsent.wait(atMost: exitDelayLimit) { $0 == 0 ? true : nil }
        // An event that is acknowledged now is not delivered to the next process again.
        for link in links {
            link.connection.waitForAcknowledgements(atMost: max(.zero, end - .now))
        }
    }
}
