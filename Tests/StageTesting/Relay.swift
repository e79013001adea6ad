import Glibc
import Synchronization

/// A socket in front of a daemon's that forwards requests and responses, and discards the responses that a test selects.
///
/// The daemon has carried out a request whose response is lost.
package final class Relay: Sendable {
    private final class Ends: Sendable {
        let client: CInt
        let daemon: CInt
        let threads = Atomic(2)

        init(client: CInt, daemon: CInt) {
            self.client = client
            self.daemon = daemon
        }
    }

    private struct State {
        var requests: [String] = []
        var lost: [String: Int] = [:]
        var connections: Set<CInt> = []
        var listener: Listener?
    }

    /// The path of the socket.
    package let path: String
    private let target: String
    private let state = Mutex(State())

    /// Creates a relay at `path` to the socket `target`, which does not listen yet.
    package init(at path: String, to target: String) {
        self.path = path
        self.target = target
    }

    /// Listens until ``stop()``.
    package func start() throws {
        let listener = Listener(try Socket.listen(at: path))
        state.withLock { $0.listener = listener }
        listener.accept { [self] connection in
            Thread.start { [self] in pass(connection) }
        }
    }

    /// Ends all connections.
    package func stop() {
        state.withLock { state in
            state.listener?.stop()
            state.listener = nil
            for connection in state.connections { shutdown(connection, CInt(SHUT_RDWR)) }
        }
    }

    /// Ends the connection of the next `count` requests that begin with `line` once the daemon has responded.
    package func loseAnswers(to line: String, count: Int = 1) {
        state.withLock { $0.lost[line] = count }
    }

    /// The methods and paths of the requests so far.
    package var requests: [String] { state.withLock { $0.requests } }

    private func pass(_ client: CInt) {
        var socket = Socket(client)
        guard let text = socket.readHead(), let head = RequestHead(text),
            let daemon = Socket.connect(to: target)
        else {
            close(client)
            return
        }
        let body = socket.read(Int(head["content-length"] ?? "") ?? 0)
        _ = fcntl(daemon, F_SETFL, 0)
        let line = "\(head.method) \(head.target)"
        let isLost = state.withLock { state in
            state.requests.append(line)
            state.connections.formUnion([client, daemon])
            guard let key = state.lost.keys.first(where: { line.hasPrefix($0) }) else {
                return false
            }
            let left = (state.lost[key] ?? 1) - 1
            state.lost[key] = left > 0 ? left : nil
            return true
        }
        _ = Socket(daemon).send(Array("\(text)\r\n\r\n".utf8) + body)
        // If the client disconnects, the connection to the daemon ends.
        let ends = Ends(client: client, daemon: daemon)
        Thread.start { [self] in
            Socket(client).waitForEnd()
            leave(ends)
        }
        copy(from: daemon, to: isLost ? nil : client)
        leave(ends)
    }

    /// Shuts down both connections; the last of the two threads that use them closes them.
    private func leave(_ ends: Ends) {
        for connection in [ends.client, ends.daemon] { shutdown(connection, CInt(SHUT_RDWR)) }
        guard ends.threads.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 else {
            return
        }
        state.withLock { $0.connections.subtract([ends.client, ends.daemon]) }
        for connection in [ends.client, ends.daemon] { close(connection) }
    }

    private func copy(from daemon: CInt, to client: CInt?) {
        var bytes = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = unsafe recv(daemon, &bytes, bytes.count, 0)
            guard count > 0 else { return }
            if let client, !Socket(client).send(bytes[..<count]) { return }
        }
    }
}
