import NIOCore
import StageModel
import StageWebSocket
import Synchronization

/// WebSocket connection that sends each message back.
///
/// Keeps at most one message of 16 MiB and its copy in memory: it does not read while the peer does not. Closes the
/// connection after ``idleLimit`` without data, so that a peer which has disappeared does not keep it open.
struct EchoConnection {
    typealias Inbound = NIOAsyncChannelInboundStream<ByteBuffer>
    typealias Outbound = NIOAsyncChannelOutboundWriter<ByteBuffer>

    let idleLimit: Duration
    let admission: EchoAdmission

    private static let limits = WebSocketLimits(messageSize: 16 << 20)
    /// Time during which remaining input is discarded, so that the peer receives the close frame and not a reset.
    private static let lingering = Duration.seconds(2)
    private static let pieceSize = 1 << 16

    /// Answers the request, serves the connection until it ends, and returns its access record.
    func run(
        over channel: NIOAsyncChannel<ByteBuffer, ByteBuffer>,
        request: HTTPHead
    ) async -> AccessRecord {
        let deadline = Deadline(limit: idleLimit)
        let words = request.line.split(separator: " ", omittingEmptySubsequences: false)
        let answer = admission.answer(to: request)
        defer { if case .accept = answer { admission.release() } }
        await withTaskGroup(of: Void.self) { group in
            group.addTask {
                await deadline.passes()
                channel.channel.close(promise: nil)
            }
            await withTaskCancellationHandler {
                do {
                    try await channel.executeThenClose { inbound, outbound in
                        try await serve(inbound, to: outbound, answer: answer, until: deadline)
                    }
                } catch {
                    // The connection broke or timed out; the echo has no state to save.
                    deadline.touch()
                }
            } onCancel: {
                channel.channel.close(promise: nil)
            }
            group.cancelAll()
        }
        return AccessRecord(
            method: "GET",
            path: words.count > 1 ? String(words[1]) : "",
            status: answer.status,
            bytes: ByteCount(deadline.sent)
        )
    }

    private func serve(
        _ inbound: Inbound,
        to outbound: Outbound,
        answer: ServerHandshake.Answer,
        until deadline: Deadline
    ) async throws {
        var machine: WebSocketMachine
        switch answer {
        case .refuse(let head):
            return try await outbound.write(ByteBuffer(bytes: head.bytes))
        case .accept(let head, _, let compression):
            try await outbound.write(ByteBuffer(bytes: head.bytes))
            machine = WebSocketMachine(
                role: .server,
                compression: compression,
                limits: Self.limits
            )
        }
        var iterator = inbound.makeAsyncIterator()
        while !machine.isFinished, let buffer = try await iterator.next() {
            deadline.touch()
            let bytes = Array(buffer.readableBytesView)
            machine.receive(bytes.span)
            while let event = machine.nextEvent() {
                if case .message(let message) = event { try machine.send(message) }
                try await send(machine.takeOutput(), to: outbound, extending: deadline)
            }
            try await send(machine.takeOutput(), to: outbound, extending: deadline)
        }
        outbound.finish()
        deadline.shorten(to: Self.lingering)
        while try await iterator.next() != nil {}
    }

    private func send(
        _ bytes: [UInt8],
        to outbound: Outbound,
        extending deadline: Deadline
    ) async throws {
        var start = 0
        while start < bytes.count {
            let end = min(start + Self.pieceSize, bytes.count)
            try await outbound.write(ByteBuffer(bytes: bytes[start..<end]))
            deadline.touch(sent: end - start)
            start = end
        }
    }
}

extension ServerHandshake.Answer {
    /// Status code of the answer.
    fileprivate var status: Int {
        switch self {
        case .accept: 101
        case .refuse(let head): Int(head.line.split(separator: " ")[1]) ?? 400
        }
    }
}

/// Deadline of a connection, extended whenever data is transferred.
///
/// The time in which the machine is suspended does not count.
private final class Deadline: Sendable {
    private struct State {
        var limit: Duration
        var last = SuspendingClock.now
        var isFixed = false
        var sent: Int64 = 0
    }

    private let state: Mutex<State>

    init(limit: Duration) { state = Mutex(State(limit: limit)) }

    /// Number of bytes sent.
    var sent: Int64 { state.withLock { $0.sent } }

    /// Extends the deadline after data was transferred.
    func touch(sent: Int = 0) {
        state.withLock { state in
            state.sent += Int64(sent)
            if !state.isFixed { state.last = .now }
        }
    }

    /// Sets a final deadline, which is not extended any more.
    func shorten(to limit: Duration) {
        state.withLock { state in
            state.limit = min(limit, state.limit)
            state.last = .now
            state.isFixed = true
        }
    }

    /// Waits until the deadline, or until the task is cancelled.
    func passes() async {
        while !Task.isCancelled {
            let (end, limit) = state.withLock { ($0.last + $0.limit, $0.limit) }
            if end <= .now { return }
            // Wakes early enough to notice a shortened limit.
            let wait = min(end - .now, max(limit / 4, .milliseconds(50)))
            do { try await Task.sleep(for: wait, clock: .suspending) } catch { return }
        }
    }
}
