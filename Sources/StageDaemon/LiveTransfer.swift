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
        /// The bytes that the server of an upload that resumes has.
        fileprivate var stored = ByteCount.zero
        var total: ByteCount?
        /// Whether the total is that of what is sent, so that an answer says nothing of it.
        fileprivate var isUpload = false
        var response: ResponseSummary?
        /// The body of an answer that ends no upload: of a challenge.
        var body: [UInt8] = []
        var started: Date?
        var attempts = 0
        /// When the server was asked last, redirects apart, and when the head of its answer was here.
        fileprivate var asked: Date?
        fileprivate var answered: Date?
        var problem: String?
        /// Whether the problem is that no answer came.
        var isUnreachable = false
        /// The wait that the engine has begun; the transfer gives its place up for it.
        var wait: (reason: HoldReason, duration: Duration)?
        /// The bytes of the body of a request that is not to be sent twice, once the journal has a provisional
        /// end for the task.
        fileprivate var rememberedSize: ByteCount?
        /// The bytes of the body of an upload that resumes, once the journal says that all of it may have been sent.
        fileprivate var resumedSize: ByteCount?
        /// Whether all of a request of either kind may have been sent.
        fileprivate var hasSentAll = false
        fileprivate var told: ContinuousClock.Instant?

        /// The head of the answer for lists.
        var head: TransferResponse? { response.map { TransferResponse(bounding: $0) } }

        /// Takes the size of the content from the head of an answer that brings it.
        fileprivate mutating func noteTotal(of response: ResponseSummary) {
            guard total == nil, !isUpload, [200, 206].contains(response.status) else { return }
            total = response.contentTotal
        }
    }

    let id: Int64
    /// Whether an answer ends the transfer whose status usually leads to another attempt.
    let takesAnyAnswer: Bool
    let switchOff = StopSwitch()
    private let state: Mutex<State>
    private let tell: @Sendable (SessionEvent) -> Void

    /// Creates what is known before the first attempt; `tell` is given what clients may hear.
    init(
        _ id: Int64,
        total: ByteCount?,
        takesAnyAnswer: Bool = false,
        tell: @escaping @Sendable (SessionEvent) -> Void
    ) {
        self.id = id
        self.takesAnyAnswer = takesAnyAnswer
        self.tell = tell
        state = Mutex(State(total: total))
    }

    /// Takes over the size that the request tells, and what an upload has sent before.
    func begin(_ task: FullTask) {
        state.withLock { state in
            state.isUpload = task.request.kind == .upload
            state.total = task.request.size ?? state.total
            state.stored = task.upload?.offset ?? .zero
            state.sent = state.stored
        }
    }

    /// Whether the request is one that is not to be sent twice, and the journal says so.
    var isRemembered: Bool { current.rememberedSize != nil }

    /// Whether all of a request was sent that a server may act on, and that is not to be sent twice or resumes.
    var isAwaitingAnswer: Bool { current.hasSentAll }

    /// Takes note that the journal has a provisional end for the task, whose request has so many bytes of a body.
    func remember(_ size: ByteCount) {
        state.withLock { $0.rememberedSize = size }
    }

    /// Takes note of where the journal has an upload resume: that is no request that must not be sent twice.
    func resumes(at resource: UploadResource?) {
        state.withLock { state in
            let mayBeComplete = resource?.mayBeComplete ?? false
            state.rememberedSize = nil
            state.resumedSize = mayBeComplete ? state.total : nil
            // It may be named when all of the body was sent.
            state.hasSentAll = state.hasSentAll && mayBeComplete
            state.stored = resource?.offset ?? .zero
        }
    }

    /// Ends the attempt, at once or, where an upload waits for its answer, after ``answerPatience``.
    func stop() {
        guard isAwaitingAnswer else { return switchOff.stop() }
        Task {
            // Cancelled by nothing.
            try? await Task.sleep(for: Self.answerPatience)
            switchOff.stop()
        }
    }

    /// The time that an answer has to come when an upload is to yield or to pause: without it the upload fails, or
    /// asks for it later if it resumes.
    private static let answerPatience = Duration.seconds(30)

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
                // A question for the offset has no answer that would be worth waiting for.
                state.hasSentAll = state.rememberedSize == .zero
                state.attempts += 1
                state.asked = Date.now
                state.started = state.started ?? state.asked
            }
        case .continuing: state.withLock { $0.asked = Date.now }
        case .accepted(_, _, let offset):
            state.withLock { $0.received = offset }
            if offset > .zero {
                var event = SessionEvent(.resumed, time: .now)
                event.offset = offset
                send(event)
            }
        case .responded(let response):
            state.withLock { state in
                state.response = response
                state.answered = Date.now
                state.noteTotal(of: response)
            }
            var event = progressEvent
            event.response = TransferResponse(bounding: response)
            send(event)
        case .received(let count): progress { $0.received = count }
        case .sent(let count):
            progress { state in
                state.sent = count
                if count == state.rememberedSize ?? state.resumedSize { state.hasSentAll = true }
            }
        case .restarted: state.withLock { $0.received = .zero }
        case .mirrorFailed(_, let error):
            state.withLock { state in
                state.problem = "\(error)"
                state.isUnreachable = if case .unreachable = error { true } else { false }
            }
        case .checkpointed: break
        }
    }

    /// Keeps the body of a challenge, which is the upload's answer if the client rejects the challenge.
    func keep(_ body: [UInt8]) { state.withLock { $0.body = body } }

    /// Takes note of what the worker of a staging says.
    func take(_ update: WorkerMessage) {
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
        metrics.attempt = state.attempt(ended: ended)
        return metrics
    }
}

extension LiveTransfer.State {
    /// The report of the attempt, which ends at a date.
    func report(ended: Date) -> AttemptReport {
        var report = AttemptReport()
        report.received = received
        report.sent = sent
        report.stored = stored
        report.total = total
        report.attempts = attempts
        report.problem = problem
        report.isUnreachable = isUnreachable
        report.started = started
        report.redirects = response?.redirects ?? 0
        report.response = head
        report.challenge = response.map { TransferResponse($0) }
        report.challengeBody = AttemptReport.body(body)
        report.hasTransientStatus =
            response.map { ResponseSummary.transientStatuses.contains($0.status) } ?? false
        report.isLocked = response?.status == 423
        report.metrics = attempt(ended: ended)
        return report
    }

    /// The metrics of the attempt that was answered, if one was.
    func attempt(ended: Date) -> AttemptMetrics? {
        guard let response else { return nil }
        var metrics = AttemptMetrics()
        metrics.fetchStart = asked
        metrics.responseStart = answered
        metrics.responseEnd = ended
        metrics.bytesReceived = received.rawValue
        metrics.bytesSent = sent.rawValue
        guard let connection = response.connection else { return metrics }
        metrics.nameLookup = connection.nameLookup.seconds
        metrics.connect = connection.connect?.seconds
        metrics.secureConnect = connection.secureConnect?.seconds
        metrics.requestStart = connection.requestStart.seconds
        metrics.firstByte = connection.firstByte.seconds
        metrics.networkProtocol = connection.networkProtocol
        (metrics.remoteAddress, metrics.remotePort) = connection.remote
        (metrics.localAddress, metrics.localPort) = connection.local
        metrics.isReusedConnection = connection.isReused
        metrics.requestHeaderBytes = connection.requestHeaderBytes
        metrics.responseHeaderBytes = connection.responseHeaderBytes
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

extension TransferResponse {
    /// The most bytes of header fields that are kept for a task that waits, and told with progress.
    private static let mostKept = 4 << 10

    /// The head of an answer for lists and progress, which others than the session's owner may see: without cookies,
    /// and without fields where they are many.
    init(bounding summary: ResponseSummary) {
        self = TransferResponse(summary).withoutCookies
        let bytes = headers.joined().reduce(0) { $0 + $1.utf8.count }
        if bytes > Self.mostKept { headers = [] }
    }

    /// The head without the fields that set cookies.
    var withoutCookies: TransferResponse {
        var head = self
        head.headers.removeAll { $0.first?.lowercased() == "set-cookie" }
        return head
    }
}
