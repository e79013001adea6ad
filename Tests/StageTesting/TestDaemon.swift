package import Foundation
import Glibc
package import StageControl
import StageModel
import StageSystem
import Synchronization

/// A daemon that keeps its records in memory, transfers nothing, and does what a test tells it.
///
/// It implements the control protocol at a separate socket, and can be stopped and started again with its
/// records.
package final class TestDaemon: Sendable {
    /// A received request.
    package struct Request: Equatable, Sendable {
        /// The method and the path with its query: `GET /v1/`.
        package var line: String
        /// The body.
        package var body: Data
    }

    struct Session {
        var status: SessionStatus
        var events: [SessionEvent] = []
        var listener: CInt?
    }

    struct State {
        var sessions: [String: Session] = [:]
        var tasks: [Int64: TransferTask] = [:]
        var lastTask: Int64 = 0
        var lastSession: Int64 = 0
        var requests: [Request] = []
        var connections: Set<CInt> = []
        var listener: Listener?
        /// The numbers of requests that get no response, and the refusals of later requests.
        var unanswered: [String: (count: Int, then: ControlRefusal?)] = [:]
        var refusals: [String: ControlRefusal] = [:]
        var launches: [String] = []
        var repeatsEvents = false
        var staged = "/staged"
        var connectionCount = 0
    }

    /// The path of the socket.
    package let path: String
    let state = Mutex(State())
    private let held = ConditionVariable<Set<String>>([])
    private let heldAnswers = ConditionVariable<Set<String>>([])

    /// Creates a daemon that does not run yet.
    package init(path: String) { self.path = path }

    /// Starts listening, with the earlier records.
    package func start() throws {
        let listener = Listener(try Socket.listen(at: path))
        state.withLock { $0.listener = listener }
        listener.accept { [self] in begin($0) }
    }

    /// Ends all connections, as a daemon that is killed does, and removes the socket.
    package func stop() {
        unsafe _ = unlink(path)
        state.withLock { state in
            state.listener?.stop()
            state.listener = nil
            for connection in state.connections { shutdown(connection, CInt(SHUT_RDWR)) }
            for id in state.sessions.keys {
                state.sessions[id]?.listener = nil
                state.sessions[id]?.status.isAttached = false
            }
        }
    }

    /// Performs the next `count` requests that begin with `line`, ends their connections without a response, and refuses later ones with
    /// `refusal`.
    package func leaveUnanswered(
        _ line: String,
        count: Int = 1,
        thenRefuseWith refusal: ControlRefusal? = nil
    ) {
        state.withLock { $0.unanswered[line] = (count, refusal) }
    }

    /// Delays requests that begin with `line` until ``release()``.
    package func hold(_ line: String) { held.change { _ = $0.insert(line) } }

    /// Performs requests that begin with `line` at once, and sends their responses after ``release()``.
    package func holdAnswers(to line: String) { heldAnswers.change { _ = $0.insert(line) } }

    /// Performs the delayed requests, and sends the delayed responses.
    package func release() {
        held.change { $0 = [] }
        heldAnswers.change { $0 = [] }
    }

    /// Refuses all requests that begin with `line` from now on; `nil` ends that.
    package func refuse(_ line: String, with refusal: ControlRefusal?) {
        state.withLock { $0.refusals[line] = refusal }
    }

    /// Sends all events to each client that attaches, including those that it has received already.
    package func repeatEvents() { state.withLock { $0.repeatsEvents = true } }

    /// Reports this directory as that of finished downloads from now on.
    package func stage(in directory: String) { state.withLock { $0.staged = directory } }

    /// The received requests, without those that only discover the daemon.
    package var requests: [Request] { state.withLock { $0.requests } }

    /// The number of accepted connections.
    package var connectionCount: Int { state.withLock { $0.connectionCount } }

    /// The tokens of launches that were acknowledged.
    package var launches: [String] { state.withLock { $0.launches } }

    /// A session.
    package func session(_ identifier: String) -> SessionStatus? {
        state.withLock { $0.sessions[identifier]?.status }
    }

    /// The tasks, in the order of their numbers.
    package var tasks: [TransferTask] {
        state.withLock { state in state.tasks.values.sorted { $0.id < $1.id } }
    }

    /// Returns whether a client is attached to a session.
    package func isAttached(_ identifier: String) -> Bool {
        state.withLock { $0.sessions[identifier]?.listener != nil }
    }

    /// Changes a task without an event.
    package func modify(_ task: Int64, _ change: (inout TransferTask) -> Void) {
        state.withLock { state in
            guard var found = state.tasks[task] else { return }
            change(&found)
            state.tasks[task] = found
        }
    }

    /// Removes a task without an event.
    package func forget(_ task: Int64) {
        _ = state.withLock { $0.tasks.removeValue(forKey: task) }
    }

    /// Makes an event happen: durable ones get a number and are kept, and change their task.
    @discardableResult
    package func emit(_ event: SessionEvent, in identifier: String) -> SessionEvent {
        state.withLock { $0.emit(event, in: identifier) }
    }

    private func begin(_ connection: CInt) {
        state.withLock { state in
            state.connections.insert(connection)
            state.connectionCount += 1
        }
        Thread.start { [self] in
            var socket = Socket(connection)
            if let head = socket.readHead().flatMap(RequestHead.init) {
                let body = socket.read(Int(head["content-length"] ?? "") ?? 0)
                answer(head, Data(body), connection)
            }
            state.withLock { state in
                state.connections.remove(connection)
                for (id, session) in state.sessions where session.listener == connection {
                    state.sessions[id]?.listener = nil
                    state.sessions[id]?.status.isAttached = false
                }
            }
            close(connection)
        }
    }

    private func answer(_ head: RequestHead, _ body: Data, _ connection: CInt) {
        let socket = Socket(connection)
        let line = "\(head.method) \(head.target)"
        if line == "GET /v1/" {
            _ = socket.send(Self.answer(200, status))
            return
        }
        let refusal = state.withLock { state in
            state.requests.append(Request(line: line, body: body))
            return state.refusals.first { line.hasPrefix($0.key) }?.value
        }
        held.wait { held in held.contains { line.hasPrefix($0) } ? nil : () }
        if let refusal {
            _ = socket.send(Self.answer(refusal))
            return
        }
        if head.method == "GET", head.target.contains("/events?") {
            attach(head.target, connection)
            return
        }
        let answer = respond(head, body)
        heldAnswers.wait { held in held.contains { line.hasPrefix($0) } ? nil : () }
        let isUnanswered = state.withLock { state in
            guard let (key, rest) = state.unanswered.first(where: { line.hasPrefix($0.key) }) else {
                return false
            }
            state.unanswered[key] = rest.count > 1 ? (rest.count - 1, rest.then) : nil
            if rest.count == 1, let refusal = rest.then { state.refusals[key] = refusal }
            return true
        }
        if !isUnanswered { _ = socket.send(answer) }
    }

    private func attach(_ target: String, _ connection: CInt) {
        let parts = target.split { "/?=&".contains($0) }
        let identifier = parts.count > 5 ? Self.decoded(parts[2]) : ""
        let after = parts.count > 5 ? Int64(parts[5]) ?? 0 : 0
        let socket = Socket(connection)
        let isAttached = state.withLock { state -> Bool in
            guard var session = state.sessions[identifier] else {
                _ = socket.send(Self.missing)
                return false
            }
            guard session.listener == nil else {
                _ = socket.send(
                    Self.answer(ControlRefusal(.conflict, message: "another client is attached"))
                )
                return false
            }
            session.listener = connection
            session.status.isAttached = true
            state.sessions[identifier] = session
            _ = socket.send(Self.streamHead)
            var attached = SessionEvent(.attached, time: .now)
            attached.sessionNumber = session.status.number
            Self.send(attached, to: connection)
            let first = state.repeatsEvents ? 0 : after
            for event in session.events where event.sequence ?? 0 > first {
                Self.send(event, to: connection)
            }
            return true
        }
        if isAttached { socket.waitForEnd() }
    }

    private static let streamHead = Array(
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
            .utf8
    )

    /// A component of a path without its percent-encoding.
    static func decoded(_ component: Substring) -> String {
        String(component).removingPercentEncoding ?? String(component)
    }

    static func send(_ event: SessionEvent, to connection: CInt) {
        guard let line = try? ControlFormat.encode(event) else { return }
        let size = String(line.count + 1, radix: 16)
        _ = Socket(connection).send(Array("\(size)\r\n".utf8) + Array(line) + Array("\n\r\n".utf8))
    }

    static func answer(_ status: Int, _ value: some Encodable) -> [UInt8] {
        let body = (try? ControlFormat.encode(value)) ?? Data()
        let fields = "Content-Type: application/json\r\nContent-Length: \(body.count)\r\n"
        return Array("HTTP/1.1 \(status) x\r\n\(fields)\r\n".utf8) + Array(body)
    }

    /// The response to a refused request.
    static func answer(_ refusal: ControlRefusal) -> [UInt8] {
        let status =
            switch refusal.code {
            case .malformed: 400
            case .forbidden: 403
            case .notFound: 404
            case .conflict: 409
            case .tooLarge: 413
            case .invalid: 422
            case .quota: 429
            case .unavailable: 503
            case .storage: 507
            }
        return answer(status, refusal)
    }
}
