import Glibc
import Synchronization

/// A process at a daemon's socket that never says a word.
public final class SilentDaemon: Sendable {
    /// How it is silent.
    public enum Silence: CaseIterable, Sendable {
        /// It takes clients in, and reads what they send.
        case afterAccepting
        /// It takes no client in, and its queue has room for none.
        case fullQueue
    }

    private let listener: CInt
    private let connections = Mutex<[CInt]>([])

    /// Listens at `path` until ``stop()``.
    public init(at path: String, _ silence: Silence) throws {
        let listener = try Socket.listen(at: path)
        self.listener = listener
        guard silence == .fullQueue else {
            Thread.start { [self] in
                while let connection = Socket.accept(listener) {
                    connections.withLock { $0.append(connection) }
                }
            }
            return
        }
        // The queue is as short as can be (listen(2)), and then full.
        _ = Glibc.listen(listener, 0)
        while let connection = Socket.connect(to: path) {
            connections.withLock { $0.append(connection) }
        }
    }

    /// Ends all connections.
    public func stop() {
        shutdown(listener, CInt(SHUT_RDWR))
        close(listener)
        connections.withLock { connections in
            for connection in connections { close(connection) }
            connections = []
        }
    }
}
