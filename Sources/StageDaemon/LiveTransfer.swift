import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import StageTransfer
import Synchronization

/// What is known of a transfer only while it runs.
///
/// The engine's thread writes it, and must not wait: who wants to know reads it.
final class LiveTransfer: Sendable {
    /// What there is to say of a transfer.
    struct State: Sendable {
        var received = ByteCount.zero
        var sent = ByteCount.zero
        var total: ByteCount?
        var response: ResponseSummary?
        var started: Date?
        var attempts = 0
        var problem: String?
        /// The wait that the engine has begun; the transfer gives its place up for it.
        var wait: (reason: HoldReason, duration: Duration)?
        fileprivate var told: ContinuousClock.Instant?
    }

    let id: Int64
    let switchOff = StopSwitch()
    private let state: Mutex<State>
    private let tell: @Sendable (SessionEvent) -> Void

    /// Creates what is known before the first attempt; `tell` is given what clients may hear.
    init(
        _ id: Int64,
        total: ByteCount?,
        tell: @escaping @Sendable (SessionEvent) -> Void
    ) {
        self.id = id
        self.tell = tell
        state = Mutex(State(total: total))
    }

    /// What is known now.
    var current: State { state.withLock { $0 } }

    /// Takes note of what the engine says.
    func take(_ event: TransferEvent) {
        switch event {
        case .waiting(.backoff, let duration): wait(.backoff, duration)
        case .waiting(.server, let duration): wait(.server, duration)
        case .waiting(.connection, _): break
        case .connecting:
            state.withLock { state in
                state.attempts += 1
                state.started = state.started ?? Date.now
            }
        case .accepted(_, _, let offset):
            state.withLock { $0.received = offset }
            if offset > .zero {
                var event = SessionEvent(.resumed, time: .now)
                event.offset = offset
                send(event)
            }
        case .responded(let response): state.withLock { $0.response = response }
        case .received(let count): progress { $0.received = count }
        case .sent(let count): progress { $0.sent = count }
        case .restarted: state.withLock { $0.received = .zero }
        case .mirrorFailed(_, let error): state.withLock { $0.problem = "\(error)" }
        case .checkpointed: break
        }
    }

    /// Takes note of what the worker of a staging says.
    func take(_ update: StagingUpdate) {
        // A user may say whatever they like for a worker of theirs, but sums of it stay numbers.
        let most = ByteCount(RequestLimits.size)
        progress { state in
            state.received = update.bytesReceived.map { min($0, most) } ?? state.received
            state.total = update.bytesExpected.map { min($0, most) } ?? state.total
        }
    }

    private func wait(_ reason: HoldReason, _ duration: Duration?) {
        state.withLock { $0.wait = (reason, duration ?? .zero) }
        switchOff.stop()
    }

    private func progress(_ change: (inout State) -> Void) {
        let now = ContinuousClock.now
        let mayTell = state.withLock { state in
            change(&state)
            if state.total == nil { state.total = state.response?.contentTotal }
            // Ten times a second is as often as a person can see.
            guard state.told.map({ now - $0 >= .milliseconds(100) }) ?? true else { return false }
            state.told = now
            return true
        }
        if mayTell { send(progressEvent) }
    }

    /// What a client is told of the bytes.
    var progressEvent: SessionEvent {
        let state = current
        var event = SessionEvent(.progress, time: .now)
        event.bytesReceived = state.received
        event.bytesSent = state.sent
        event.bytesExpected = state.total
        return event
    }

    private func send(_ event: SessionEvent) {
        var event = event
        event.task = id
        tell(event)
    }

    /// What the transfer has cost.
    func metrics(ended: Date) -> TransferMetrics {
        let state = current
        var metrics = TransferMetrics(ended: ended)
        metrics.started = state.started
        metrics.attempts = state.attempts
        metrics.bytesReceived = state.received
        metrics.bytesSent = state.sent
        metrics.redirects = state.response?.redirects ?? 0
        return metrics
    }
}

extension ResponseSummary {
    /// The length of the whole content that the server has announced.
    fileprivate var contentTotal: ByteCount? {
        let length =
            status == 206
            ? value(of: "Content-Range")?.split(separator: "/").last.map(String.init)
            : value(of: "Content-Length")
        return length.flatMap { Int64($0) }.map { ByteCount($0) }
    }
}

extension TransferResponse {
    /// What a client is told of an answer.
    init(_ summary: ResponseSummary) {
        self.init(
            url: summary.url,
            status: summary.status,
            headers: summary.fields.map { [$0.name, $0.value] }
        )
    }
}
