import Glibc
import StageControl
import StageSystem
import Synchronization

/// The sessions of this process.
enum SessionRegistry {
    private static let sessions = Mutex<[String: URLSession]>([:])
    /// Whether ``flush()`` is called at the end of the process.
    private static let flushesAtExit = atexit { SessionRegistry.flush() } == 0
    /// The longest time for which the end of the process is held up.
    private static let patience = Duration.seconds(3)

    /// Enters a session; returns `false` if there is another one of its identifier.
    static func register(_ session: URLSession) -> Bool {
        // Where the system refuses, a process that ends early loses what it has not sent, as one that is killed.
        _ = flushesAtExit
        return sessions.withLock { sessions in
            guard sessions[session.link.identifier] == nil else { return false }
            sessions[session.link.identifier] = session
            return true
        }
    }

    /// The session of an identifier.
    static func session(_ identifier: String) -> URLSession? {
        sessions.withLock { $0[identifier] }
    }

    /// Takes a session out.
    static func remove(_ session: URLSession) {
        sessions.withLock { $0[session.link.identifier] = nil }
    }

    /// Waits until the daemon was told of all tasks and of the events that were delivered, or could not be.
    private static func flush() {
        let links = sessions.withLock { $0.values.map(\.link) }
        let untold = ConditionVariable(links.count)
        for link in links { link.whenToldOrNot { untold.change { $0 -= 1 } } }
        let end = ContinuousClock.now + patience
        _ = untold.wait(atMost: patience) { $0 == 0 ? true : nil }
        // An event that is acknowledged now is not delivered to the next process again.
        for link in links {
            link.connection.waitForAcknowledgements(atMost: max(.zero, end - .now))
        }
    }
}
