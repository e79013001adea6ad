import Synchronization

/// Connections in use by several threads, which any thread may close together.
final class OpenConnections: Sendable {
    private struct State {
        var connections: [ObjectIdentifier: ControlConnection] = [:]
        var isClosed = false
    }

    private let state = Mutex(State())

    /// Set after ``close()`` was called.
    var isClosed: Bool { state.withLock { $0.isClosed } }

    /// Adds a connection; returns `false` after ``close()``.
    func insert(_ connection: ControlConnection) -> Bool {
        state.withLock { state in
            guard !state.isClosed else { return false }
            state.connections[ObjectIdentifier(connection)] = connection
            return true
        }
    }

    /// Removes a connection whose request has ended.
    func remove(_ connection: ControlConnection) {
        state.withLock { $0.connections[ObjectIdentifier(connection)] = nil }
    }

    /// Closes all connections, and refuses further ones.
    func close() {
        state.withLock { state in
            state.isClosed = true
            for connection in state.connections.values { connection.close() }
            state.connections = [:]
        }
    }
}
