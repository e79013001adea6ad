import Foundation
import FoundationNetworking
import StageControl
import StageModel

/// State of a task in the client, and the changes that have to be sent to the daemon.
///
/// A state machine without I/O: ``nextStep()`` returns the next request, and the functions after it record its
/// result.
struct ClientTaskState {
    /// Process that carries out the task, with the state that only tasks there have.
    private enum Executor {
        case daemon(DaemonTaskState)
        case process(ForegroundTaskState)
    }

    /// Next request to the daemon.
    enum Step: Equatable {
        case create(TransferRequest)
        case change(Int64, TransferChange)
    }

    /// Request of the task, with later changes.
    private(set) var request: TransferRequest
    private var executor: Executor
    /// Number of calls of `suspend` minus those of `resume`; a new task counts as suspended once.
    private(set) var suspensions: Int
    /// `true` if this process cancelled the task.
    private(set) var isCancelled = false
    /// `true` once the end was recorded: later events are duplicates.
    private(set) var hasEnded = false

    /// The application's request; `nil` for a task of another process.
    var original: URLRequest?

    /// Properties that the application sees.
    var identifier = 0
    var isComplete = false
    var error: (any Error)?
    var response: URLResponse?
    var bytesReceived = Int64(0)
    var bytesSent = Int64(0)
    var bytesExpected: Int64?
    /// Byte counts of the last progress call to the delegate; the next call reports the bytes since then.
    var reportedReceived = Int64(0)
    var reportedSent = Int64(0)
    /// `true` while a progress call to the delegate is scheduled.
    var willReportProgress = false
    /// Number of resumptions that were not reported to the delegate yet.
    var pendingResumptions = 0
    var challenges = 0
    /// The application's answer to the last challenge, until a response shows whether the server accepts it.
    var answered: AnsweredChallenge?
    var resumeDataReceivers: [@Sendable (Data?) -> Void] = []
    /// Error that the task fails with as soon as it is resumed.
    var refusal: URLError?
    /// Receiver of the end of a task that its session refuses, until the task has ended.
    var receiver = ForegroundTransfer.Receiver.delegate

    /// Creates the record of a new task for the daemon.
    init(_ request: TransferRequest, created: ContinuousClock.Instant) {
        self.request = request
        executor = .daemon(DaemonTaskState(created: created))
        suspensions = 1
    }

    /// Creates the record of a new task that this process carries out.
    init(_ request: TransferRequest, process: ForegroundTaskState) {
        self.request = request
        executor = .process(process)
        suspensions = 1
    }

    /// Creates the record of a task that the daemon has.
    init(_ task: TransferTask) {
        request = task.request
        // The daemon lists secret field values as placeholders, which must not be sent as values.
        request.headers = request.headers?.filter { $0.value != TransferTask.hiddenValue }
        executor = .daemon(DaemonTaskState(number: task.id, created: nil))
        identifier = TaskIdentity.number(of: task)
        suspensions = task.state == .suspended ? 1 : 0
        isCancelled = task.state == .cancelled
        update(task)
        bytesReceived = task.bytesReceived.rawValue
        reportedReceived = bytesReceived
        reportedSent = bytesSent
    }

    /// `true` if the task waits for `resume`.
    var isSuspended: Bool { suspensions > 0 }

    /// State of a task of the daemon; `nil` for one that this process carries out.
    private(set) var daemon: DaemonTaskState? {
        get { if case .daemon(let state) = executor { state } else { nil } }
        set { if let newValue { executor = .daemon(newValue) } }
    }

    /// State of a task that this process carries out; `nil` for one of the daemon.
    var process: ForegroundTaskState? {
        get { if case .process(let state) = executor { state } else { nil } }
        set { if let newValue { executor = .process(newValue) } }
    }

    /// The daemon's number of the task.
    var number: Int64? { daemon?.number }

    /// `true` if only this process knows the task.
    var isOnlyHere: Bool { daemon.map { $0.number == nil && $0.requests == 0 } ?? true }

    /// `true` if the task, or a change of it, has to be sent to the daemon.
    var hasUnsentChanges: Bool {
        guard let daemon, !hasEnded, refusal == nil else { return false }
        return daemon.number == nil || daemon.pending != TransferChange()
    }

    /// Error of a task that ends before the daemon has it, or that the daemon has refused.
    var reasonToEnd: URLError? {
        guard !hasEnded else { return nil }
        if isCancelled && isOnlyHere { return URLError(.cancelled) }
        return isSuspended && !isCancelled ? nil : refusal
    }

    /// Returns the resume data that the task was created with, if it ends with `error` before the daemon has it.
    ///
    /// The data is not used up then. Returns `nil` if the task is cancelled without a receiver of resume data, or if the
    /// daemon no longer has the partial file.
    func unusedResumeData(after error: URLError) -> Data? {
        let isWanted = error.code != .cancelled || !resumeDataReceivers.isEmpty
        guard isWanted, error.code != .cannotOpenFile, isOnlyHere,
            let token = request.resumeToken
        else { return nil }
        let handlesCookies = original?.httpShouldHandleCookies ?? true
        return ResumeData(request, token: token, handlesCookies: handlesCookies).data
    }

    /// Returns the next request to the daemon, if there is one; the caller sends it and records the result.
    mutating func nextStep() -> Step? {
        guard hasUnsentChanges, !(isCancelled && isOnlyHere), let daemon else { return nil }
        guard let number else {
            var request = request
            request.isSuspended = isSuspended
            if daemon.omitsDetails {
                request.description = nil
                (request.expectedToReceive, request.expectedToSend) = (nil, nil)
            }
            // The daemon responds to a repeated request with the task that the first one created, which may differ
            // from the current state: send all of it as a change.
            let isFirst = daemon.requests == 0 && !isCancelled
            let change = isFirst ? TransferChange() : completeChange(daemon)
            self.daemon?.pending = change
            self.daemon?.requests += 1
            return .create(request)
        }
        self.daemon?.pending = TransferChange()
        self.daemon?.isSending = true
        return .change(number, daemon.pending)
    }

    /// Records that the daemon has the task.
    mutating func wasCreated(as number: Int64) { daemon?.number = number }

    /// Records the value of the session's `attachments` when it learned of the task from the daemon.
    mutating func wasDiscovered(at attachment: Int) { daemon?.discoveryAttachment = attachment }

    /// Records that the daemon has responded to a change.
    mutating func didSend() { daemon?.isSending = false }

    /// Records that the daemon did not receive a change, which is sent again later.
    mutating func didNotSend(_ change: TransferChange) {
        let later = daemon?.pending ?? TransferChange()
        daemon?.pending = change.merging(later)
        daemon?.isSending = false
    }

    /// Records that the request to create the task never reached the daemon.
    mutating func creationWasNotSent() { daemon?.requests -= 1 }

    /// Leaves the description and the expected sizes out of the next request to create the task; returns `false` if it has
    /// none, or if the last request was without them.
    ///
    /// The task keeps them in this process, like those of a change that the daemon refuses.
    mutating func omitDetails() -> Bool {
        guard let daemon, !daemon.omitsDetails else { return false }
        let sizes = [request.expectedToReceive, request.expectedToSend].compactMap { $0 }
        guard request.description != nil || !sizes.isEmpty else { return false }
        self.daemon?.omitsDetails = true
        return true
    }

    /// Updates the record from the daemon's task, unless its end was recorded, which is newer.
    mutating func update(_ task: TransferTask) {
        guard !hasEnded else { return }
        daemon?.pendingReasons = task.pendingReasons
        // Before a response tells where the download continues, these are bytes of the task that made the resume data, and
        // would count as newly written.
        let isResuming = request.resumeToken != nil && daemon?.lastResumption == nil
        let (received, sent) = (task.bytesReceived.rawValue, task.bytesSent.rawValue)
        // A list of tasks may be older than events that have arrived, so that only an event says that a transfer starts over.
        let hasEvents = (daemon?.eventCount ?? 0) > 0
        if !isResuming { bytesReceived = hasEvents ? max(bytesReceived, received) : received }
        bytesSent = hasEvents ? max(bytesSent, sent) : sent
        bytesExpected = task.bytesExpected?.rawValue ?? bytesExpected
        if let head = task.response { response = HTTPURLResponse(head) }
    }

    /// Records an event; returns `false` without recording it after the task's end, and if it repeats a resumption.
    mutating func take(_ event: SessionEvent) -> Bool {
        guard !hasEnded else { return false }
        if event.kind == .resumed, let daemon {
            guard daemon.lastResumption != event.time else { return false }
            self.daemon?.lastResumption = event.time
        }
        daemon?.eventCount += 1
        if event.kind == .resumed, let offset = event.offset {
            // The bytes before the offset are there, also if no event has counted them yet.
            bytesReceived = max(bytesReceived, offset.rawValue)
        }
        if let bytes = event.bytesReceived { bytesReceived = bytes.rawValue }
        if let bytes = event.bytesSent { bytesSent = bytes.rawValue }
        if let bytes = event.bytesExpected { bytesExpected = bytes.rawValue }
        if let reasons = event.pendingReasons { daemon?.pendingReasons = reasons }
        if let response = event.response { self.response = HTTPURLResponse(response) }
        if request.kind == .upload, let body = event.body { bytesReceived = Int64(body.count) }
        guard [.completed, .failed, .cancelled].contains(event.kind) else { return true }
        return end()
    }

    /// Records the pending reasons that the reader of the session's events receives; returns `false` if it has received
    /// the same ones last.
    ///
    /// The daemon repeats the state of its tasks to a client that attaches.
    mutating func report(_ reasons: [PendingReason]) -> Bool {
        guard daemon?.reportedReasons != reasons else { return false }
        daemon?.reportedReasons = reasons
        return true
    }

    /// The application's request, or the daemon's; an upload's body is its file.
    var originalRequest: URLRequest? {
        guard var original else { return URLRequest(request) }
        if request.kind == .upload, request.file != nil {
            original.httpBody = nil
            original.httpBodyStream = nil
        }
        return original
    }

    /// The request with the method that is sent, at the URL that responded.
    var currentRequest: URLRequest? {
        if let current = process?.current { return current }
        guard var current = originalRequest else { return nil }
        current.httpMethod = request.method ?? current.httpMethod
        // The daemon reports URLs without user name and password.
        let asked = URL(string: URLReference(request.url).withoutUser.text)
        if let url = response?.url, asked != url { current.url = url }
        return current
    }

    /// Records that a request begins, whose body is sent from its first byte.
    mutating func beginBody() {
        let sent = bytesSent
        process?.bytesSentBefore += sent
        (bytesSent, reportedSent) = (0, 0)
    }

    /// Records that a download begins again at its first byte.
    mutating func beginContent() { (bytesReceived, reportedReceived) = (0, 0) }

    /// Records that the task has ended; returns whether that is new.
    @discardableResult
    mutating func end() -> Bool {
        defer {
            hasEnded = true
            daemon?.pendingReasons = []
        }
        return !hasEnded
    }

    /// Counts a `resume`; returns whether the task may run now and could not before.
    mutating func resume() -> Bool {
        guard suspensions > 0, !isCancelled, !hasEnded else { return false }
        suspensions -= 1
        guard suspensions == 0 else { return false }
        daemon?.pending.state = .running
        return true
    }

    /// Counts a `suspend`; returns whether the task could run before.
    mutating func suspend() -> Bool {
        guard !isCancelled, !hasEnded else { return false }
        suspensions += 1
        guard suspensions == 1 else { return false }
        daemon?.pending.state = .suspended
        return true
    }

    /// Records that the application cancels the task; returns whether that is new.
    mutating func cancel(producingResumeData: Bool) -> Bool {
        guard !isCancelled, !hasEnded else { return false }
        isCancelled = true
        daemon?.pending.state = .cancelled
        daemon?.pending.producesResumeToken = producingResumeData ? true : nil
        return true
    }

    /// Records the application's change of the task.
    mutating func change(_ change: TransferChange) {
        if let pending = daemon?.pending { daemon?.pending = pending.merging(change) }
        request.priority = change.priority ?? request.priority
        request.description = change.description ?? request.description
        request.earliestBegin = change.earliestBegin ?? request.earliestBegin
        request.expectedToReceive = change.expectedToReceive ?? request.expectedToReceive
        request.expectedToSend = change.expectedToSend ?? request.expectedToSend
    }

    /// Change with all properties that may differ from the first request.
    private func completeChange(_ daemon: DaemonTaskState) -> TransferChange {
        var change = TransferChange()
        change.state = isCancelled ? .cancelled : isSuspended ? .suspended : .running
        change.producesResumeToken = daemon.pending.producesResumeToken
        change.priority = request.priority
        change.description = request.description
        change.earliestBegin = request.earliestBegin
        change.expectedToReceive = request.expectedToReceive
        change.expectedToSend = request.expectedToSend
        return change
    }
}

extension TransferChange {
    /// Returns this change and then `later`, as one.
    func merging(_ later: TransferChange) -> TransferChange {
        var change = self
        // A cancelled task accepts no further change of state.
        if state != .cancelled {
            change.state = later.state ?? state
            change.producesResumeToken = later.producesResumeToken ?? producesResumeToken
        }
        change.priority = later.priority ?? priority
        change.description = later.description ?? description
        change.earliestBegin = later.earliestBegin ?? earliestBegin
        change.expectedToReceive = later.expectedToReceive ?? expectedToReceive
        change.expectedToSend = later.expectedToSend ?? expectedToSend
        change.authorization = later.authorization ?? authorization
        change.rejectsChallenge = later.rejectsChallenge ?? rejectsChallenge
        return change
    }
}

extension HTTPURLResponse {
    /// Creates Foundation's representation of a response; `nil` if its URL is invalid.
    convenience init?(_ response: TransferResponse) {
        guard let url = URL(string: response.url) else { return nil }
        var fields: [String: String] = [:]
        // Fields may repeat a name in another capitalization, of which Foundation would keep one value only.
        var spellings: [String: String] = [:]
        for field in response.headers where field.count == 2 {
            let name = spellings[field[0].lowercased(), default: field[0]]
            spellings[name.lowercased()] = name
            // Values of repeated fields are joined (RFC 9110, section 5.3).
            fields[name] = fields[name].map { "\($0), \(field[1])" } ?? field[1]
        }
        self.init(
            url: url,
            statusCode: response.status,
            httpVersion: "HTTP/1.1",
            headerFields: fields
        )
    }
}
