import Glibc
import Synchronization

/// An HTTP/1.1 server on this machine that misbehaves exactly as a test tells it.
///
/// Each connection has its own thread and is kept open between requests. The server sends the bytes that an
/// ``Answer`` describes.
package final class TestServer: Sendable {
    /// The server of the running test, if it has one.
    @TaskLocal static var running: TestServer?

    /// The server of the running test, which needs the trait ``ServerTrait``.
    package static var current: TestServer {
        guard let running else { preconditionFailure("the test lacks the trait .server") }
        return running
    }

    /// The numbers of received requests and sent bytes.
    package struct Counts: Equatable, Sendable {
        /// The number of received requests.
        package var requests = 0
        /// The number of sent body bytes.
        package var bytes = 0
    }

    private struct State {
        var answers: [String: [Answer]] = [:]
        var heads: [RequestHead] = []
        var bodies: [String: [[UInt8]]] = [:]
        var counts: [String: Counts] = [:]
        var connections: Set<CInt> = []
        var connectionCount = 0
        var concurrency = 0
        var peakConcurrency = 0
        var isStopped = false

        mutating func next(_ path: String) -> Answer {
            guard var queue = answers[path], let first = queue.first else { return .status(404) }
            if queue.count > 1 { queue.removeFirst() }
            answers[path] = queue
            return first
        }
    }

    /// The URL of the server, without a slash at its end.
    package let baseURL: String
    /// The port that the server listens on.
    package let port: Int
    private let listener: Listener
    private let state = Mutex(State())

    /// Starts a server on a free port.
    package init() throws {
        let bound = try Socket.listen()
        listener = Listener(bound.listener)
        port = bound.port
        baseURL = "http://127.0.0.1:\(bound.port)"
        listener.accept { [self] in begin($0) }
    }

    /// Closes all connections, and accepts no further ones.
    package func stop() {
        state.withLock { state in
            state.isStopped = true
            for connection in state.connections { shutdown(connection, CInt(SHUT_RDWR)) }
        }
        listener.stop()
    }

    /// Returns the URL of a path, also with another host name of this machine such as `localhost`.
    package func url(_ path: String, host: String = "127.0.0.1") -> String {
        "http://\(host):\(port)\(path)"
    }

    /// Sets the responses to the requests for `path`, in order; the last one repeats.
    package func answer(_ path: String, with answers: Answer...) {
        answer(path, with: answers)
    }

    /// Sets the responses to the requests for `path`, in order; the last one repeats.
    package func answer(_ path: String, with answers: [Answer]) {
        state.withLock { $0.answers[path] = answers }
    }

    /// The heads of the requests received, in order.
    package var requests: [RequestHead] { state.withLock { $0.heads } }

    /// The heads of the requests for `path`, in order.
    package func requests(for path: String) -> [RequestHead] {
        requests.filter { $0.target == path }
    }

    /// The bodies of the requests for `path` that were read to their end, in order; requests without
    /// a body are omitted.
    package func bodies(for path: String) -> [[UInt8]] {
        state.withLock { $0.bodies[path, default: []] }
    }

    /// The numbers of received requests and sent bytes for `path`.
    package func counts(for path: String) -> Counts {
        state.withLock { $0.counts[path, default: Counts()] }
    }

    /// The number of accepted connections.
    package var connectionCount: Int { state.withLock { $0.connectionCount } }

    /// `true` while a connection is open, or its last request is not counted yet.
    var hasConnections: Bool { state.withLock { !$0.connections.isEmpty } }

    /// The maximum number of concurrent requests.
    package var peakConcurrency: Int { state.withLock { $0.peakConcurrency } }

    private func begin(_ connection: CInt) {
        let isStopped = state.withLock { state in
            state.connections.insert(connection)
            state.connectionCount += 1
            return state.isStopped
        }
        if isStopped { shutdown(connection, CInt(SHUT_RDWR)) }
        Thread.start { [self] in
            var socket = Socket(connection)
            while let head = socket.readHead().flatMap(RequestHead.init), serve(head, &socket) {}
            _ = state.withLock { $0.connections.remove(connection) }
            close(connection)
        }
    }

    /// Responds to a request; returns whether the connection stays open.
    private func serve(_ head: RequestHead, _ socket: inout Socket) -> Bool {
        let answer = state.withLock { state in
            state.heads.append(head)
            state.counts[head.target, default: Counts()].requests += 1
            state.concurrency += 1
            state.peakConcurrency = max(state.peakConcurrency, state.concurrency)
            return state.next(head.target)
        }
        defer { state.withLock { $0.concurrency -= 1 } }
        if !answer.comesEarly, !readBody(head, answer, &socket) { return false }
        if let gate = answer.gate, !socket.wait(for: gate) { return false }
        answer.prepare?()
        if answer.isDropped { return false }
        if let script = answer.script {
            script(Wire(socket, head))
            return false
        }
        if let flood = answer.flood {
            let (first, repeated) = flood.bytes
            let pieces = 64
            let piece = Array(String(repeating: repeated, count: pieces).utf8)
            guard socket.send(Array(first.utf8)) else { return false }
            var sent = first.utf8.count
            // The flood is limited, so that a client that stores everything fails only its test.
            while sent < Answer.Flood.most, socket.send(piece) {
                sent += piece.count
                let count = sent
                state.withLock { $0.counts[head.target, default: Counts()].bytes = count }
            }
            socket.waitForEnd()
            return false
        }
        let reply = Reply(answer, to: head)
        guard socket.send(Array(reply.head.utf8)) else { return false }
        let goesOn = reply.sendBody(to: socket) { count in
            state.withLock { $0.counts[head.target, default: Counts()].bytes += count }
        }
        if answer.comesEarly { socket.lingerOn() }
        return goesOn && !answer.closes && !answer.comesEarly
    }

    /// Reads the body of a request, if it has one; returns `false` if the connection must be closed.
    private func readBody(_ head: RequestHead, _ answer: Answer, _ socket: inout Socket) -> Bool {
        guard let length = head["content-length"].flatMap({ Int($0) }) else { return true }
        if head["expect"] != nil, answer.continues {
            guard socket.send(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)) else { return false }
        }
        if let limit = answer.dropsBodyAfter {
            _ = socket.readBody(min(limit, length))
            return false
        }
        let body = socket.readBody(length)
        guard body.count == length else { return false }
        state.withLock { $0.bodies[head.target, default: []].append(body) }
        return true
    }
}

/// Starts detached threads.
enum Thread {
    private final class Work: Sendable {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    /// Runs `work` on a new thread.
    static func start(_ work: @escaping @Sendable () -> Void) {
        var thread = pthread_t()
        let context = unsafe Unmanaged.passRetained(Work(work)).toOpaque()
        let status = unsafe pthread_create(
            &thread,
            nil,
            { context in
                guard let context = unsafe context else { return nil }
                unsafe Unmanaged<Work>.fromOpaque(context).takeRetainedValue().run()
                return nil
            },
            context
        )
        precondition(status == 0, "no thread could be started")
        pthread_detach(thread)
    }
}
