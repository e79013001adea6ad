public import Foundation
public import FoundationNetworking
import StageControl
import Synchronization

/// A session of transfers, in the shape of Apple's class: the daemon makes those of a background session, this process
/// makes those of any other.
///
/// Whoever makes a background session of the same identifier again gets its tasks and all events that nobody has
/// taken in. It lasts until it is invalidated: until then it holds its delegate, and listens.
///
/// Without a daemon nothing is lost: tasks are kept here and told as soon as there is one. Starting it is
/// the system's business (socket activation), and what keeps it away is in ``connectionError``.
///
/// A file that imports `BackgroundTransfer` means this class by `URLSession`, also where it imports FoundationNetworking
/// or BackgroundAssets too; the other one is `FoundationNetworking.URLSession` there.
///
/// Unchecked, since there is nothing in it but constants and locks; so must be what a subclass adds.
///
/// There is one object of an identifier in a process. A further one is invalid from the beginning: its
/// delegate is told why, and its tasks fail with `URLError.backgroundSessionInUseByAnotherProcess`.
///
/// A session of ``URLSessionConfiguration/default`` or ``URLSessionConfiguration/ephemeral`` has no part in the daemon.
/// Its data, download, upload and WebSocket tasks end with this process, and an attempt that fails is not repeated, as
/// on Apple's systems. A background session refuses data tasks, bodies in memory and calls that wait for an answer: such a
/// task fails with `URLError.unsupportedURL` when it is resumed, where Apple's class raises an exception.
open class URLSession: NSObject, @unchecked Sendable {
    struct State {
        var delegate: (any URLSessionDelegate)?
        var tasks: [ObjectIdentifier: URLSessionTask] = [:]
        var byNumber: [Int64: URLSessionTask] = [:]
        var byToken: [String: URLSessionTask] = [:]
        /// Tasks that have ended, as long as the daemon has not forgotten them.
        var ended: Set<Int64> = []
        var attachments = 0
        var isInvalidating = false
        var isOver = false
        /// The reason why the session could not begin.
        var failure: URLError?
        var description: String?
    }

    let feed: DelegateFeed
    let link: SessionLink
    let state: Mutex<State>
    let relay: EventRelay?
    /// The transfers of a session in this process.
    let engine: SessionEngine
    // Never changed after the session was made, and handed out as copies.
    let rules: URLSessionConfiguration

    /// Creates a session without a delegate: its events are those of ``events``.
    public convenience init(configuration: URLSessionConfiguration) {
        self.init(configuration: configuration, delegate: nil, delegateQueue: nil)
    }

    /// Creates a session, and begins to take its events in.
    ///
    /// - Parameters:
    ///   - configuration: The rules; changes to the object afterwards are of no effect.
    ///   - delegate: Who is told what happens; held until the session is invalidated.
    ///   - queue: Where it is told, by default a serial queue of the session's own.
    public init(
        configuration: URLSessionConfiguration,
        delegate: (any URLSessionDelegate)?,
        delegateQueue queue: OperationQueue?
    ) {
        rules = configuration.duplicate()
        feed = DelegateFeed(queue)
        relay = delegate == nil && configuration.identifier != nil ? EventRelay() : nil
        state = Mutex(State(delegate: delegate))
        link = SessionLink(configuration, launch: BackgroundLaunch.current)
        engine = SessionEngine(configuration)
        super.init()
        begin()
    }

    /// Creates a session for a subclass that stands in for one in tests: it has no identifier, tells its delegate
    /// nothing and transfers nothing.
    public override init() {
        rules = .background(withIdentifier: "")
        feed = DelegateFeed(nil)
        relay = nil
        state = Mutex(State(isInvalidating: true, isOver: true))
        link = SessionLink(rules, launch: nil)
        engine = SessionEngine(rules)
        super.init()
        link.end {}
    }

    /// The session of tasks that were created without one.
    static let standIn = URLSession()

    /// The session of the process without a delegate, which is as those of ``URLSessionConfiguration/default`` are and
    /// cannot be invalidated.
    public static let shared = URLSession(configuration: .default)

    /// Whether the session belongs to this process, and not to the daemon.
    var isForeground: Bool { rules.identifier == nil }

    /// A copy of the rules that the session was made with.
    open var configuration: URLSessionConfiguration { rules.duplicate() }

    /// Who is told what happens; `nil` once the session is over.
    open var delegate: (any URLSessionDelegate)? { state.withLock { $0.delegate } }

    /// Where the delegate is told.
    open var delegateQueue: OperationQueue { feed.queue }

    /// A text of the application's, for people who look for errors.
    open var sessionDescription: String? {
        get { state.withLock { $0.description } }
        set { state.withLock { $0.description = newValue } }
    }

    /// Why no events come at present: no daemon is there, or another process has this session; `nil` while
    /// they do.
    ///
    /// Not of Apple's class.
    open var connectionError: URLError? { link.problem.map { URLError(of: $0) } }

    /// Creates a download, suspended.
    open func downloadTask(with url: URL) -> URLSessionDownloadTask {
        downloadTask(with: URLRequest(url: url))
    }

    /// Creates a download, suspended.
    open func downloadTask(with request: URLRequest) -> URLSessionDownloadTask {
        downloadTasks(with: [request])[0]
    }

    /// Creates downloads, suspended.
    ///
    /// Not of Apple's class.
    open func downloadTasks(with requests: [URLRequest]) -> [URLSessionDownloadTask] {
        if isForeground { return requests.map { makeForegroundDownload($0) } }
        return make(requests.map { Draft(download: $0, rules: configuration) }) {
            URLSessionDownloadTask($0, session: self)
        }
    }

    /// Creates a download, suspended, that goes on with what an earlier one received.
    ///
    /// The data is from ``URLSessionDownloadTask/cancel(byProducingResumeData:)`` or the error of a
    /// download; with anything else the download fails.
    open func downloadTask(withResumeData data: Data) -> URLSessionDownloadTask {
        if isForeground { return makeForegroundDownload(resuming: data) }
        return make([Draft(resumeData: data, rules: configuration)]) {
            URLSessionDownloadTask($0, session: self)
        }[0]
    }

    /// Creates an upload of a file, suspended.
    ///
    /// For a background session the daemon takes a copy of the file, which must stay as it is until then: see
    /// ``URLSessionTask/isStored``. Another session reads the file while it sends it.
    open func uploadTask(with request: URLRequest, fromFile file: URL) -> URLSessionUploadTask {
        if isForeground { return makeForegroundUpload(request, .file(file)) }
        return make([Draft(upload: request, file: file, rules: configuration)]) {
            URLSessionUploadTask($0, session: self)
        }[0]
    }

    /// Creates a data task, suspended; the delegate is given the answer as it comes.
    open func dataTask(with url: URL) -> URLSessionDataTask { dataTask(with: URLRequest(url: url)) }

    /// Creates a data task, suspended; the delegate is given the answer as it comes.
    open func dataTask(with request: URLRequest) -> URLSessionDataTask {
        makeForegroundData(request)
    }

    /// Creates a data task, suspended, that calls `completionHandler` once, on the delegate queue: with the answer as a whole,
    /// whatever its status, or with an error.
    open func dataTask(
        with url: URL,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDataTask {
        dataTask(with: URLRequest(url: url), completionHandler: completionHandler)
    }

    /// Creates a data task, suspended, that calls `completionHandler` once, on the delegate queue: with the answer as a whole,
    /// whatever its status, or with an error.
    open func dataTask(
        with request: URLRequest,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDataTask { makeForegroundData(request, .data(completionHandler)) }

    /// Creates a download, suspended, that calls `completionHandler` once, on the delegate queue; the file is to be moved to
    /// where it belongs before that returns.
    open func downloadTask(
        with url: URL,
        completionHandler: @escaping @Sendable (URL?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDownloadTask {
        downloadTask(with: URLRequest(url: url), completionHandler: completionHandler)
    }

    /// Creates a download, suspended, that calls `completionHandler` once, on the delegate queue; the file is to be moved to
    /// where it belongs before that returns.
    open func downloadTask(
        with request: URLRequest,
        completionHandler: @escaping @Sendable (URL?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDownloadTask { makeForegroundDownload(request, .file(completionHandler)) }

    /// Creates a download, suspended, that goes on with what an earlier one in a process received, and calls
    /// `completionHandler` once, on the delegate queue; the file is to be moved to where it belongs before that returns.
    open func downloadTask(
        withResumeData data: Data,
        completionHandler: @escaping @Sendable (URL?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionDownloadTask {
        makeForegroundDownload(resuming: data, .file(completionHandler))
    }

    /// Creates an upload of a file, suspended, that calls `completionHandler` once, on the delegate queue: with the answer as a
    /// whole, whatever its status, or with an error.
    ///
    /// The body of the request counts for nothing; its method is `POST` unless it says otherwise.
    open func uploadTask(
        with request: URLRequest,
        fromFile file: URL,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionUploadTask {
        makeForegroundUpload(request, .file(file), .data(completionHandler))
    }

    /// Creates an upload of bytes, suspended; the delegate is given the answer as it comes.
    open func uploadTask(with request: URLRequest, from bodyData: Data) -> URLSessionUploadTask {
        makeForegroundUpload(request, .data(bodyData))
    }

    /// Creates an upload of bytes, suspended, that calls `completionHandler` once, on the delegate queue: with the answer as a
    /// whole, whatever its status, or with an error.
    ///
    /// The body of the request counts for nothing; its method is `POST` unless it says otherwise.
    open func uploadTask(
        with request: URLRequest,
        from bodyData: Data?,
        completionHandler: @escaping @Sendable (Data?, URLResponse?, (any Error)?) -> Void
    ) -> URLSessionUploadTask {
        makeForegroundUpload(request, .data(bodyData ?? Data()), .data(completionHandler))
    }

    /// Creates an upload, suspended, of the stream that the delegate has for it.
    ///
    /// The stream is read to its end, into a file, before the request is sent.
    open func uploadTask(withStreamedRequest request: URLRequest) -> URLSessionUploadTask {
        makeForegroundUpload(request, .stream)
    }

    /// Creates a WebSocket task, suspended, for a ws or wss URL.
    open func webSocketTask(with url: URL) -> URLSessionWebSocketTask {
        webSocketTask(with: URLRequest(url: url))
    }

    /// Creates a WebSocket task, suspended, that offers subprotocols, the preferred one first.
    open func webSocketTask(with url: URL, protocols: [String]) -> URLSessionWebSocketTask {
        var request = URLRequest(url: url)
        if !protocols.isEmpty {
            let list = protocols.joined(separator: ", ")
            request.setValue(list, forHTTPHeaderField: "Sec-WebSocket-Protocol")
        }
        return webSocketTask(with: request)
    }

    /// Creates a WebSocket task, suspended, whose opening handshake has the header fields of a request.
    ///
    /// The field `Sec-WebSocket-Protocol` names the subprotocols to offer. A background session refuses: its task ends
    /// with `URLError.unsupportedURL` when it is resumed.
    open func webSocketTask(with request: URLRequest) -> URLSessionWebSocketTask {
        makeWebSocketTask(request)
    }

    /// Calls `handler` with the tasks that have not ended, once the daemon has said which there are.
    ///
    /// Without a daemon it gets those of this process.
    open func getAllTasks(
        completionHandler handler: @escaping @Sendable ([URLSessionTask]) -> Void
    ) {
        link.whenSettled { [self] in feed.add { [self] in handler(unfinished) } }
    }

    /// Calls `handler` with the tasks that have not ended: data tasks, uploads and downloads.
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

    /// The tasks that have not ended.
    open var allTasks: [URLSessionTask] {
        get async {
            await withCheckedContinuation { continuation in
                getAllTasks { continuation.resume(returning: $0) }
            }
        }
    }

    /// The tasks that have not ended: data tasks, uploads and downloads.
    open var tasks: ([URLSessionDataTask], [URLSessionUploadTask], [URLSessionDownloadTask]) {
        get async {
            await withCheckedContinuation { continuation in
                getTasksWithCompletionHandler { continuation.resume(returning: ($0, $1, $2)) }
            }
        }
    }

    /// Lets the tasks end, and then the session; it takes no new tasks.
    ///
    /// WebSocket tasks end when their connections do. Of no effect on ``shared``.
    open func finishTasksAndInvalidate() { invalidate() }

    /// Cancels all tasks and ends the session.
    ///
    /// The delegate is told that the session is invalid once the daemon has ended its tasks.
    open func invalidateAndCancel() {
        guard self !== URLSession.shared else { return }
        invalidate()
        cancelWebSocketTasks()
        tell(
            unfinished.filter { task in
                !(task is URLSessionWebSocketTask)
                    && task.record.withLock { $0.cancel(producingResumeData: false) }
            }
        )
    }

    /// Calls `handler` once the daemon has on its disk all tasks that were created so far, with all that was changed
    /// about them, or could not be told of them: ``URLSessionTask/isStored`` says which of these holds.
    ///
    /// The delegate has then been told all that was there to tell before. A process that ends by `exit` or by returning
    /// from its main function does this by itself, and waits three seconds at most.
    open func flush(completionHandler handler: @escaping @Sendable () -> Void) {
        link.whenToldOrNot { [self] in feed.add(handler) }
    }

    /// Returns once the daemon has on its disk all tasks that were created so far, with all that was changed about them,
    /// or could not be told of them.
    open func flush() async {
        await withCheckedContinuation { continuation in
            flush(completionHandler: { continuation.resume() })
        }
    }

    /// Removes the cookies of the configuration's storage and what its cache has, and calls `handler`.
    ///
    /// Credentials stay in their storage.
    open func reset(completionHandler handler: @escaping @Sendable () -> Void) {
        rules.httpCookieStorage?.removeCookies(since: .distantPast)
        rules.urlCache?.removeAllCachedResponses()
        feed.add(handler)
    }

    /// Removes the cookies of the configuration's storage and what its cache has.
    ///
    /// Credentials stay in their storage.
    open func reset() async {
        await withCheckedContinuation { continuation in
            reset(completionHandler: { continuation.resume() })
        }
    }

    /// The tasks whose end the delegate has not been told of, in the order of their identifiers.
    var unfinished: [URLSessionTask] {
        state.withLock { Array($0.tasks.values) }
            .map { (number: $0.taskIdentifier, task: $0) }
            .sorted { $0.number < $1.number }
            .map(\.task)
    }
}
