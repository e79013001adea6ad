public import Foundation
public import FoundationNetworking
public import StageControl

/// Settings of a session, with the interface of Apple's class.
///
/// A session copies its configuration when it is created; later changes do not affect it.
///
/// The daemon performs the transfers of a background session. This process performs those of a session with
/// ``default`` or ``ephemeral``.
///
/// Unchecked, since it is a class with variables as Apple's is: one thread must set it up before it is shared.
open class URLSessionConfiguration: NSObject, NSCopying, @unchecked Sendable {
    /// Identifier of a background session, unique among those of the user; `nil` for a session in this process.
    public let identifier: String?
    /// The values of all other properties, so that a copy has them.
    var settings = SessionSettings()

    /// `true` if the daemon chooses the time: on an unmetered network and mains power, together with other transfers.
    ///
    /// No effect in a session in this process, which starts transfers at once.
    public var isDiscretionary: Bool {
        get { settings.isDiscretionary }
        set { settings.isDiscretionary = newValue }
    }

    /// `true` if ``launchHandler`` is started when transfers of a background session have ended and the application does
    /// not run.
    public var sessionSendsLaunchEvents: Bool {
        get { settings.sessionSendsLaunchEvents }
        set { settings.sessionSendsLaunchEvents = newValue }
    }

    /// `true` if transfers of a background session may use mobile networks; on Linux these are the metered ones.
    ///
    /// No effect in a session in this process, which chooses no networks.
    public var allowsCellularAccess: Bool {
        get { settings.allowsCellularAccess }
        set { settings.allowsCellularAccess = newValue }
    }

    /// `true` if transfers of a background session may use metered networks.
    ///
    /// No effect in a session in this process, which chooses no networks.
    public var allowsExpensiveNetworkAccess: Bool {
        get { settings.allowsExpensiveNetworkAccess }
        set { settings.allowsExpensiveNetworkAccess = newValue }
    }

    /// No effect: no service of Linux reports a low data mode.
    ///
    /// A network that is probably metered counts as metered: see ``allowsExpensiveNetworkAccess``.
    public var allowsConstrainedNetworkAccess: Bool {
        get { settings.allowsConstrainedNetworkAccess }
        set { settings.allowsConstrainedNetworkAccess = newValue }
    }

    /// `true` if a task of a session in this process waits while this machine has no network, instead of failing with
    /// `URLError.notConnectedToInternet`.
    ///
    /// That is without a route to the server, or to resolve its name, and without a default route. The task repeats
    /// its attempt at intervals of 1 to 30 seconds. A server that refuses the connection, and a name that does not
    /// exist, fail the task at once. Background sessions wait in all these cases.
    public var waitsForConnectivity: Bool {
        get { settings.waitsForConnectivity }
        set { settings.waitsForConnectivity = newValue }
    }

    /// Seconds without a byte after which an attempt fails; a background session repeats it.
    ///
    /// In a session in this process, a request's own limit takes precedence, unless it is 60 seconds. The opening
    /// handshake of a WebSocket task may take as long. A WebSocket server that has sent nothing for half of the time
    /// receives a ping; after the other half without a byte, the connection fails (`URLError.timedOut`).
    public var timeoutIntervalForRequest: TimeInterval {
        get { settings.timeoutIntervalForRequest }
        set { settings.timeoutIntervalForRequest = newValue }
    }

    /// Seconds after which an unfinished task fails, including all attempts and waits: in a background session after its
    /// creation, in a session in this process after its first ``URLSessionTask/resume()``.
    ///
    /// WebSocket tasks have no such limit.
    public var timeoutIntervalForResource: TimeInterval {
        get { settings.timeoutIntervalForResource }
        set { settings.timeoutIntervalForResource = newValue }
    }

    /// Application group, whose registration may name the program to launch (``launchHandler``); otherwise no effect:
    /// any program of the user can read a finished download.
    public var sharedContainerIdentifier: String? {
        get { settings.sharedContainerIdentifier }
        set { settings.sharedContainerIdentifier = newValue }
    }

    /// Maximum number of the session's connections to one host.
    public var httpMaximumConnectionsPerHost: Int {
        get { settings.httpMaximumConnectionsPerHost }
        set { settings.httpMaximumConnectionsPerHost = newValue }
    }

    /// Header fields of every request that does not set them itself.
    ///
    /// Those that frame a body have no effect, and neither has `Accept-Encoding` in a background session, whose
    /// downloads are not encoded so that they can resume.
    public var httpAdditionalHeaders: [AnyHashable: Any]? {
        get { settings.httpAdditionalHeaders }
        set { settings.httpAdditionalHeaders = newValue }
    }

    /// Policy for cached responses.
    ///
    /// A session in this process uses ``urlCache``. The daemon has no cache: with the policies that ignore or
    /// revalidate remote caches, its requests have the field `Cache-Control: no-cache`; with
    /// `returnCacheDataDontLoad` a task fails with `URLError.resourceUnavailable`. The policy of a request takes
    /// precedence, unless it is the default.
    public var requestCachePolicy: URLRequest.CachePolicy {
        get { settings.requestCachePolicy }
        set { settings.requestCachePolicy = newValue }
    }

    /// Oldest accepted version of TLS; neither the daemon nor a session in this process accepts one before 1.2.
    public var tlsMinimumSupportedProtocolVersion: tls_protocol_version_t {
        get { settings.tlsMinimumSupportedProtocolVersion }
        set { settings.tlsMinimumSupportedProtocolVersion = newValue }
    }

    /// Cookies that are sent, and that responses add to while the session exists in a process; `nil` for none, which
    /// is the default of background sessions.
    ///
    /// ``default`` has `HTTPCookieStorage.shared`, ``ephemeral`` has its own storage in memory. A background session,
    /// for which Apple's default is `HTTPCookieStorage.shared`, sends the cookies that exist when a task is created,
    /// and drops them when a redirect leads to another origin.
    public var httpCookieStorage: HTTPCookieStorage? {
        get { settings.httpCookieStorage }
        set { settings.httpCookieStorage = newValue }
    }

    /// `true` if the cookies of ``httpCookieStorage`` are sent.
    public var httpShouldSetCookies: Bool {
        get { settings.httpShouldSetCookies }
        set { settings.httpShouldSetCookies = newValue }
    }

    /// Policy for adding the cookies of responses to ``httpCookieStorage``.
    public var httpCookieAcceptPolicy: HTTPCookie.AcceptPolicy {
        get { settings.httpCookieAcceptPolicy }
        set { settings.httpCookieAcceptPolicy = newValue }
    }

    /// Credentials that answer the first challenge of a task if the delegate chooses default handling; `nil` for
    /// none, which is the default of background sessions.
    ///
    /// A credential of the delegate that the server has accepted becomes the default one of its protection space there,
    /// unless its persistence is `.none`; Foundation on Linux keeps it in memory, and stores none that is
    /// `.synchronizable`. Delegates are asked about each challenge, with the stored credential as the proposed one. No
    /// request has a credential before its challenge.
    public var urlCredentialStorage: URLCredentialStorage? {
        get { settings.urlCredentialStorage }
        set { settings.urlCredentialStorage = newValue }
    }

    /// Program that the daemon launches to handle the events of the session while the application does not run.
    ///
    /// By default the `backgroundEventsHandler` of the application's registration, or else the executable of this
    /// process without arguments. The registration is that of the main bundle's identifier, or the one that names
    /// this executable, or the only one of ``sharedContainerIdentifier`` with a handler. A handler of an earlier
    /// configuration is kept. The executable, and the folders above it, must be writable by root or the user
    /// alone; otherwise it is not launched, and a warning is logged once (swift-log, label
    /// `stage-session`). If the daemon may not launch programs (for a confined process, or the user of a
    /// service), events wait until the application creates the session again. ``sessionSendsLaunchEvents`` disables
    /// launches. Not part of Apple's class: on Apple's systems the system knows the application.
    public var launchHandler: LaunchHandler? {
        get { settings.launchHandler }
        set { settings.launchHandler = newValue }
    }

    /// `true` if a response with a status of 400 or more fails its task with a `URLError`, both for downloads and
    /// uploads; ``URLSessionTask/response`` has the head of the response then, too, and no file is delivered.
    ///
    /// By default such a response completes the transfer without an error, as on Apple's systems: a download's file
    /// is the body of the response. Before that, a background session repeats downloads and idempotent requests after
    /// the statuses 408, 425, 429, 500, 502, 503, 504 and 5xx that are not registered, up to five times in about a minute. With
    /// `true`, it repeats downloads after those until ``timeoutIntervalForResource`` has passed. A download with
    /// ``DownloadContent`` always fails. Not part of Apple's class.
    public var failsOnErrorStatus: Bool {
        get { settings.failsOnErrorStatus }
        set { settings.failsOnErrorStatus = newValue }
    }

    /// `true` if all requests of a background session are idempotent (RFC 9110, section 9.2.2): then a request is
    /// repeated after a temporary failure with any method, also after the responses 408, 425, 429, 500, 502, 503, 504 and 5xx
    /// that are not registered.
    ///
    /// By default the method decides, and no upload is sent again after a response. A session in this process repeats
    /// none. Not part of Apple's class.
    public var requestsAreIdempotent: Bool {
        get { settings.requestsAreIdempotent }
        set { settings.requestsAreIdempotent = newValue }
    }

    /// Protocol by which uploads of a background session are resumed after an interruption, and after a restart of the
    /// application, of the daemon and of the machine; by default ``UploadProtocol/resumable``.
    ///
    /// Not part of Apple's class, which resumes uploads as ``UploadProtocol/resumable`` does.
    public var uploadProtocol: UploadProtocol {
        get { settings.uploadProtocol }
        set { settings.uploadProtocol = newValue }
    }

    /// `true` if the delegate of a background session is asked for credentials when a server requires them; otherwise
    /// the task fails.
    ///
    /// No effect in a session in this process, which asks its delegate. Not part of Apple's class.
    public var answersChallenges: Bool {
        get { settings.answersChallenges }
        set { settings.answersChallenges = newValue }
    }

    /// Unix group whose members see and control the session; the user must be a member.
    ///
    /// Not part of Apple's class.
    public var group: String? {
        get { settings.group }
        set { settings.group = newValue }
    }

    /// Path of the daemon's socket; by default the environment determines it, see `ControlSocket`.
    ///
    /// Not part of Apple's class.
    public var serviceSocketPath: String? {
        get { settings.serviceSocketPath }
        set { settings.serviceSocketPath = newValue }
    }

    /// Seconds after which a task that could not be sent to a daemon fails with
    /// `URLError.backgroundSessionWasDisconnected`; by default it waits for a daemon until
    /// ``timeoutIntervalForResource``.
    ///
    /// Not part of Apple's class.
    public var timeoutIntervalForService: TimeInterval? {
        get { settings.timeoutIntervalForService }
        set { settings.timeoutIntervalForService = newValue }
    }

    private init(identifier: String?) { self.identifier = identifier }

    /// Returns the configuration of a background session that starts transfers as soon as possible.
    public static func background(withIdentifier identifier: String) -> URLSessionConfiguration {
        URLSessionConfiguration(identifier: identifier)
    }

    /// Returns an independent copy.
    public func copy(with zone: NSZone? = nil) -> Any { duplicate() }

    func duplicate() -> URLSessionConfiguration {
        let copy = URLSessionConfiguration(identifier: identifier)
        copy.settings = settings
        return copy
    }

    /// The configuration as a message to the daemon.
    var message: SessionConfiguration {
        var message = SessionConfiguration()
        message.isDiscretionary = isDiscretionary
        message.allowsExpensiveNetworkAccess = allowsExpensiveNetworkAccess && allowsCellularAccess
        message.allowsConstrainedNetworkAccess = allowsConstrainedNetworkAccess
        message.sendsLaunchEvents = sessionSendsLaunchEvents
        message.handler = launchHandler
        // The daemon refuses a session with others, and infinity has no number in JSON.
        message.maximumConnectionsPerHost = min(max(httpMaximumConnectionsPerHost, 1), 1 << 16)
        message.requestTimeout = timeoutIntervalForRequest.withinLimits
        message.resourceTimeout = timeoutIntervalForResource.withinLimits
        for (name, value) in httpAdditionalHeaders ?? [:] {
            let name = "\(name.base)"
            if !TaskSpecification.isSetByDaemon(name) { message.headers[name] = "\(value)" }
        }
        message.answersChallenges = answersChallenges
        let isNewest = tlsMinimumSupportedProtocolVersion == .TLSv13
        message.minimumTLSVersion = isNewest ? "1.3" : nil
        message.uploadProtocol = uploadProtocol == .plain ? nil : uploadProtocol.rawValue
        message.group = group
        return message
    }

    /// A new configuration of a session in this process, with the cookies, credentials and cache that all such
    /// sessions of the process share.
    public static var `default`: URLSessionConfiguration {
        let configuration = URLSessionConfiguration(identifier: nil)
        configuration.httpCookieStorage = .shared
        configuration.urlCredentialStorage = .shared
        configuration.urlCache = .shared
        return configuration
    }

    /// A new configuration of a session in this process, with its own cookies, credentials and cache in memory.
    public static var ephemeral: URLSessionConfiguration {
        let configuration = URLSessionConfiguration(identifier: nil)
        let other = FoundationNetworking.URLSessionConfiguration.ephemeral
        configuration.httpCookieStorage = other.httpCookieStorage
        configuration.urlCredentialStorage = other.urlCredentialStorage
        configuration.urlCache = other.urlCache
        return configuration
    }
}
