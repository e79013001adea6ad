public import Foundation
public import FoundationNetworking
public import StageControl

/// The rules of a session, in the shape of Apple's class.
///
/// A session copies its configuration when it is made; what is changed later does not concern it.
///
/// The daemon makes the transfers of a background session. A session of ``default`` or ``ephemeral`` belongs to this
/// process, which makes its transfers.
///
/// Unchecked, since it is a class with variables as Apple's is: one thread sets it up, and hands it over.
open class URLSessionConfiguration: NSObject, NSCopying, @unchecked Sendable {
    /// The identifier of a background session, unique among those of the user; `nil` for a session in this process.
    public let identifier: String?
    /// Whether the daemon picks the time: on an unmetered network and mains power, with others.
    public var isDiscretionary = false
    /// Whether ``launchHandler`` is started when transfers have ended and the application is not there.
    public var sessionSendsLaunchEvents = true
    /// Whether transfers run on mobile networks; on Linux those that cost money by the byte.
    public var allowsCellularAccess = true
    /// Whether transfers run on networks that cost money by the byte.
    public var allowsExpensiveNetworkAccess = true
    /// Whether transfers run on networks that somebody asked to be spared.
    public var allowsConstrainedNetworkAccess = true
    /// Whether a task of a session in this process waits for a connection instead of failing where none comes about.
    ///
    /// Attempts are then made 1 second to 30 seconds apart. Background sessions always wait.
    public var waitsForConnectivity = false
    /// Seconds without a byte after which an attempt counts as failed; a background session repeats it.
    ///
    /// The request's own limit counts, unless that is 60 seconds.
    /// The opening handshake of a WebSocket task may take as long, and a server that has sent nothing for half of the
    /// time is sent a ping: one that sends nothing in the other half, either, is lost (`URLError.timedOut`).
    public var timeoutIntervalForRequest: TimeInterval = 60
    /// Seconds after its creation when a task is given up, with all attempts and waits.
    public var timeoutIntervalForResource: TimeInterval = 604_800
    /// The application group, whose registration may name the program to launch (``launchHandler``); otherwise of no
    /// effect: a finished download is where any program of the user can fetch it.
    public var sharedContainerIdentifier: String?
    /// How many connections the session gets to one host at most.
    public var httpMaximumConnectionsPerHost = 6
    /// Header fields of every request that does not have them itself.
    public var httpAdditionalHeaders: [AnyHashable: Any]?

    /// Whether an answer from a cache will do.
    ///
    /// A session in this process has ``urlCache``. The daemon has no cache: with the policies that ignore or revalidate remote caches, those are told so
    /// (`Cache-Control: no-cache`); with `returnCacheDataDontLoad` a task fails with `URLError.resourceUnavailable`. The
    /// policy of a request counts, unless that is the default.
    public var requestCachePolicy = URLRequest.CachePolicy.useProtocolCachePolicy
    /// The oldest version of TLS that a server may speak; the daemon speaks none before 1.2.
    public var tlsMinimumSupportedProtocolVersion = tls_protocol_version_t.TLSv12
    /// The cookies that are sent, and that answers are added to while the session exists in a process; `nil` for none, which
    /// is the default of background sessions.
    ///
    /// ``default`` has `HTTPCookieStorage.shared`, ``ephemeral`` has a storage of its own, in memory. In a background session,
    /// where Apple's default is `HTTPCookieStorage.shared`, the cookies are those of the moment when a task is created, and
    /// are left out where a redirect leads to another origin.
    public var httpCookieStorage: HTTPCookieStorage?
    /// Whether the cookies of ``httpCookieStorage`` are sent.
    public var httpShouldSetCookies = true
    /// Which cookies of answers are added to ``httpCookieStorage``.
    public var httpCookieAcceptPolicy = HTTPCookie.AcceptPolicy.onlyFromMainDocumentDomain
    /// The credentials that the first challenge of a task is answered with if the delegate leaves that to the system;
    /// `nil` for none, which is the default of background sessions.
    public var urlCredentialStorage: URLCredentialStorage?
    var inert = InertSettings()

    /// The program that the daemon launches to handle the events of the session while the application does not run.
    ///
    /// By default the `backgroundEventsHandler` of the application's registration, or else the executable of this
    /// process without arguments. The registration is that of the main bundle's identifier, or the one that names this
    /// executable, or the only one of ``sharedContainerIdentifier`` with a handler. A handler that an earlier
    /// configuration named stays. Where the daemon may launch nothing (for a confined process, or the user of a
    /// service), events wait until the application makes the session again. ``sessionSendsLaunchEvents`` turns launches
    /// off. Not of Apple's class: there the system knows the application.
    public var launchHandler: LaunchHandler?
    /// Whether an answer with a status of 400 or more fails its task with an `URLError`, a download as well as an
    /// upload; ``URLSessionTask/response`` has the head of the answer then, too, and no file is handed over.
    ///
    /// By default such an answer is a completed transfer as on Apple's systems: a download's file is the body of the
    /// answer, and there is no error. Before that, downloads and idempotent requests are repeated after the statuses
    /// 408, 425, 429, 500, 502, 503 and 504, up to five times in about a minute. With this switch, downloads are
    /// repeated after those until ``timeoutIntervalForResource`` has passed. A download with ``DownloadContent`` always
    /// fails. Not of Apple's class.
    public var failsOnErrorStatus = false
    /// Whether servers act once on each request of the session, however often they get it (RFC 9110, section
    /// 9.2.2): then one that fails in a way that may pass is sent again whatever its method, after the answers
    /// 408, 425, 429, 500, 502, 503 and 504, too.
    ///
    /// By default the method tells, and no upload is sent again after an answer. Not of Apple's class.
    public var requestsAreIdempotent = false
    /// The protocol by which uploads of the session resume after a break, and after the end of the application, of the
    /// daemon and of the machine; by default ``UploadProtocol/resumable``.
    ///
    /// Not of Apple's class, which resumes uploads as ``UploadProtocol/resumable`` does.
    public var uploadProtocol = UploadProtocol.resumable
    /// Whether the delegate is asked when a server wants to know who asks; otherwise the task fails.
    ///
    /// Not of Apple's class.
    public var answersChallenges = true
    /// A Unix group whose members see the session and may act on it; the user must be one.
    ///
    /// Not of Apple's class.
    public var group: String?
    /// The path of the daemon's socket; by default the environment says which, see ``ControlSocket``.
    ///
    /// Not of Apple's class.
    public var serviceSocketPath: String?
    /// Seconds after which a task that no daemon could be told of fails with
    /// `URLError.backgroundSessionWasDisconnected`; by default it waits for a daemon until
    /// ``timeoutIntervalForResource``.
    ///
    /// Not of Apple's class.
    public var timeoutIntervalForService: TimeInterval?

    private init(identifier: String?) { self.identifier = identifier }

    /// Returns the configuration of a background session that starts transfers as soon as it can.
    public static func background(withIdentifier identifier: String) -> URLSessionConfiguration {
        URLSessionConfiguration(identifier: identifier)
    }

    /// Returns a configuration of its own with the same values.
    public func copy(with zone: NSZone? = nil) -> Any { duplicate() }

    func duplicate() -> URLSessionConfiguration {
        let copy = URLSessionConfiguration(identifier: identifier)
        copy.isDiscretionary = isDiscretionary
        copy.sessionSendsLaunchEvents = sessionSendsLaunchEvents
        copy.allowsCellularAccess = allowsCellularAccess
        copy.allowsExpensiveNetworkAccess = allowsExpensiveNetworkAccess
        copy.allowsConstrainedNetworkAccess = allowsConstrainedNetworkAccess
        copy.waitsForConnectivity = waitsForConnectivity
        copy.timeoutIntervalForRequest = timeoutIntervalForRequest
        copy.timeoutIntervalForResource = timeoutIntervalForResource
        copy.sharedContainerIdentifier = sharedContainerIdentifier
        copy.httpMaximumConnectionsPerHost = httpMaximumConnectionsPerHost
        copy.httpAdditionalHeaders = httpAdditionalHeaders
        copy.requestCachePolicy = requestCachePolicy
        copy.tlsMinimumSupportedProtocolVersion = tlsMinimumSupportedProtocolVersion
        copy.httpCookieStorage = httpCookieStorage
        copy.httpShouldSetCookies = httpShouldSetCookies
        copy.httpCookieAcceptPolicy = httpCookieAcceptPolicy
        copy.urlCredentialStorage = urlCredentialStorage
        copy.inert = inert
        copy.launchHandler = launchHandler
        copy.failsOnErrorStatus = failsOnErrorStatus
        copy.requestsAreIdempotent = requestsAreIdempotent
        copy.uploadProtocol = uploadProtocol
        copy.answersChallenges = answersChallenges
        copy.group = group
        copy.serviceSocketPath = serviceSocketPath
        copy.timeoutIntervalForService = timeoutIntervalForService
        return copy
    }

    /// The configuration in the daemon's terms.
    var message: SessionConfiguration {
        var message = SessionConfiguration()
        message.isDiscretionary = isDiscretionary
        message.allowsExpensiveNetworkAccess = allowsExpensiveNetworkAccess && allowsCellularAccess
        message.allowsConstrainedNetworkAccess = allowsConstrainedNetworkAccess
        message.sendsLaunchEvents = sessionSendsLaunchEvents
        message.handler = launchHandler
        message.maximumConnectionsPerHost = httpMaximumConnectionsPerHost
        message.requestTimeout = timeoutIntervalForRequest
        message.resourceTimeout = timeoutIntervalForResource
        for (name, value) in httpAdditionalHeaders ?? [:] {
            message.headers["\(name.base)"] = "\(value)"
        }
        message.answersChallenges = answersChallenges
        let isNewest = tlsMinimumSupportedProtocolVersion == .TLSv13
        message.minimumTLSVersion = isNewest ? "1.3" : nil
        message.uploadProtocol = uploadProtocol == .plain ? nil : uploadProtocol.rawValue
        message.group = group
        return message
    }

    /// A new configuration of a session in this process, with the cookies, credentials and cache that all such sessions
    /// of the process share.
    public static var `default`: URLSessionConfiguration {
        let configuration = URLSessionConfiguration(identifier: nil)
        configuration.httpCookieStorage = .shared
        configuration.urlCredentialStorage = .shared
        configuration.urlCache = .shared
        return configuration
    }

    /// A new configuration of a session in this process, with cookies, credentials and a cache of its own, which are in
    /// memory.
    public static var ephemeral: URLSessionConfiguration {
        let configuration = URLSessionConfiguration(identifier: nil)
        let other = FoundationNetworking.URLSessionConfiguration.ephemeral
        configuration.httpCookieStorage = other.httpCookieStorage
        configuration.urlCredentialStorage = other.urlCredentialStorage
        configuration.urlCache = other.urlCache
        return configuration
    }
}
