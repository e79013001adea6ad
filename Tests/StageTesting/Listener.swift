import Glibc
import Synchronization

/// A listening socket, whose connections a thread accepts.
///
/// That thread closes it once. All tests of a run share one process: a descriptor that is used after it was closed may be the socket of
/// another test.
final class Listener: Sendable {
    private enum State {
        case accepting
        case stopped
        case closed
    }

    private let descriptor: CInt
    private let state = Mutex(State.accepting)

    /// Takes over a socket that listens.
    init(_ descriptor: CInt) { self.descriptor = descriptor }

    /// Starts the thread, which calls `body` with each connection.
    func accept(_ body: @escaping @Sendable (CInt) -> Void) {
        Thread.start { [self] in
            while state.withLock({ $0 == .accepting }) {
                let connection = Glibc.accept(descriptor, nil, nil)
                guard connection >= 0 else {
                    // The client has closed the connection again, or no descriptor is available at the moment.
                    if errno == EMFILE || errno == ENFILE { usleep(10_000) }
                    continue
                }
                // A process that another test starts must not hold the connection open.
                _ = fcntl(connection, F_SETFD, FD_CLOEXEC)
                var one: CInt = 1
                let size = socklen_t(MemoryLayout<CInt>.size)
                // Responses are sent without delay; the tests also work with one.
                unsafe _ = setsockopt(connection, CInt(IPPROTO_TCP), TCP_NODELAY, &one, size)
                body(connection)
            }
            state.withLock { state in
                state = .closed
                close(descriptor)
            }
        }
    }

    /// Stops accepting connections.
    func stop() {
        state.withLock { state in
            guard state == .accepting else { return }
            state = .stopped
            shutdown(descriptor, CInt(SHUT_RDWR))
        }
    }
}

extension Listener {
    /// Serves one request of each connection on a separate thread, and closes the connection.
    func serveOne(_ serve: @escaping @Sendable (RequestHead, inout Socket) -> Void) {
        accept { connection in
            Thread.start {
                var socket = Socket(connection)
                if let head = socket.readHead().flatMap(RequestHead.init) { serve(head, &socket) }
                close(connection)
            }
        }
    }
}
