import Glibc
import NIOCore
import NIOPosix
import StageControl
import StageSystem
import Synchronization

/// Opens and closes client connections as ``ConnectionTable`` decides.
final class ConnectionLimiter: Sendable {
    private struct State {
        var table: ConnectionTable
        var channels: [Int: any Channel] = [:]
        /// Continuations of queued requests; `false` cancels the request.
        var waiting: [Int: CheckedContinuation<Bool, Never>] = [:]
        var last = 0
    }

    private let state: Mutex<State>

    init(_ limits: ConnectionTable.Limits) { state = Mutex(State(table: ConnectionTable(limits))) }

    /// Admits a new connection, or returns `nil` to have it refused.
    func admit(_ channel: any Channel, peer: PeerCredentials) -> ClientConnection? {
        let (id, closing, queued) = state.withLock {
            state -> (Int?, (any Channel)?, CheckedContinuation<Bool, Never>?) in
            state.last += 1
            guard case .admitted(let old) = state.table.admit(state.last, of: peer.user) else {
                return (nil, nil, nil)
            }
            state.channels[state.last] = channel
            guard let old else { return (state.last, nil, nil) }
            return (
                state.last,
                state.channels.removeValue(forKey: old),
                state.waiting.removeValue(forKey: old)
            )
        }
        closing?.close(promise: nil)
        queued?.resume(returning: false)
        guard let id else { return nil }
        channel.closeFuture.whenComplete { [weak self] _ in self?.remove(id) }
        return ClientConnection(id: id, peer: peer, channel: channel, limiter: self)
    }

    private func remove(_ id: Int) {
        let continuation = state.withLock { state -> CheckedContinuation<Bool, Never>? in
            state.channels[id] = nil
            return state.table.close(id) ? state.waiting.removeValue(forKey: id) : nil
        }
        continuation?.resume(returning: false)
    }

    fileprivate func begin(_ id: Int) async -> Bool {
        await withCheckedContinuation { continuation in
            let isNow = state.withLock { state in
                if state.table.begin(id) { return true }
                state.waiting[id] = continuation
                return false
            }
            if isNow { continuation.resume(returning: true) }
        }
    }

    fileprivate func end(_ id: Int) { resume { $0.end(id) } }

    fileprivate func stream(_ id: Int) -> Bool {
        var isGranted = true
        resume { table in
            guard let started = table.stream(id) else {
                isGranted = false
                return []
            }
            return started
        }
        return isGranted
    }

    private func resume(_ change: (inout ConnectionTable) -> [Int]) {
        let continuations = state.withLock { state in
            change(&state.table).compactMap { state.waiting.removeValue(forKey: $0) }
        }
        for continuation in continuations { continuation.resume(returning: true) }
    }

    fileprivate func reserveMemory(_ bytes: Int, by id: Int) -> Bool {
        state.withLock { $0.table.reserveMemory(bytes, by: id) }
    }
}

/// Connection of a client, closed when the client exceeds a time limit.
final class ClientConnection: Sendable {
    let peer: PeerCredentials
    private let id: Int
    private let channel: any Channel
    private let limiter: ConnectionLimiter
    private let deadline = Mutex<Scheduled<Void>?>(nil)

    /// Time limit for the head of a request, and for an idle connection.
    static let headTime = TimeAmount.seconds(20)
    /// Time limit for the body of a request.
    static let bodyTime = TimeAmount.seconds(30)
    /// Time limit for the client to read a piece of the response.
    static let readTime = TimeAmount.seconds(30)

    fileprivate init(
        id: Int,
        peer: PeerCredentials,
        channel: any Channel,
        limiter: ConnectionLimiter
    ) {
        self.id = id
        self.peer = peer
        self.channel = channel
        self.limiter = limiter
        setDeadline(Self.headTime)
    }

    /// Returns a handle of the connected process.
    func process() async -> PeerProcess { await PeerProcess(of: channel, credentials: peer) }

    /// Starts the time limit of a request's body, after its head has arrived.
    func beginRequest() { setDeadline(Self.bodyTime) }

    /// Ends a request and waits for the next one on this connection.
    func endRequest() {
        limiter.end(id)
        setDeadline(Self.headTime)
    }

    /// Waits for the request's turn among the requests of its user, after it has arrived completely.
    func takeTurn() async throws(ControlRefusal) {
        setDeadline(nil)
        guard await limiter.begin(id) else {
            throw ControlRefusal(.unavailable, "the client has disconnected")
        }
    }

    /// Reserves memory for a request body of `bytes`, as received so far.
    func reserveMemory(body bytes: Int) throws(ControlRefusal) {
        guard limiter.reserveMemory(bytes, by: id) else {
            throw ControlRefusal(
                .unavailable,
                "your concurrent requests need too much memory: repeat this one after others have ended"
            )
        }
    }

    /// Converts the request into an event stream.
    func beginStream() throws(ControlRefusal) {
        guard limiter.stream(id) else {
            throw ControlRefusal(
                .quota,
                "your programs have too many event streams open: close some"
            )
        }
    }

    /// Starts the time limit for the client to read; ``endReadTimeout()`` ends it.
    func startReadTimeout() { setDeadline(Self.readTime) }

    /// Ends the time limit that ``startReadTimeout()`` started.
    func endReadTimeout() { setDeadline(nil) }

    /// Calls `body` when the connection closes.
    func whenClosed(_ body: @escaping @Sendable () -> Void) {
        channel.closeFuture.whenComplete { _ in body() }
    }

    private func setDeadline(_ time: TimeAmount?) {
        let next = time.map { time in
            channel.eventLoop.scheduleTask(in: time) { [channel] in channel.close(promise: nil) }
        }
        let last = deadline.withLock { deadline in
            defer { deadline = next }
            return deadline
        }
        last?.cancel()
    }

    deinit { deadline.withLock { $0?.cancel() } }
}

/// Responds that there are too many connections, and closes the connection.
final class RefusalHandler: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func channelActive(context: ChannelHandlerContext) {
        let refusal = ControlRefusal(
            .unavailable,
            "your programs have too many connections to the daemon: close some"
        )
        // Encoding a refusal cannot fail.
        let body = (try? ControlFormat.encode(refusal)).map { Array($0) } ?? []
        var buffer = context.channel.allocator.buffer(capacity: 512)
        buffer.writeString("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n")
        buffer.writeString("Content-Length: \(body.count)\r\nConnection: close\r\n\r\n")
        buffer.writeBytes(body)
        context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
        context.close(promise: nil)
    }
}

extension ConnectionTable.Limits {
    /// Limits derived from the process's limit of open descriptors.
    static var current: Self {
        var limit = rlimit()
        let files = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        guard unsafe getrlimit(files, &limit) == 0 else { return Self(descriptors: 1024) }
        return Self(descriptors: Int(clamping: limit.rlim_cur))
    }
}
