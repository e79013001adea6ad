import Glibc
import Synchronization

/// A process at a daemon's socket that sends no responses.
package final class SilentDaemon: Sendable {
    /// The point from which it does not respond.
    package enum Silence: CaseIterable, Sendable {
        /// The daemon accepts clients, and reads their requests, but does not respond.
        case afterAccepting
        /// The daemon accepts no clients, and its listen queue is full.
        case fullQueue
    }

    private let listener: Listener
    private let silence: Silence
    private let connections = Mutex<[CInt]>([])

    /// Listens at `path` until ``stop()``.
    package init(at path: String, _ silence: Silence) throws {
        let descriptor = try Socket.listen(at: path)
        listener = Listener(descriptor)
        self.silence = silence
        switch silence {
        case .afterAccepting:
            listener.accept { [self] connection in
                connections.withLock { $0.append(connection) }
            }
        case .fullQueue:
            // The queue has the shortest possible length (listen(2)), and is then filled.
            _ = Glibc.listen(descriptor, 0)
            while let connection = Socket.connect(to: path) {
                connections.withLock { $0.append(connection) }
            }
        }
    }

    /// Ends all connections.
    package func stop() {
        listener.stop()
        // Connections in the queue are not accepted; the thread closes the socket.
        if silence == .fullQueue { listener.accept { close($0) } }
        connections.withLock { connections in
            for connection in connections { close(connection) }
            connections = []
        }
    }
}
