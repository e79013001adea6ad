public import Foundation
public import FoundationNetworking
public import StageControl
import StageModel
import StageSystem
import Synchronization

/// A transfer of a session, with the interface of Apple's class.
///
/// A task of a background session continues without this object and without the process; a task that was never resumed
/// stays suspended with all its properties. No call waits for the daemon: a thread of the session sends each request in
/// order, within milliseconds, or over the next connection if there is none. If the process is killed before that, the
/// request is lost: ``isStored`` and ``URLSession/flush()`` tell when the daemon has stored the task on disk. A task of
/// a session in this process ends with it.
///
/// A change that the daemon refuses, such as a ``taskDescription`` of more than 4096 bytes, is not stored, and the task
/// continues without it, also if it was made before the daemon had the task; while the disk is full, changes are sent
/// again until the daemon stores them.
///
/// Unchecked, since it contains only constants, locks and the progress, which has a lock of the process; subclasses
/// must contain only constants and locks.
open class URLSessionTask: NSObject, ProgressReporting, @unchecked Sendable {
    /// State of a task as the application sees it.
    @nonexhaustive(warn)
    public enum State: Int, Sendable {
        /// The task is running, or waits: see ``URLSessionTask/pendingReasons``.
        case running = 0
        /// The task waits for ``URLSessionTask/resume()``.
        case suspended = 1
        /// The task was cancelled, and its end was not delivered to the delegate yet.
        case canceling = 2
        /// The task has ended; it has this state when the delegate receives its end.
        case completed = 3
    }

    /// Default priority of a task.
    public static let defaultPriority: Float = 0.5
    /// Priority below the default.
    public static let lowPriority: Float = 0.25
    /// Priority above the default.
    public static let highPriority: Float = 0.75

    /// Date that stands for no date in messages to the daemon.
    private static let noDate = Date(timeIntervalSince1970: 0)

    let session: URLSession
    let record: Mutex<ClientTaskState>
    /// Transfer in this process; `nil` for a task of a background session.
    let transfer: ForegroundTransfer?
    private let ownDelegate: Mutex<(any URLSessionTaskDelegate)?>
    /// Progress of the transfer in bytes; cancelling, pausing and resuming it does so with the task.
    ///
    /// Give it to a parent before the first ``resume()`` of the parent's tasks: on Linux, Foundation's `Progress` has
    /// no locks, and threads of the sessions change running tasks' progress and that of their parents. These changes
    /// exclude one another, but no readers: while the task runs, read ``countOfBytesReceived`` and the like instead, which
    /// have a lock.
    public let progress: Progress

    /// Creates a task for a subclass that replaces one in tests; it belongs to no session and transfers nothing.
    public override init() {
        session = .placeholder
        progress = withProgressLock { Progress(totalUnitCount: -1) }
        let request = TransferRequest(token: "", kind: .download, url: "")
        var record = ClientTaskState(request, created: .now)
        record.refusal = URLError(
            .cancelled,
            reason: "the task is a placeholder and transfers nothing"
        )
        self.record = Mutex(record)
        transfer = nil
        ownDelegate = Mutex(nil)
        super.init()
    }

    init(
        _ record: ClientTaskState,
        session: URLSession,
        transfer: ForegroundTransfer? = nil,
        delegate: (any URLSessionTaskDelegate)? = nil
    ) {
        self.session = session
        self.transfer = transfer
        ownDelegate = Mutex(delegate)
        progress = withProgressLock {
            // The new progress becomes a child of the thread's current progress, if there is one.
            let progress = Progress(totalUnitCount: record.bytesExpected ?? -1)
            progress.completedUnitCount = max(record.bytesReceived, record.bytesSent)
            return progress
        }
        self.record = Mutex(record)
        super.init()
        progress.isCancellable = true
        progress.isPausable = true
        progress.cancellationHandler = { [weak self] in self?.cancel() }
        progress.pausingHandler = { [weak self] in self?.suspend() }
        progress.resumingHandler = { [weak self] in self?.resume() }
    }

    /// Identifier of the task within its session, the same in every process that creates the session.
    ///
    /// Identifiers increase with the time of creation; a task that another program created has its
    /// ``daemonTaskNumber``.
    open var taskIdentifier: Int { record.withLock { $0.identifier } }

    /// Number of the task in the daemon and in `stagepack tasks`; `nil` until the daemon has the task.
    ///
    /// Not part of Apple's class.
    open var daemonTaskNumber: Int64? { record.withLock { $0.number } }

    /// `true` if the daemon has stored the task on disk, with all changes so far and a copy of an upload's file: the
    /// task then survives the end of this process.
    ///
    /// Not part of Apple's class.
    open var isStored: Bool { record.withLock { $0.daemon?.isStored ?? false } }

    /// Request that the task was created with, without the body of an upload, which is its file.
    ///
    /// For a task of an earlier process it has the header fields that were sent, cookies included. It has none if
    /// this process is confined, or if another member of the session's group created the task: the daemon withholds
    /// them then.
    open var originalRequest: URLRequest? { record.withLock { $0.originalRequest } }

    /// Request with the URL that responded, after redirects.
    open var currentRequest: URLRequest? { record.withLock { $0.currentRequest } }

    /// Head of the server's response, once it has arrived, also after failures.
    open var response: URLResponse? { record.withLock { $0.response } }

    /// Error of the task; `nil` if it succeeded or has not ended.
    open var error: (any Error)? { record.withLock { $0.error } }

    /// State of the task.
    open var state: State {
        record.withLock { record in
            if record.isComplete { return .completed }
            if record.isCancelled { return .canceling }
            return record.isSuspended ? .suspended : .running
        }
    }

    /// Delegate of this task, which replaces the session's; retained until the task has ended.
    ///
    /// The session's delegate gets no calls about a task with its own delegate. No effect in a background session.
    open var delegate: (any URLSessionTaskDelegate)? {
        get { ownDelegate.withLock { $0 } }
        set {
            guard session.isForeground else { return }
            ownDelegate.withLock { $0 = newValue }
        }
    }

    /// Delegate that receives the calls about the task.
    var listener: (any URLSessionDelegate)? {
        ownDelegate.withLock { $0 } ?? session.delegate
    }

    /// Releases the delegate of the task.
    func releaseDelegate() { ownDelegate.withLock { $0 = nil } }

    /// Reasons why the task waits, as last reported by the daemon.
    ///
    /// Not part of Apple's class.
    open var pendingReasons: [PendingReason] { record.withLock { $0.daemon?.pendingReasons ?? [] } }

    /// Priority among the tasks of a background session, from 0 to 1; no effect in a session in this process.
    open var priority: Float {
        get { record.withLock { Float($0.request.priority ?? 0.5) } }
        set {
            var change = TransferChange()
            change.priority = Double(min(max(newValue, 0), 1))
            make(change)
        }
    }

    /// A description set by the application, stored with the task.
    ///
    /// A background session stores 4,096 bytes at most. An empty description is `nil` when it is read.
    open var taskDescription: String? {
        get { record.withLock { $0.request.description.flatMap { $0.isEmpty ? nil : $0 } } }
        set {
            var change = TransferChange()
            change.description = newValue ?? ""
            make(change)
        }
    }

    /// Earliest time at which a task of a background session starts; no effect in a session in this process, as in
    /// Apple's.
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

    /// Estimated number of bytes that will be received, headers included; setting a negative number has no effect.
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

    /// Estimated number of bytes that will be sent, headers included; setting a negative number has no effect.
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

    /// Number of content bytes received; for an upload of a background session, those of the response's first 64 KiB.
    open var countOfBytesReceived: Int64 { record.withLock { $0.bytesReceived } }

    /// Number of body bytes sent.
    open var countOfBytesSent: Int64 { record.withLock { $0.bytesSent } }

    /// Size of the content; -1 while it is unknown.
    open var countOfBytesExpectedToReceive: Int64 {
        record.withLock {
            $0.request.kind == .download
                ? $0.bytesExpected ?? NSURLSessionTransferSizeUnknown
                : $0.response?.expectedContentLength ?? NSURLSessionTransferSizeUnknown
        }
    }

    /// Size of the file; 0 for downloads.
    open var countOfBytesExpectedToSend: Int64 {
        record.withLock {
            $0.request.kind == .upload ? $0.bytesExpected ?? NSURLSessionTransferSizeUnknown : 0
        }
    }

    /// Reverts one ``suspend()``; a new task is suspended once, so one call starts it.
    open func resume() {
        guard record.withLock({ $0.resume() }) else { return }
        session.sendChanges(of: self)
    }

    /// Suspends the task until ``resume()`` was called as often as this, and once more for a new task.
    open func suspend() {
        guard record.withLock({ $0.suspend() }) else { return }
        session.sendChanges(of: self)
    }

    /// Cancels the task; it ends with `URLError.cancelled`.
    open func cancel() { cancel(producingResumeData: false) }

    func cancel(producingResumeData: Bool) {
        guard record.withLock({ $0.cancel(producingResumeData: producingResumeData) }) else {
            return
        }
        session.sendChanges(of: self)
    }

    /// Changes the task, and informs the daemon, which stores also a task that was never resumed.
    private func make(_ change: TransferChange) {
        record.withLock { $0.change(change) }
        session.sendChanges(of: self)
    }
}

/// A download task, which writes a file.
open class URLSessionDownloadTask: URLSessionTask, @unchecked Sendable {
    /// Cancels the download and calls `completionHandler` with resume data for
    /// ``URLSession/downloadTask(withResumeData:)``, or with `nil` if it cannot be resumed.
    open func cancel(
        byProducingResumeData completionHandler: @escaping @Sendable (Data?) -> Void
    ) {
        let mustWait = record.withLock { record in
            guard !record.hasEnded else { return false }
            record.resumeDataReceivers.append(completionHandler)
            return true
        }
        guard mustWait else {
            session.delegateCalls.add { completionHandler(nil) }
            return
        }
        cancel(producingResumeData: true)
    }

    /// Cancels the download and returns resume data for ``URLSession/downloadTask(withResumeData:)``, or `nil` if it
    /// cannot be resumed.
    open func cancelByProducingResumeData() async -> Data? {
        await withCheckedContinuation { continuation in
            cancel(byProducingResumeData: { continuation.resume(returning: $0) })
        }
    }
}

/// A request whose response is delivered in memory as it arrives; background sessions have only uploads.
open class URLSessionDataTask: URLSessionTask, @unchecked Sendable {}

/// A request whose body is a file, or bytes in memory.
open class URLSessionUploadTask: URLSessionDataTask, @unchecked Sendable {}

extension URLRequest {
    /// Creates Foundation's representation of a request; `nil` if its URL is invalid.
    init?(_ request: TransferRequest) {
        guard let url = URL(string: request.url) else { return nil }
        self.init(url: url)
        httpMethod = request.method ?? (request.kind == .upload ? "POST" : "GET")
        for (name, value) in request.headers ?? [:] { setValue(value, forHTTPHeaderField: name) }
        allowsCellularAccess = request.allowsExpensiveNetworkAccess ?? true
    }
}
