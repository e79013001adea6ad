import Dispatch
public import Foundation
public import FoundationNetworking
import StageControl
import Synchronization

/// A session of transfers, with the interface of Apple's class: the daemon performs the transfers of a background
/// session, this process those of any other session.
///
/// A process that creates a background session with the same identifier again gets its tasks and all unhandled
/// events. The session lasts until it is invalidated: until then it retains its delegate and receives events.
///
/// Nothing is lost without a daemon: tasks are kept here and sent as soon as one runs. The system starts the daemon
/// (socket activation); ``connectionError`` is the reason why it cannot be reached.
///
/// In a file that imports `BackgroundTransfer`, `URLSession` means this class, even if the file also imports
/// FoundationNetworking or BackgroundAssets; the other class is `FoundationNetworking.URLSession` there.
///
/// Unchecked, since it contains only constants and locks; subclasses must do the same.
///
/// A process can have one object for each identifier. A further one is invalid from the start: its delegate receives
/// the reason, and its tasks fail with `URLError.backgroundSessionInUseByAnotherProcess`.
///
/// A session with ``URLSessionConfiguration/default`` or ``URLSessionConfiguration/ephemeral`` does not use the
/// daemon. Its data, download, upload and WebSocket tasks end with this process, and a failed attempt is not
/// repeated, as on Apple's systems. A background session refuses data tasks, bodies in memory and calls that wait for
/// a response: such a task fails with `URLError.unsupportedURL` when it is resumed, where Apple's class raises an
/// exception.
open class URLSession: NSObject, @unchecked Sendable {
    struct State {
        var delegate: (any URLSessionDelegate)?
        var tasks: [ObjectIdentifier: URLSessionTask] = [:]
        var byNumber: [Int64: URLSessionTask] = [:]
        var byToken: [String: URLSessionTask] = [:]
        /// Tasks that were created after the invalidation.
        var lateTasks: Set<ObjectIdentifier> = []
        /// Tasks that have ended, until the daemon has forgotten them.
        var ended: Set<Int64> = []
        var attachments = 0
        var isInvalidating = false
        var isOver = false
        /// Reason why the session could not begin.
        var failure: URLError?
        var description: String?
    }

    let delegateCalls: DelegateCallQueue
    let link: SessionLink
    let state: Mutex<State>
    let relay: EventRelay?
    /// Serial queue that stores cookies of a session in this process, which writes files.
    let cookieQueue = DispatchQueue(label: "stage.cookies")
    /// Engine for the transfers of a session in this process.
    let engine: SessionEngine
    // Never changed after initialization; callers get copies.
    let rules: URLSessionConfiguration

    /// Creates a session without a delegate, which delivers its events as ``events``.
    public convenience init(configuration: URLSessionConfiguration) {
        self.init(configuration: configuration, delegate: nil, delegateQueue: nil)
    }

    /// Creates a session, and begins to receive its events.
    ///
    /// - Parameters:
    ///   - configuration: The settings; later changes of the object have no effect.
    ///   - delegate: The receiver of events, retained until the session is invalidated.
    ///   - queue: The queue for calls of the delegate, by default a new serial queue.
    public init(
        configuration: URLSessionConfiguration,
        delegate: (any URLSessionDelegate)?,
        delegateQueue queue: OperationQueue?
    ) {
        rules = configuration.duplicate()
        delegateCalls = DelegateCallQueue(queue)
        relay = delegate == nil && configuration.identifier != nil ? EventRelay() : nil
        state = Mutex(State(delegate: delegate))
        link = SessionLink(configuration, launch: BackgroundLaunch.current)
        engine = SessionEngine(configuration)
        super.init()
        begin()
    }

    /// Creates a session for a subclass that replaces one in tests: it has no identifier, makes no calls to its
    /// delegate and transfers nothing.
    public override init() {
        rules = .background(withIdentifier: "")
        delegateCalls = DelegateCallQueue(nil)
        relay = nil
        state = Mutex(State(isInvalidating: true, isOver: true))
        link = SessionLink(rules, launch: nil)
        engine = SessionEngine(rules)
        super.init()
        link.end {}
    }

    /// Session of tasks that were created without one.
    static let placeholder = URLSession()

    /// The shared session of the process, without a delegate; it has the settings of
    /// ``URLSessionConfiguration/default`` and cannot be invalidated.
    public static let shared = URLSession(configuration: .default)

    /// `true` if this process performs the transfers, not the daemon.
    var isForeground: Bool { rules.identifier == nil }

    /// A copy of the session's configuration.
    open var configuration: URLSessionConfiguration { rules.duplicate() }

    /// The delegate; `nil` once the session has ended.
    open var delegate: (any URLSessionDelegate)? { state.withLock { $0.delegate } }

    /// The queue for calls of the delegate.
    open var delegateQueue: OperationQueue { delegateCalls.queue }

    /// A description set by the application, for debugging.
    open var sessionDescription: String? {
        get { state.withLock { $0.description } }
        set { state.withLock { $0.description = newValue } }
    }

    /// Reason why no events arrive at present, such as no daemon, or another process with this session; `nil` while
    /// connected.
    ///
    /// Not part of Apple's class.
    open var connectionError: URLError? { link.problem.map { URLError(of: $0) } }

    /// Creates a suspended download task.
    open func downloadTask(with url: URL) -> URLSessionDownloadTask {
        downloadTask(with: URLRequest(url: url))
    }

    /// Creates a suspended download task.
    open func downloadTask(with request: URLRequest) -> URLSessionDownloadTask {
        downloadTasks(with: [request])[0]
    }

    /// Creates suspended download tasks.
    ///
    /// Not part of Apple's class.
    open func downloadTasks(with requests: [URLRequest]) -> [URLSessionDownloadTask] {
        if isForeground { return requests.map { makeForegroundDownload($0) } }
        return make(requests.map { TaskSpecification(download: $0, rules: rules) }) {
            URLSessionDownloadTask($0, session: self)
        }
    }

    /// Creates a suspended download task that resumes an earlier one.
    ///
    /// The data comes from ``URLSessionDownloadTask/cancel(byProducingResumeData:)`` or the error of a download; with
    /// other data the download fails. The task uses it up when it starts, in a background session when the daemon has the
    /// task. Until then, ``URLSessionDownloadTask/cancel(byProducingResumeData:)`` and errors return it.
    open func downloadTask(withResumeData data: Data) -> URLSessionDownloadTask {
        if isForeground { return makeForegroundDownload(resuming: data) }
        return make([TaskSpecification(resumeData: data, rules: rules)]) {
            URLSessionDownloadTask($0, session: self)
        }[0]
    }

    /// Creates a suspended upload task for a file.
    ///
    /// For a background session the daemon copies the file, which must not change until then: see
    /// ``URLSessionTask/isStored``. Another session reads the file while it sends it.
    open func uploadTask(with request: URLRequest, fromFile file: URL) -> URLSessionUploadTask {
        if isForeground { return makeForegroundUpload(request, body: .file(file)) }
        return make([TaskSpecification(upload: request, file: file, rules: rules)]) {
            URLSessionUploadTask($0, session: self)
        }[0]
    }

    /// Creates a suspended data task; the delegate receives the response as it arrives.
    open func dataTask(with url: URL) -> URLSessionDataTask { dataTask(with: URLRequest(url: url)) }

    /// Creates a suspended data task; the delegate receives the response as it arrives.
    open func dataTask(with request: URLRequest) -> URLSessionDataTask {
        makeForegroundData(request)
    }

    /// Creates a suspended data task that calls `completionHandler` once, on the delegate queue, with the whole
    /// response, with any status, or with an error.
    open func dataTask(
        with url: URL,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDataTask {
        dataTask(with: URLRequest(url: url), completionHandler: completionHandler)
    }

    /// Creates a suspended data task that calls `completionHandler` once, on the delegate queue, with the whole
    /// response, with any status, or with an error.
    open func dataTask(
        with request: URLRequest,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDataTask {
        makeForegroundData(request, deliveringTo: .data(completionHandler))
    }

    /// Creates a suspended download task that calls `completionHandler` once, on the delegate queue; the handler must
    /// move the file before it returns.
    open func downloadTask(
        with url: URL,
        completionHandler: @escaping @Sendable (URL?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDownloadTask {
        downloadTask(with: URLRequest(url: url), completionHandler: completionHandler)
    }

    /// Creates a suspended download task that calls `completionHandler` once, on the delegate queue; the handler must
    /// move the file before it returns.
    open func downloadTask(
        with request: URLRequest,
        completionHandler: @escaping @Sendable (URL?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDownloadTask {
        makeForegroundDownload(request, deliveringTo: .file(completionHandler))
    }

    /// Creates a suspended download task that resumes an earlier one of a process, and calls `completionHandler`
    /// once, on the delegate queue; the handler must move the file before it returns.
    open func downloadTask(
        withResumeData data: Data,
        completionHandler: @escaping @Sendable (URL?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDownloadTask {
        makeForegroundDownload(resuming: data, deliveringTo: .file(completionHandler))
    }

    /// Creates a suspended upload task for a file that calls `completionHandler` once, on the delegate queue, with
    /// the whole response, with any status, or with an error.
    ///
    /// The body of the request is ignored; its default method is `POST`.
    open func uploadTask(
        with request: URLRequest,
        fromFile file: URL,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionUploadTask {
        makeForegroundUpload(
            request,
            body: .file(file),
            deliveringTo: .data(completionHandler)
        )
    }

    /// Creates a suspended upload task for bytes; the delegate receives the response as it arrives.
    open func uploadTask(with request: URLRequest, from bodyData: Data) -> URLSessionUploadTask {
        makeForegroundUpload(request, body: .data(bodyData))
    }

    /// Creates a suspended upload task for bytes that calls `completionHandler` once, on the delegate queue, with the
    /// whole response, with any status, or with an error.
    ///
    /// The body of the request is ignored; its default method is `POST`.
    open func uploadTask(
        with request: URLRequest,
        from bodyData: Data?,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionUploadTask {
        makeForegroundUpload(
            request,
            body: .data(bodyData ?? Data()),
            deliveringTo: .data(completionHandler)
        )
    }

    /// Creates a suspended upload task for a stream that the delegate provides.
    ///
    /// The stream is read to its end, into a file, before the request is sent.
    open func uploadTask(withStreamedRequest request: URLRequest) -> URLSessionUploadTask {
        makeForegroundUpload(request, body: .stream)
    }

    /// Creates a suspended WebSocket task for a ws or wss URL.
    open func webSocketTask(with url: URL) -> URLSessionWebSocketTask {
        webSocketTask(with: URLRequest(url: url))
    }

    /// Creates a suspended WebSocket task that offers subprotocols, the preferred one first.
    open func webSocketTask(with url: URL, protocols: [String]) -> URLSessionWebSocketTask {
        var request = URLRequest(url: url)
        if !protocols.isEmpty {
            let list = protocols.joined(separator: ", ")
            request.setValue(list, forHTTPHeaderField: "Sec-WebSocket-Protocol")
        }
        return webSocketTask(with: request)
    }

    /// Creates a suspended WebSocket task whose opening handshake has the header fields of a request.
    ///
    /// The field `Sec-WebSocket-Protocol` names the subprotocols to offer. A background session refuses: its task
    /// ends with `URLError.unsupportedURL` when it is resumed.
    open func webSocketTask(with request: URLRequest) -> URLSessionWebSocketTask {
        makeWebSocketTask(request)
    }

    /// Calls `handler` with the unfinished tasks, once the daemon has listed them.
    ///
    /// Without a daemon it gets those of this process.
    open func getAllTasks(
        completionHandler handler: @escaping @Sendable ([URLSessionTask]) -> Void
    ) {
        link.whenSettled { [self] in delegateCalls.add { [self] in handler(unfinished) } }
    }

    /// Calls `handler` with the unfinished tasks: data tasks, uploads and downloads.
    open func getTasksWithCompletionHandler(
        _ handler:
            @escaping @Sendable (
                [URLSessionDataTask], [URLSessionUploadTask], [URLSessionDownloadTask]
            ) -> Void
    ) {
        getAllTasks { tasks in
            handler(
                tasks.compactMap { $0 is URLSessionUploadTask ? nil : $0 as? URLSessionDataTask },
                tasks.compactMap { $0 as? URLSessionUploadTask },
                tasks.compactMap { $0 as? URLSessionDownloadTask }
            )
        }
    }

    /// The unfinished tasks.
    open var allTasks: [URLSessionTask] {
        get async {
            await withCheckedContinuation { continuation in
                getAllTasks { continuation.resume(returning: $0) }
            }
        }
    }

    /// The unfinished tasks: data tasks, uploads and downloads.
    open var tasks: ([URLSessionDataTask], [URLSessionUploadTask], [URLSessionDownloadTask]) {
        get async {
            await withCheckedContinuation { continuation in
                getTasksWithCompletionHandler { continuation.resume(returning: ($0, $1, $2)) }
            }
        }
    }

    /// Ends the session after its last task; it accepts no new tasks.
    ///
    /// WebSocket tasks end when their connections do. No effect on ``shared``.
    open func finishTasksAndInvalidate() { invalidate() }

    /// Cancels all tasks and ends the session.
    ///
    /// The delegate receives `didBecomeInvalidWithError` once its tasks have ended, those of a background session at the
    /// daemon.
    open func invalidateAndCancel() {
        guard self !== URLSession.shared else { return }
        invalidate()
        cancelWebSocketTasks()
        sendChanges(
            of: unfinished.filter { task in
                !(task is URLSessionWebSocketTask)
                    && task.record.withLock { $0.cancel(producingResumeData: false) }
            }
        )
    }

    /// Calls `handler` once the daemon has stored all tasks created so far on disk, with all their changes, or could
    /// not be reached: ``URLSessionTask/isStored`` distinguishes these.
    ///
    /// The delegate has then received all earlier events. A process that ends by `exit` or by returning from its main
    /// function does this by itself, and waits three seconds at most. A session in this process has nothing to store.
    open func flush(completionHandler handler: @escaping @Sendable () -> Void) {
        link.whenSentOrFailed { [self] in delegateCalls.add(handler) }
    }

    /// Returns once the daemon has stored all tasks created so far on disk, with all their changes, or could not be
    /// reached.
    open func flush() async {
        await withCheckedContinuation { continuation in
            flush(completionHandler: { continuation.resume() })
        }
    }

    /// Removes the cookies of the configuration's storage and the cached responses, and calls `handler`.
    ///
    /// Credentials stay in their storage.
    open func reset(completionHandler handler: @escaping @Sendable () -> Void) {
        rules.httpCookieStorage?.removeCookies(since: .distantPast)
        rules.urlCache?.removeAllCachedResponses()
        delegateCalls.add(handler)
    }

    /// Removes the cookies of the configuration's storage and the cached responses.
    ///
    /// Credentials stay in their storage.
    open func reset() async {
        await withCheckedContinuation { continuation in
            reset(completionHandler: { continuation.resume() })
        }
    }

    /// Tasks whose end was not delivered to the delegate, ordered by their identifiers.
    var unfinished: [URLSessionTask] {
        state.withLock { Array($0.tasks.values) }
            .map { (number: $0.taskIdentifier, task: $0) }
            .sorted { $0.number < $1.number }
            .map(\.task)
    }
}
