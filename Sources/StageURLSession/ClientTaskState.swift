import Foundation
import FoundationNetworking
import StageControl
import StageModel

/// State of a task in the client, and the changes that have to be sent to the daemon.
///
/// A state machine without I/O: ``nextStep()`` returns the next request, and the functions after it record its
/// result.
struct ClientTaskState {
    /// Next request to the daemon.
    enum Step: Equatable {
        case create(TransferRequest)
        case change(Int64, TransferChange)
    }

    /// Request of the task, with later changes.
    private(set) var request: TransferRequest
    /// The daemon's number of the task.
    private(set) var number: Int64?
    /// Number of calls of `suspend` minus those of `resume`; a new task counts as suspended once.
    private(set) var suspensions: Int
    /// `true` if this process cancelled the task.
    private(set) var isCancelled = false
    /// Number of events that were recorded.
    private(set) var eventCount = 0
    /// `true` once the end was recorded: later events are duplicates.
    private(set) var hasEnded = false
    /// Number of requests to create the task that the daemon may have received.
    private var requests = 0
    /// Time of creation in this process; `nil` for a task that the daemon had before.
    let created: ContinuousClock.Instant?

    /// The application's request; `nil` for a task of another process.
    var original: URLRequest?
    /// Value of the session's `attachments` when it learned of the task from the daemon; `nil` for a task of this process.
    var discoveryAttachment: Int?

    /// Properties that the application sees.
    var identifier = 0
    var isComplete = false
    var error: (any Error)?
    var response: HTTPURLResponse?
    /// Head of a response over another protocol than HTTP.
    var otherResponse: URLResponse?
    /// Request after redirects, of a transfer in this process.
    var current: URLRequest?
    /// Time when the first request of a transfer in this process was sent.
    var started: Date?
    /// Time when the last request of a transfer in this process was sent.
    var asked: Date?
    /// Number of requests of a transfer in this process.
    var attempts = 0
    /// Last response to a transfer in this process.
    var lastResponse: ForegroundResponse?
    var holds: [PendingReason] = []
    var bytesReceived = Int64(0)
    var bytesSent = Int64(0)
    /// Body bytes of earlier requests of a transfer in this process.
    var bytesSentBefore = Int64(0)
    var bytesExpected: Int64?
    /// Byte counts of the last progress call to the delegate; the next call reports the bytes since then.
    var reportedReceived = Int64(0)
    var reportedSent = Int64(0)
    /// `true` while a progress call to the delegate is scheduled.
    var willReportProgress = false
    var challenges = 0
    /// The application's answer to the last challenge, until a response shows whether the server accepts it.
    var answered: AnsweredChallenge?
    var resumeDataReceivers: [@Sendable (Data?) -> Void] = []
    /// Error that the task fails with as soon as it is resumed.
    var refusal: URLError?
    /// Receiver of the end of a task that its session refuses, until the task has ended.
    var receiver = ForegroundTransfer.Receiver.delegate

    private var pending = TransferChange()
    /// `true` while a change is being sent to the daemon.
    private var isSending = false

    /// Creates the record of a new task.
    init(_ request: TransferRequest, created: ContinuousClock.Instant) {
        self.request = request
        self.created = created
        suspensions = 1
    }

    /// Creates the record of a task that the daemon has.
    init(_ task: TransferTask) {
        request = task.request
        // The daemon lists secret field values as placeholders, which must not be sent as values.
        request.headers = request.headers?.filter { $0.value != TransferTask.hiddenValue }
        created = nil
        number = task.id
        identifier = TaskIdentity.number(of: task)
        suspensions = task.state == .suspended ? 1 : 0
        isCancelled = task.state == .cancelled
        update(task)
        reportedReceived = bytesReceived
        reportedSent = bytesSent
    }

    /// `true` if the task waits for `resume`.
    var isSuspended: Bool { suspensions > 0 }

    /// `true` if only this process knows the task.
    var isOnlyHere: Bool { number == nil && requests == 0 }

    /// `true` if the daemon has the task with all changes.
    var isStored: Bool { number != nil && pending == TransferChange() && !isSending }

    /// `true` if the task, or a change of it, has to be sent to the daemon.
    var hasUnsentChanges: Bool {
        guard !hasEnded, refusal == nil else { return false }
        return number == nil || pending != TransferChange()
    }

    /// Error of a task that ends before the daemon has it, or that the daemon has refused.
    var reasonToEnd: URLError? {
        guard !hasEnded else { return nil }
        if isCancelled && isOnlyHere { return URLError(.cancelled) }
        return isSuspended && !isCancelled ? nil : refusal
    }

    /// Returns the next request to the daemon, if there is one; the caller sends it and records the result.
    mutating func nextStep() -> Step? {
        guard hasUnsentChanges, !(isCancelled && isOnlyHere) else { return nil }
        guard let number else {
            var request = request
            request.isSuspended = isSuspended
            // The daemon responds to a repeated request with the task that the first one created, which may differ
            // from the current state: send all of it as a change.
            pending = requests > 0 || isCancelled ? completeChange : TransferChange()
            requests += 1
            return .create(request)
        }
        defer { pending = TransferChange() }
        isSending = true
        return .change(number, pending)
    }

    /// Records that the daemon has the task.
    mutating func wasCreated(as number: Int64) { self.number = number }

    /// Records that the daemon has responded to a change.
    mutating func didSend() { isSending = false }

    /// Records that the daemon did not receive a change, which is sent again later.
    mutating func didNotSend(_ change: TransferChange) {
        pending = change.merging(pending)
        isSending = false
    }

    /// Records that the request to create the task never reached the daemon.
    mutating func creationWasNotSent() { requests -= 1 }

    /// Updates the record from the daemon's task, unless its end was recorded, which is newer.
    mutating func update(_ task: TransferTask) {
        guard !hasEnded else { return }
        holds = task.holds
        bytesReceived = task.bytesReceived.rawValue
        bytesSent = task.bytesSent.rawValue
        bytesExpected = task.bytesExpected?.rawValue ?? bytesExpected
        if let head = task.response { response = HTTPURLResponse(head) }
    }

    /// Records an event; returns `false` without recording it after the task's end.
    mutating func take(_ event: SessionEvent) -> Bool {
        guard !hasEnded else { return false }
        eventCount += 1
        if let bytes = event.bytesReceived { bytesReceived = bytes.rawValue }
        if let bytes = event.bytesSent { bytesSent = bytes.rawValue }
        if let bytes = event.bytesExpected { bytesExpected = bytes.rawValue }
        if let holds = event.holds { self.holds = holds }
        if let response = event.response { self.response = HTTPURLResponse(response) }
        if request.kind == .upload, let body = event.body { bytesReceived = Int64(body.count) }
        guard [.completed, .failed, .cancelled].contains(event.kind) else { return true }
        return end()
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
        if let current { return current }
        guard var current = originalRequest else { return nil }
        current.httpMethod = request.method ?? current.httpMethod
        // The daemon reports URLs without user name and password.
        let asked = URL(string: URLReference(request.url).withoutUser.text)
        if let url = response?.url, asked != url { current.url = url }
        return current
    }

    /// Records that a request begins, whose body is sent from its first byte.
    mutating func beginBody() {
        bytesSentBefore += bytesSent
        (bytesSent, reportedSent) = (0, 0)
    }

    /// Records that a download begins again at its first byte.
    mutating func beginContent() { (bytesReceived, reportedReceived) = (0, 0) }

    /// Records that the task has ended; returns whether that is new.
    @discardableResult
    mutating func end() -> Bool {
        defer {
            hasEnded = true
            holds = []
        }
        return !hasEnded
    }

    /// Counts a `resume`; returns whether the task may run now and could not before.
    mutating func resume() -> Bool {
        guard suspensions > 0, !isCancelled, !hasEnded else { return false }
        suspensions -= 1
        guard suspensions == 0 else { return false }
        pending.state = .running
        return true
    }

    /// Counts a `suspend`; returns whether the task could run before.
    mutating func suspend() -> Bool {
        guard !isCancelled, !hasEnded else { return false }
        suspensions += 1
        guard suspensions == 1 else { return false }
        pending.state = .suspended
        return true
    }

    /// Records that the application cancels the task; returns whether that is new.
    mutating func cancel(producingResumeData: Bool) -> Bool {
        guard !isCancelled, !hasEnded else { return false }
        isCancelled = true
        pending.state = .cancelled
        pending.producesResumeToken = producingResumeData ? true : nil
        return true
    }

    /// Records the application's change of the task.
    mutating func change(_ change: TransferChange) {
        pending = pending.merging(change)
        request.priority = change.priority ?? request.priority
        request.description = change.description ?? request.description
        request.earliestBegin = change.earliestBegin ?? request.earliestBegin
        request.expectedToReceive = change.expectedToReceive ?? request.expectedToReceive
        request.expectedToSend = change.expectedToSend ?? request.expectedToSend
    }

    /// Change with all properties that may differ from the first request.
    private var completeChange: TransferChange {
        var change = TransferChange()
        change.state = isCancelled ? .cancelled : isSuspended ? .suspended : .running
        change.producesResumeToken = pending.producesResumeToken
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
