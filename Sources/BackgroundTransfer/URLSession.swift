public import Foundation
public import FoundationNetworking
import StageControl
import Synchronization

/// A session whose transfers the daemon makes, in the shape of Apple's class.
///
/// Whoever makes a session of the same identifier again gets its tasks and all events that nobody has
/// taken in. It lasts until it is invalidated: until then it holds its delegate, and listens.
///
/// Without a daemon nothing is lost: tasks are kept here and told as soon as there is one. Starting it is
/// the system's business (socket activation), and what keeps it away is in ``connectionError``.
///
/// A file that imports FoundationNetworking too has two classes of this name; there
/// `import class BackgroundTransfer.URLSession` picks this one.
///
/// There is one object of an identifier in a process. A further one is invalid from the beginning: its
/// delegate is told why, and its tasks fail with `URLError.backgroundSessionInUseByAnotherProcess`.
public final class URLSession: NSObject, Sendable {
    /// What to do when a server wants to know who asks.
    public enum AuthChallengeDisposition: Int, Sendable {
        /// Answer with the credential.
        case useCredential = 0
        /// Leave it to the system, which has no answer.
        case performDefaultHandling = 1
        /// Cancel the task.
        case cancelAuthenticationChallenge = 2
        /// Have no answer.
        case rejectProtectionSpace = 3
    }

    /// What to do with a request whose time has come; the daemon goes on with all of them, and asks nobody.
    public enum DelayedRequestDisposition: Int, Sendable {
        /// Make the request as it is.
        case continueLoading = 0
        /// Make another one.
        case useNewRequest = 1
        /// Cancel the task.
        case cancel = 2
    }

    struct State {
        var delegate: (any URLSessionDelegate)?
        var tasks: [ObjectIdentifier: URLSessionTask] = [:]
        var byNumber: [Int64: URLSessionTask] = [:]
        /// Tasks that have ended, as long as the daemon has not forgotten them.
        var ended: Set<Int64> = []
        var attachments = 0
        var isInvalidating = false
        var isOver = false
        var lastProvisional = 0
        var description: String?
    }

    let feed: DelegateFeed
    let link: SessionLink
    let state: Mutex<State>
    let relay: EventRelay?
    // Never changed after the session was made, and handed out as copies.
    private let rules: URLSessionConfiguration

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
        relay = delegate == nil ? EventRelay() : nil
        state = Mutex(State(delegate: delegate))
        link = SessionLink(configuration, launch: BackgroundLaunch.current)
        super.init()
        begin()
    }

    /// A copy of the rules that the session was made with.
    public var configuration: URLSessionConfiguration { rules.duplicate() }

    /// Who is told what happens; `nil` once the session is over.
    public var delegate: (any URLSessionDelegate)? { state.withLock { $0.delegate } }

    /// Where the delegate is told.
    public var delegateQueue: OperationQueue { feed.queue }

    /// A text of the application's, for people who look for errors.
    public var sessionDescription: String? {
        get { state.withLock { $0.description } }
        set { state.withLock { $0.description = newValue } }
    }

    /// Why no events come at present: no daemon is there, or another process has this session; `nil` while
    /// they do.
    ///
    /// Not of Apple's class.
    public var connectionError: URLError? { link.problem.map { URLError($0) } }

    /// Creates a download, suspended.
    public func downloadTask(with url: URL) -> URLSessionDownloadTask {
        downloadTask(with: URLRequest(url: url))
    }

    /// Creates a download, suspended.
    public func downloadTask(with request: URLRequest) -> URLSessionDownloadTask {
        downloadTasks(with: [request])[0]
    }

    /// Creates downloads, suspended, all at once: thousands take as long as one.
    ///
    /// Not of Apple's class.
    public func downloadTasks(with requests: [URLRequest]) -> [URLSessionDownloadTask] {
        make(requests.map { Draft(download: $0, rules: configuration) }) {
            URLSessionDownloadTask($0, session: self)
        }
    }

    /// Creates a download, suspended, that goes on with what an earlier one received.
    ///
    /// The data is from ``URLSessionDownloadTask/cancel(byProducingResumeData:)`` or the error of a
    /// download; with anything else the download fails.
    public func downloadTask(withResumeData data: Data) -> URLSessionDownloadTask {
        make([Draft(resumeData: data)]) { URLSessionDownloadTask($0, session: self) }[0]
    }

    /// Creates an upload of a file, suspended; the daemon has a copy of the file when this returns.
    public func uploadTask(with request: URLRequest, fromFile file: URL) -> URLSessionUploadTask {
        make([Draft(upload: request, file: file)]) {
            URLSessionUploadTask($0, session: self)
        }[0]
    }

    /// Calls `handler` with the tasks that have not ended, once the daemon has said which there are.
    ///
    /// Without a daemon it gets those of this process.
    public func getAllTasks(
        completionHandler handler: @escaping @Sendable ([URLSessionTask]) -> Void
    ) {
        link.whenSettled { [self] in feed.add { [self] in handler(unfinished) } }
    }

    /// Calls `handler` with the tasks that have not ended: data tasks, of which there are none, uploads
    /// and downloads.
    public func getTasksWithCompletionHandler(
        _ handler:
            @escaping @Sendable (
                [URLSessionDataTask], [URLSessionUploadTask], [URLSessionDownloadTask]
            ) -> Void
    ) {
        getAllTasks { tasks in
            handler(
                [],
                tasks.compactMap { $0 as? URLSessionUploadTask },
                tasks.compactMap { $0 as? URLSessionDownloadTask }
            )
        }
    }

    /// The tasks that have not ended.
    public var allTasks: [URLSessionTask] {
        get async {
            await withCheckedContinuation { continuation in
                getAllTasks { continuation.resume(returning: $0) }
            }
        }
    }

    /// The tasks that have not ended: data tasks, of which there are none, uploads and downloads.
    public var tasks: ([URLSessionDataTask], [URLSessionUploadTask], [URLSessionDownloadTask]) {
        get async {
            let tasks = await allTasks
            return (
                [], tasks.compactMap { $0 as? URLSessionUploadTask },
                tasks.compactMap { $0 as? URLSessionDownloadTask }
            )
        }
    }

    /// Lets the tasks end, and then the session; it takes no new tasks.
    public func finishTasksAndInvalidate() { invalidate() }

    /// Cancels all tasks and ends the session.
    public func invalidateAndCancel() {
        invalidate()
        for task in unfinished { task.cancel() }
    }

    /// Calls `handler` after everything that was there to tell so far; nothing else is kept in memory.
    public func flush(completionHandler handler: @escaping @Sendable () -> Void) {
        feed.add(handler)
    }

    /// Calls `handler`: there are no cookies, caches and credentials to forget.
    public func reset(completionHandler handler: @escaping @Sendable () -> Void) {
        feed.add(handler)
    }

    /// The tasks whose end the delegate has not been told of, in the order of their numbers.
    var unfinished: [URLSessionTask] {
        state.withLock { Array($0.tasks.values) }
            .sorted { $0.taskIdentifier < $1.taskIdentifier }
    }
}
