import Foundation
import FoundationNetworking
import StageControl
import StageModel

/// A task as the client has it, and what the daemon has yet to be told of it.
///
/// Decides and does nothing: ``nextStep()`` says what to tell the daemon, and the functions after it take
/// in what came of that.
struct TaskRecord {
    /// What the daemon is to be told next.
    enum Step: Equatable {
        case create(TransferRequest)
        case change(Int64, TransferChange)
    }

    /// What was asked for, with what was changed since.
    private(set) var request: TransferRequest
    /// The number that the daemon gave the task.
    private(set) var number: Int64?
    /// How often `suspend` was called more than `resume`; a new task counts as suspended once.
    private(set) var suspensions: Int
    /// Whether the task was cancelled here.
    private(set) var isCancelled = false
    /// Number of events that were taken in.
    private(set) var eventCount = 0
    /// Whether its end was taken in: what comes after that comes twice.
    private(set) var hasEnded = false
    /// How often the daemon may have been asked to create the task.
    private var requests = 0
    /// When the task was made.
    let created: Date

    /// The request as the application made it; `nil` for a task that was found.
    var original: URLRequest?
    /// How often the session had attached when it found the task; `nil` for a task made here.
    var found: Int?

    /// What the application sees of it.
    var identifier = 0
    var isComplete = false
    var error: (any Error)?
    var response: HTTPURLResponse?
    /// The head of an answer that is not of HTTP.
    var otherResponse: URLResponse?
    /// The request after redirects, of a transfer in this process.
    var current: URLRequest?
    /// When the last request of a transfer in this process was sent.
    var asked: Date?
    /// The last answer to a transfer in this process.
    var lastAnswer: ForegroundAnswer?
    var holds: [Hold] = []
    var bytesReceived = Int64(0)
    var bytesSent = Int64(0)
    var bytesExpected: Int64?
    /// What the application was last told of, so that it can be told the difference.
    var toldReceived = Int64(0)
    var toldSent = Int64(0)
    /// Whether the delegate is going to be told of progress anyway.
    var willTellProgress = false
    var challenges = 0
    var resumeDataReceivers: [@Sendable (Data?) -> Void] = []
    /// Why the task fails as soon as it is resumed.
    var refusal: URLError?

    private var pending = TransferChange()
    /// Whether a change is on its way to the daemon.
    private var isSending = false

    /// Creates the record of a new task.
    init(_ request: TransferRequest, created: Date) {
        self.request = request
        self.created = created
        suspensions = 1
    }

    /// Creates the record of a task that the daemon has.
    init(_ task: TransferTask) {
        request = task.request
        // A placeholder is not to be sent.
        request.headers = request.headers?.filter { $0.value != TransferTask.hiddenValue }
        created = task.created
        number = task.id
        identifier = TaskIdentity.number(of: task)
        suspensions = task.state == .suspended ? 1 : 0
        isCancelled = task.state == .cancelled
        update(task)
        toldReceived = bytesReceived
        toldSent = bytesSent
    }

    /// Whether the task waits for `resume`.
    var isSuspended: Bool { suspensions > 0 }

    /// Whether nobody but this process knows the task.
    var isOnlyHere: Bool { number == nil && requests == 0 }

    /// Whether the daemon has the task with all that was changed.
    var isStored: Bool { number != nil && pending == TransferChange() && !isSending }

    /// Whether the daemon has yet to be told of the task, or of a change of it.
    var mustBeTold: Bool {
        guard !hasEnded, refusal == nil else { return false }
        return number == nil || pending != TransferChange()
    }

    /// The error that the task ends with before the daemon has it, or since the daemon has refused it.
    var reasonToEnd: URLError? {
        guard !hasEnded else { return nil }
        if isCancelled && isOnlyHere { return URLError(.cancelled) }
        return isSuspended && !isCancelled ? nil : refusal
    }

    /// What is to be told the daemon, if anything is; the caller tells it and says what came of it.
    mutating func nextStep() -> Step? {
        guard mustBeTold, !(isCancelled && isOnlyHere) else { return nil }
        guard let number else {
            var request = request
            request.isSuspended = isSuspended
            // A request that is repeated is answered with the task that it made the first time, which may
            // not be what it says by now.
            pending = requests > 0 || isCancelled ? whole : TransferChange()
            requests += 1
            return .create(request)
        }
        defer { pending = TransferChange() }
        isSending = true
        return .change(number, pending)
    }

    /// Takes in that the daemon has the task.
    mutating func wasCreated(as number: Int64) { self.number = number }

    /// Takes in that the daemon has answered a change.
    mutating func wasTold() { isSending = false }

    /// Takes in that the daemon could not be told of a change: it is told later.
    mutating func wasNotTold(_ change: TransferChange) {
        pending = change.merging(pending)
        isSending = false
    }

    /// Takes in that the daemon was not reached at all with the request that creates the task.
    mutating func wasNotSent() { requests -= 1 }

    /// Takes in what the daemon says of the task; an end that was taken in says more.
    mutating func update(_ task: TransferTask) {
        guard !hasEnded else { return }
        holds = task.holds
        bytesReceived = task.bytesReceived.rawValue
        bytesSent = task.bytesSent.rawValue
        bytesExpected = task.bytesExpected?.rawValue ?? bytesExpected
        if let head = task.response { response = HTTPURLResponse(head) }
    }

    /// Takes in an event; returns `false`, and takes nothing in, after the task's end.
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

    /// The request as the application made it, or as the daemon has it; an upload's body is its file.
    var originalRequest: URLRequest? {
        guard var original else { return URLRequest(request) }
        if request.kind == .upload, request.file != nil {
            original.httpBody = nil
            original.httpBodyStream = nil
        }
        return original
    }

    /// The request with the method that is sent, at the URL that has answered.
    var currentRequest: URLRequest? {
        if let current { return current }
        guard var current = originalRequest else { return nil }
        current.httpMethod = request.method ?? current.httpMethod
        // The daemon names URLs without a user's name and password.
        let asked = URL(string: URLReference(request.url).withoutUser.text)
        if let url = response?.url, asked != url { current.url = url }
        return current
    }

    /// Takes in that the task has ended; returns whether that is new.
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

    /// Takes in that the application does not want the task any more; returns whether that is new.
    mutating func cancel(producingResumeData: Bool) -> Bool {
        guard !isCancelled, !hasEnded else { return false }
        isCancelled = true
        pending.state = .cancelled
        pending.producesResumeToken = producingResumeData ? true : nil
        return true
    }

    /// Takes in what the application changes about the task.
    mutating func change(_ change: TransferChange) {
        pending = pending.merging(change)
        request.priority = change.priority ?? request.priority
        request.description = change.description ?? request.description
        request.earliestBegin = change.earliestBegin ?? request.earliestBegin
        request.expectedToReceive = change.expectedToReceive ?? request.expectedToReceive
        request.expectedToSend = change.expectedToSend ?? request.expectedToSend
    }

    /// Everything that may be different from what the daemon was told first.
    private var whole: TransferChange {
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
    /// This change and then `later`, as one.
    func merging(_ later: TransferChange) -> TransferChange {
        var change = self
        // Nothing is said of a task after that it is cancelled.
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
    /// Makes what Foundation has for an answer; `nil` where its URL is none.
    convenience init?(_ response: TransferResponse) {
        guard let url = URL(string: response.url) else { return nil }
        var fields: [String: String] = [:]
        for field in response.headers where field.count == 2 {
            // RFC 9110, section 5.3
            fields[field[0]] = fields[field[0]].map { "\($0), \(field[1])" } ?? field[1]
        }
        self.init(
            url: url,
            statusCode: response.status,
            httpVersion: "HTTP/1.1",
            headerFields: fields
        )
    }
}
