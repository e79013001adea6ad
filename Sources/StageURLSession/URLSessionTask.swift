public import Foundation
public import FoundationNetworking
public import StageControl
import StageModel
import Synchronization

/// A transfer of a session, in the shape of Apple's class.
///
/// It goes on without this object and without the process, and one that was never resumed stays suspended with all that
/// was set. No call waits for the daemon: what is asked is sent to it in order, within milliseconds, by a thread of
/// the session, and over the next connection where none is there. A process that is killed before that loses it:
/// ``isStored`` and ``URLSession/flush()`` say when the daemon has it on its disk.
///
/// Unchecked, since there is nothing in it but constants and a lock; so must be what a subclass adds.
open class URLSessionTask: NSObject, ProgressReporting, @unchecked Sendable {
    /// What an application can tell of a task.
    public enum State: Int, Sendable {
        /// It is under way, or waits for something: see ``URLSessionTask/holds``.
        case running = 0
        /// It waits for ``URLSessionTask/resume()``.
        case suspended = 1
        /// It was cancelled, and the delegate has not been told of its end.
        case canceling = 2
        /// It has ended, and the delegate was told.
        case completed = 3
    }

    /// The priority that a task has by itself.
    public static let defaultPriority: Float = 0.5
    /// A priority below the others.
    public static let lowPriority: Float = 0.25
    /// A priority above the others.
    public static let highPriority: Float = 0.75

    /// The date that the daemon is told in the place of none.
    private static let noDate = Date(timeIntervalSince1970: 0)

    let session: URLSession
    let record: Mutex<TaskRecord>
    /// The transfer in this process; `nil` for a task of a background session.
    let transfer: ForegroundTransfer?
    private let ownDelegate = Mutex<(any URLSessionTaskDelegate)?>(nil)
    /// The bytes of the transfer; cancelling and pausing it does so with the task.
    public let progress: Progress

    /// Creates a task for a subclass that stands in for one in tests; it belongs to no session and transfers nothing.
    public override init() {
        session = .standIn
        progress = Progress(totalUnitCount: -1)
        let request = TransferRequest(token: "", kind: .download, url: "")
        var record = TaskRecord(request, created: .now)
        record.refusal = URLError(
            .cancelled,
            reason: "the task stands in for one, and transfers nothing"
        )
        self.record = Mutex(record)
        transfer = nil
        super.init()
    }

    init(_ record: TaskRecord, session: URLSession, transfer: ForegroundTransfer? = nil) {
        self.session = session
        self.transfer = transfer
        progress = Progress(totalUnitCount: record.bytesExpected ?? -1)
        progress.completedUnitCount = max(record.bytesReceived, record.bytesSent)
        self.record = Mutex(record)
        super.init()
        progress.isCancellable = true
        progress.isPausable = true
        progress.cancellationHandler = { [weak self] in self?.cancel() }
        progress.pausingHandler = { [weak self] in self?.suspend() }
        progress.resumingHandler = { [weak self] in self?.resume() }
    }

    /// The identifier of the task within its session, the same in every process that makes the session.
    ///
    /// Identifiers grow with the time at which tasks are created; a task that another program created has its
    /// ``daemonTaskNumber``.
    open var taskIdentifier: Int { record.withLock { $0.identifier } }

    /// The number by which the daemon and `stagepack tasks` name the task; `nil` until the daemon has it.
    ///
    /// Not of Apple's class.
    open var daemonTaskNumber: Int64? { record.withLock { $0.number } }

    /// Whether the daemon has the task on its disk, an upload with a copy of its file, with all that was changed so far:
    /// it is then not lost, whatever becomes of this process.
    ///
    /// Not of Apple's class.
    open var isStored: Bool { record.withLock { $0.isStored } }

    /// The request that the task was created with, without the body of an upload, which is its file.
    ///
    /// A task of an earlier process has the header fields that were sent, cookies included. It has none where this process
    /// is confined, or where another member of the session's group created the task: the daemon does not tell them then.
    open var originalRequest: URLRequest? { record.withLock { $0.originalRequest } }

    /// The request with the URL that has answered, after redirects.
    open var currentRequest: URLRequest? { record.withLock { $0.currentRequest } }

    /// The head of the server's answer, from when it is here, and after failures, too.
    open var response: URLResponse? { record.withLock { $0.response ?? $0.otherResponse } }

    /// Why the task ended, where that was not well.
    open var error: (any Error)? { record.withLock { $0.error } }

    /// Where the task has got to.
    open var state: State {
        record.withLock { record in
            if record.isComplete { return .completed }
            if record.isCancelled { return .canceling }
            return record.isSuspended ? .suspended : .running
        }
    }

    /// The delegate that is told of this task in the place of the session's; held until the task has ended.
    ///
    /// The session's delegate hears nothing of a task that has its own. In a background session it is of no effect.
    open var delegate: (any URLSessionTaskDelegate)? {
        get { ownDelegate.withLock { $0 } }
        set {
            guard transfer != nil else { return }
            ownDelegate.withLock { $0 = newValue }
        }
    }

    /// The delegate to tell of the task.
    var listener: (any URLSessionDelegate)? {
        ownDelegate.withLock { $0 } ?? session.delegate
    }

    /// Lets the delegate of the task go.
    func releaseDelegate() { ownDelegate.withLock { $0 = nil } }

    /// Why nothing moves, as far as the daemon has said.
    ///
    /// Not of Apple's class.
    open var holds: [Hold] { record.withLock { $0.holds } }

    /// Orders the tasks of the session, from 0 to 1.
    open var priority: Float {
        get { record.withLock { Float($0.request.priority ?? 0.5) } }
        set {
            var change = TransferChange()
            change.priority = Double(min(max(newValue, 0), 1))
            make(change)
        }
    }

    /// A text of the application's, kept with the task.
    open var taskDescription: String? {
        get { record.withLock { $0.request.description.flatMap { $0.isEmpty ? nil : $0 } } }
        set {
            var change = TransferChange()
            change.description = newValue ?? ""
            make(change)
        }
    }

    /// The task is not started before.
    open var earliestBeginDate: Date? {
        get {
            record.withLock { $0.request.earliestBegin.flatMap { $0 > Self.noDate ? $0 : nil } }
        }
        set {
            var change = TransferChange()
            change.earliestBegin = newValue ?? Self.noDate
            make(change)
        }
    }

    /// The best guess of the bytes that will be received, headers included.
    open var countOfBytesClientExpectsToReceive: Int64 {
        get {
            record.withLock { $0.request.expectedToReceive?.rawValue }
                ?? NSURLSessionTransferSizeUnknown
        }
        set {
            guard newValue >= 0 else { return }
            var change = TransferChange()
            change.expectedToReceive = ByteCount(newValue)
            make(change)
        }
    }

    /// The best guess of the bytes that will be sent, headers included.
    open var countOfBytesClientExpectsToSend: Int64 {
        get {
            record.withLock { $0.request.expectedToSend?.rawValue }
                ?? NSURLSessionTransferSizeUnknown
        }
        set {
            guard newValue >= 0 else { return }
            var change = TransferChange()
            change.expectedToSend = ByteCount(newValue)
            make(change)
        }
    }

    /// The bytes of the content that are here; of an upload, those of the answer's first 64 KiB.
    open var countOfBytesReceived: Int64 { record.withLock { $0.bytesReceived } }

    /// How many bytes of the file were sent.
    open var countOfBytesSent: Int64 { record.withLock { $0.bytesSent } }

    /// How many bytes the content has; -1 as long as nobody has said.
    open var countOfBytesExpectedToReceive: Int64 {
        record.withLock {
            $0.request.kind == .download
                ? $0.bytesExpected ?? NSURLSessionTransferSizeUnknown
                : $0.response?.expectedContentLength ?? NSURLSessionTransferSizeUnknown
        }
    }

    /// How many bytes the file has; 0 for downloads.
    open var countOfBytesExpectedToSend: Int64 {
        record.withLock {
            $0.request.kind == .upload ? $0.bytesExpected ?? NSURLSessionTransferSizeUnknown : 0
        }
    }

    /// Takes one ``suspend()`` back; a new task is suspended once, so one call starts it.
    open func resume() {
        guard record.withLock({ $0.resume() }) else { return }
        session.tell(self)
    }

    /// Holds the task until ``resume()`` was called as often as this, and once more for a new task.
    open func suspend() {
        guard record.withLock({ $0.suspend() }) else { return }
        session.tell(self)
    }

    /// Ends the task; the delegate is told with `URLError.cancelled`.
    open func cancel() { cancel(producingResumeData: false) }

    func cancel(producingResumeData: Bool) {
        guard record.withLock({ $0.cancel(producingResumeData: producingResumeData) }) else {
            return
        }
        session.tell(self)
    }

    /// Changes the task, and tells the daemon, which keeps a task that was never resumed for the next process, too.
    private func make(_ change: TransferChange) {
        record.withLock { $0.change(change) }
        session.tell(self)
    }
}

/// A download into a file.
open class URLSessionDownloadTask: URLSessionTask, @unchecked Sendable {
    /// Ends the download and hands out what ``URLSession/downloadTask(withResumeData:)`` takes, or `nil`
    /// where it cannot be gone on with.
    open func cancel(
        byProducingResumeData completionHandler: @escaping @Sendable (Data?) -> Void
    ) {
        let mustWait = record.withLock { record in
            guard !record.hasEnded else { return false }
            record.resumeDataReceivers.append(completionHandler)
            return true
        }
        guard mustWait else {
            session.feed.add { completionHandler(nil) }
            return
        }
        cancel(producingResumeData: true)
    }

    /// Ends the download and returns what ``URLSession/downloadTask(withResumeData:)`` takes, or `nil` where
    /// it cannot be gone on with.
    open func cancelByProducingResumeData() async -> Data? {
        await withCheckedContinuation { continuation in
            cancel(byProducingResumeData: { continuation.resume(returning: $0) })
        }
    }
}

/// A request whose answer is handed over in memory as it comes; background sessions have only uploads.
open class URLSessionDataTask: URLSessionTask, @unchecked Sendable {}

/// A request with a body that is a file, or bytes in memory.
open class URLSessionUploadTask: URLSessionDataTask, @unchecked Sendable {}

extension URLRequest {
    /// Makes what Foundation has for a request; `nil` where its URL is none.
    init?(_ request: TransferRequest) {
        guard let url = URL(string: request.url) else { return nil }
        self.init(url: url)
        httpMethod = request.method ?? (request.kind == .upload ? "POST" : "GET")
        for (name, value) in request.headers ?? [:] { setValue(value, forHTTPHeaderField: name) }
        allowsCellularAccess = request.allowsExpensiveNetworkAccess ?? true
    }
}
