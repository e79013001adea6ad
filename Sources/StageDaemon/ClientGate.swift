import Glibc
import NIOCore
import NIOPosix
import StageControl
import StageSystem
import Synchronization

/// Opens and closes the connections of clients as a ``ConnectionTable`` decides.
final class ClientGate: Sendable {
    private struct State {
        var table: ConnectionTable
        var channels: [Int: any Channel] = [:]
        /// Those who wait until a request is worked on; they are told `false` if it will not be.
        var waiting: [Int: CheckedContinuation<Bool, Never>] = [:]
        var last = 0
    }

    private let state: Mutex<State>

    init(_ limits: ConnectionTable.Limits) { state = Mutex(State(table: ConnectionTable(limits))) }

    /// Takes a new connection in, or returns `nil` and has it told that there are too many.
    func admit(_ channel: any Channel, _ peer: PeerCredentials) -> Client? {
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
        return Client(id: id, peer: peer, channel: channel, gate: self)
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

    fileprivate func hold(_ bytes: Int, _ id: Int) -> Bool {
        state.withLock { $0.table.hold(bytes, by: id) }
    }
}

/// A connection of a client, closed when its client is slower than it may be.
final class Client: Sendable {
    let peer: PeerCredentials
    private let id: Int
    private let channel: any Channel
    private let gate: ClientGate
    private let deadline = Mutex<Scheduled<Void>?>(nil)

    /// The time that the head of a request may take, and that an idle connection stays open.
    static let headTime = TimeAmount.seconds(20)
    /// The time that the body of a request may take.
    static let bodyTime = TimeAmount.seconds(30)
    /// The time that a client may leave an answer unread.
    static let readTime = TimeAmount.seconds(30)

    fileprivate init(id: Int, peer: PeerCredentials, channel: any Channel, gate: ClientGate) {
        self.id = id
        self.peer = peer
        self.channel = channel
        self.gate = gate
        setDeadline(Self.headTime)
    }

    /// The process at the other end.
    func process() async -> PeerProcess { await PeerProcess(of: channel, peer) }

    /// Takes note of the head of a request.
    func beginRequest() { setDeadline(Self.bodyTime) }

    /// Takes note that a request is answered; the next one may follow.
    func endRequest() {
        gate.end(id)
        setDeadline(Self.headTime)
    }

    /// Takes note that the request is complete, and waits until it is its turn among its user's.
    func takeTurn() async throws(ControlRefusal) {
        setDeadline(nil)
        guard await gate.begin(id) else { throw ControlRefusal(.unavailable, "the client is gone") }
    }

    /// Takes note of so many bytes of the request's body.
    func hold(body bytes: Int) throws(ControlRefusal) {
        guard gate.hold(bytes, id) else {
            throw ControlRefusal(
                .unavailable,
                "your requests need too much memory at once: repeat this one after others"
            )
        }
    }

    /// Takes note that the answer is a stream of events.
    func beginStream() throws(ControlRefusal) {
        guard gate.stream(id) else {
            throw ControlRefusal(.quota, "your programs read too many streams of events: end some")
        }
    }

    /// Takes note that the client is to read, up to ``hasRead()``.
    func mustRead() { setDeadline(Self.readTime) }

    /// Takes note that the client has read what it had to.
    func hasRead() { setDeadline(nil) }

    /// Runs `body` when the connection is closed.
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

/// Tells a client that there are too many connections, and closes its own.
final class RefusalHandler: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func channelActive(context: ChannelHandlerContext) {
        let refusal = ControlRefusal(
            .unavailable,
            "your programs have too many connections to the daemon: end some"
        )
        // A refusal is always JSON.
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
    /// The limits that this process's limit of descriptors allows.
    static var current: Self {
        var limit = rlimit()
        let files = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        guard unsafe getrlimit(files, &limit) == 0 else { return Self(descriptors: 1024) }
        return Self(descriptors: Int(clamping: limit.rlim_cur))
    }
}
