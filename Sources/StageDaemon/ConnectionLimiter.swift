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

    /// Waits for the admission of a connection's request; returns `false` if the connection has closed.
    func begin(_ id: Int) async -> Bool {
        await withCheckedContinuation { continuation in
            let admission = state.withLock { state in
                let admission = state.table.begin(id)
                if admission == .queued { state.waiting[id] = continuation }
                return admission
            }
            if admission != .queued { continuation.resume(returning: admission == .now) }
        }
    }

    func end(_ id: Int) { resume { $0.end(id) } }

    func stream(_ id: Int) -> Bool {
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

    func reserveMemory(_ bytes: Int, by id: Int) -> Bool {
        state.withLock { $0.table.reserveMemory(bytes, by: id) }
    }
}

/// Responds that there are too many connections, and closes the connection.
final class RefusalHandler: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func channelActive(context: ChannelHandlerContext) {
        let refusal = ControlRefusal(
            .unavailable,
            message: "your programs have too many connections to the daemon: close some"
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
