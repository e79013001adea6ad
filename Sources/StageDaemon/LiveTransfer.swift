import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import StageTransfer
import Synchronization

/// State of a running attempt, kept in memory only.
///
/// The engine's thread updates it and must not block; other threads read it.
final class LiveTransfer: Sendable {
    /// Progress and result of the attempt so far.
    struct State: Sendable {
        var received = ByteCount.zero
        /// `false` for a download with a partial file, until a response tells where it continues.
        fileprivate var isOffsetKnown = true
        var sent = ByteCount.zero
        /// Upload offset that the server has confirmed, for resumable uploads.
        fileprivate var uploadOffset = ByteCount.zero
        /// Content bytes that this attempt has received; bytes that it resumed from do not count.
        private(set) var newlyReceived = ByteCount.zero
        /// File bytes that this attempt has sent.
        private(set) var newlySent = ByteCount.zero
        var total: ByteCount?
        /// Set if ``total`` is the size of the upload, which a response does not change.
        fileprivate var isUpload = false
        var response: ResponseSummary?
        /// Event of the offset at which the download was resumed; `nil` if it began with the first byte.
        fileprivate var resumption: SessionEvent?
        /// Response body of a challenge, which does not end the upload.
        var body: [UInt8] = []
        var started: Date?
        var attempts = 0
        /// Time of the last request, redirects excluded, and time at which its response head was complete.
        fileprivate var requested: Date?
        fileprivate var responded: Date?
        var problem: String?
        /// Set if the host could not be reached.
        var isUnreachable = false
        /// Error of the journal that ended the attempt; `nil` if there was none, or if the disk is full.
        fileprivate(set) var journalProblem: String?
        /// Wait that the engine started.
        ///
        /// The attempt ends, and the scheduler waits instead.
        var wait: (reason: PendingReason.Kind, duration: Duration)?
        /// Size of the request body if the request must not be repeated and the journal has a provisional end for the
        /// task.
        fileprivate var provisionalEndBodySize: ByteCount?
        /// Size of the body of a resumable upload, if the journal records that all of it may have been sent.
        fileprivate var resumableBodySize: ByteCount?
        /// Set if a request that must not be repeated, or a resumable upload, may have been sent completely.
        fileprivate var hasSentAll = false

        /// Head of the response, bounded for task lists.
        var head: TransferResponse? { response.map { TransferResponse(bounding: $0) } }

        /// Sets ``received`` to a higher position of the download, and counts the bytes.
        fileprivate mutating func receive(to position: ByteCount) {
            newlyReceived += max(position - received, .zero)
            received = position
        }

        /// Sets ``sent`` to a position of the upload, and counts the bytes since the previous position.
        fileprivate mutating func send(to position: ByteCount) {
            newlySent += max(position - sent, .zero)
            sent = position
        }

        /// Sets ``total`` from the head of a response that contains the content.
        fileprivate mutating func noteTotal(of response: ResponseSummary) {
            guard total == nil, !isUpload, [200, 206].contains(response.status) else { return }
            total = response.contentTotal
        }
    }

    let id: Int64
    /// User who owns the session; `nil` if the session is gone.
    let user: UInt32?
    /// Set if the attempt accepts any status, including those that are usually retried.
    let acceptsAnyStatus: Bool
    let stopSwitch = StopSwitch()
    private let state: Mutex<State>
    /// At most ten progress events a second, as many as a person can see.
    private let throttle = Throttle(interval: .milliseconds(100))
    private let deliver: @Sendable (SessionEvent) -> Void

    /// Creates the state before the first request; `deliver` receives events for clients.
    ///
    /// `received` is the byte count of earlier attempts. A download keeps these bytes unless the server's response starts it
    /// again, so its clients receive a count only after that response; clients of a staging receive it at once.
    init(
        _ id: Int64,
        of user: UInt32?,
        acceptsAnyStatus: Bool = false,
        received: ByteCount = .zero,
        isStaging: Bool = false,
        deliver: @escaping @Sendable (SessionEvent) -> Void
    ) {
        self.id = id
        self.user = user
        self.acceptsAnyStatus = acceptsAnyStatus
        self.deliver = deliver
        var state = State()
        state.received = received
        state.isOffsetKnown = isStaging || received == .zero
        self.state = Mutex(state)
    }

    /// Sets the size that the request states, and the confirmed offset of an upload.
    func begin(_ task: FullTask) {
        state.withLock { state in
            state.isUpload = task.request.kind == .upload
            state.total = task.request.size ?? state.total
            state.uploadOffset = task.upload?.offset ?? .zero
            state.sent = state.uploadOffset
        }
    }

    /// Sets the content bytes that the partial file has before the first request.
    func noteReceived(_ received: ByteCount) {
        state.withLock { ($0.received, $0.isOffsetKnown) = (received, false) }
    }

    /// Set if the request must not be repeated, and the journal has a provisional end for the task.
    var hasProvisionalEnd: Bool { current.provisionalEndBodySize != nil }

    /// Set if a request that must not be repeated, or a resumable upload, may have been sent completely.
    var isAwaitingAnswer: Bool { current.hasSentAll }

    /// Notes that the journal has a provisional end for the task; `size` is the size of the request body.
    func noteProvisionalEnd(_ size: ByteCount) {
        state.withLock { $0.provisionalEndBodySize = size }
    }

    /// Records the error of the journal that prevents the request; `nil` if the disk is full.
    func noteJournalProblem(_ problem: String?) { state.withLock { $0.journalProblem = problem } }

    /// Notes the recorded resource of an upload, which is resumable and so needs no provisional end.
    func noteResource(_ resource: UploadResource?) {
        state.withLock { state in
            let mayBeComplete = resource?.mayBeComplete ?? false
            state.provisionalEndBodySize = nil
            state.resumableBodySize = mayBeComplete ? state.total : nil
            // The server may name the resource after the whole body was sent.
            state.hasSentAll = state.hasSentAll && mayBeComplete
            state.uploadOffset = resource?.offset ?? .zero
        }
    }

    /// Stops the attempt: at once, or after ``responseTimeout`` if an upload waits for its response.
    func stop() {
        guard isAwaitingAnswer else { return stopSwitch.stop() }
        Task {
            // This sleep is never cancelled.
            try? await Task.sleep(for: Self.responseTimeout, clock: .suspending)
            stopSwitch.stop()
        }
    }

    /// Time limit for the response of an upload that is to stop.
    ///
    /// Afterwards the upload fails, or resumes later if it can.
    private static let responseTimeout = Duration.seconds(30)

    /// Current state.
    var current: State { state.withLock { $0 } }

    /// Processes an event of the engine.
    func take(_ event: TransferEvent) {
        switch event {
        case .waiting(.backoff, let duration): wait(for: .backoff, lasting: duration)
        case .waiting(.server, let duration): wait(for: .server, lasting: duration)
        case .waiting(.connection, _): break
        case .connecting:
            state.withLock { state in
                // The response to a query for the upload offset is not worth waiting for.
                state.hasSentAll = state.provisionalEndBodySize == .zero
                state.attempts += 1
                state.requested = Date.now
                state.started = state.started ?? state.requested
            }
        case .continuing: state.withLock { $0.requested = Date.now }
        case .accepted(_, _, let offset):
            let resumption = offset > .zero ? resumption(at: offset) : nil
            state.withLock {
                ($0.received, $0.resumption, $0.isOffsetKnown) = (offset, resumption, true)
            }
            if let resumption { deliver(resumption) }
        case .responded(let response):
            state.withLock { state in
                state.response = response
                state.responded = Date.now
                state.noteTotal(of: response)
            }
            throttle.withoutReports {
                var event = progressEvent
                event.response = TransferResponse(bounding: response)
                send(event)
            }
        case .received(let count): progress { $0.receive(to: count) }
        case .sent(let count):
            progress { state in
                state.send(to: count)
                if count == state.provisionalEndBodySize ?? state.resumableBodySize {
                    state.hasSentAll = true
                }
            }
        case .restarted: state.withLock { ($0.received, $0.resumption) = (.zero, nil) }
        case .mirrorFailed(_, let error):
            state.withLock { state in
                state.problem = "\(error)"
                state.isUnreachable = if case .unreachable = error { true } else { false }
            }
        case .checkpointed: break
        }
    }

    /// Keeps the body of a challenge, which becomes the upload's response if the client rejects the challenge.
    func keepChallengeBody(_ body: [UInt8]) { state.withLock { $0.body = body } }

    /// Processes a message of a staging worker.
    func take(_ update: WorkerMessage) {
        // The worker runs as its user and may report any numbers; limit them, so that sums do not overflow.
        let most = ByteCount(RequestLimits.size)
        progress { state in
            // A new worker reports zero until it has counted the bytes of its predecessor.
            if let received = update.bytesReceived, received > .zero {
                state.received = min(received, most)
            }
            state.total = update.bytesExpected.map { min($0, most) } ?? state.total
        }
    }

    private func wait(for reason: PendingReason.Kind, lasting duration: Duration?) {
        state.withLock { $0.wait = (reason, duration ?? .zero) }
        stopSwitch.stop()
    }

    private func progress(_ change: (inout State) -> Void) {
        state.withLock { change(&$0) }
        throttle.run { [self] in send(progressEvent) }
    }

    /// Reports progress that is pending, and none after it.
    func endProgress() { throttle.end() }

    /// Progress event with the current byte counts.
    var progressEvent: SessionEvent {
        let state = current
        var event = SessionEvent(.progress, time: .now)
        // Without an offset, a client would count the bytes of an earlier attempt as progress.
        event.bytesReceived = state.isOffsetKnown ? state.received : nil
        event.bytesSent = state.sent
        event.bytesExpected = state.total
        return event
    }

    /// Returns events for a client that may have missed earlier ones: the last resumption, unchanged, if there was one,
    /// and progress with the head of the response.
    ///
    /// Calls `deliver` first, at a moment when all earlier progress events are queued and no later one is.
    func currentEvents(delivering deliver: () -> Void) -> [SessionEvent] {
        throttle.withoutReports {
            deliver()
            var event = progressEvent
            event.task = id
            event.response = current.head
            return [current.resumption, event].compactMap(\.self)
        }
    }

    private func resumption(at offset: ByteCount) -> SessionEvent {
        var event = SessionEvent(.resumed, time: .now)
        event.task = id
        event.offset = offset
        return event
    }

    private func send(_ event: SessionEvent) {
        var event = event
        event.task = id
        deliver(event)
    }

    /// Returns the metrics of the transfer.
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
    /// Returns the report of the attempt, which ends at a date.
    func report(ended: Date) -> AttemptReport {
        var report = AttemptReport()
        report.received = received
        report.sent = sent
        report.uploadOffset = uploadOffset
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
            response.map { ResponseSummary.isTransient($0.status) } ?? false
        report.isLocked = response?.status == 423
        report.metrics = attempt(ended: ended)
        return report
    }

    /// Returns the metrics of the last request that got a response, or `nil` if none did.
    func attempt(ended: Date) -> AttemptMetrics? {
        guard let response else { return nil }
        var metrics = AttemptMetrics()
        metrics.fetchStart = requested
        metrics.responseStart = responded
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

extension TransferResponse {
    /// Creates the response that clients receive.
    init(_ summary: ResponseSummary) {
        self.init(
            url: summary.url,
            status: summary.status,
            headers: summary.fields.map { [$0.name, $0.value] }
        )
    }
}

extension TransferResponse {
    /// Maximum bytes of header fields in task lists and progress events.
    private static let maximumHeaderBytes = 4 << 10

    /// Creates the head of a response for lists and progress events, which other users may see: without cookies, and
    /// without any header fields if they exceed 4 KiB.
    init(bounding summary: ResponseSummary) {
        self = TransferResponse(summary).withoutCookies
        let bytes = headers.joined().reduce(0) { $0 + $1.utf8.count }
        if bytes > Self.maximumHeaderBytes { headers = [] }
    }

    /// The head without `Set-Cookie` fields.
    var withoutCookies: TransferResponse {
        var head = self
        head.headers.removeAll { $0.first?.lowercased() == "set-cookie" }
        return head
    }
}
