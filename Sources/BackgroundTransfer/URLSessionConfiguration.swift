public import Foundation
public import StageControl

/// The rules of a session, in the shape of Apple's class.
///
/// A session copies its configuration when it is made; what is changed later does not concern it.
/// There are background sessions only: for others there is FoundationNetworking's class.
///
/// Unchecked, since it is a class with variables as Apple's is: one thread sets it up, and hands it over.
public final class URLSessionConfiguration: NSObject, NSCopying, @unchecked Sendable {
    /// The identifier of the session, unique among those of the user.
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
    /// Of no effect, as on Apple's systems: background sessions always wait.
    public var waitsForConnectivity = false
    /// Seconds without a byte after which an attempt counts as failed, to be repeated.
    public var timeoutIntervalForRequest: TimeInterval = 60
    /// Seconds after its creation when a task is given up, with all attempts and waits.
    public var timeoutIntervalForResource: TimeInterval = 604_800
    /// Of no effect: a finished download is where any program of the user can fetch it.
    public var sharedContainerIdentifier: String?
    /// How many connections the session gets to one host at most.
    public var httpMaximumConnectionsPerHost = 6
    /// Header fields of every request that does not have them itself.
    public var httpAdditionalHeaders: [AnyHashable: Any]?

    /// The program that takes the events in when the application is not there.
    ///
    /// By default the one that the session has already, and for a new session none: its events wait until
    /// the application makes the session again. Not of Apple's class: there the system knows the
    /// application. ``sessionSendsLaunchEvents`` turns it off.
    public var launchHandler: LaunchHandler?
    /// Whether an answer with a status of 400 or more ends a download well, as on Apple's systems; by
    /// default it is a failure, and the body is not kept.
    ///
    /// Not of Apple's class.
    public var acceptsErrorResponses = false
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

    private init(identifier: String) { self.identifier = identifier }

    /// Returns the configuration of a background session that starts transfers as soon as it can.
    public static func background(withIdentifier identifier: String) -> URLSessionConfiguration {
        URLSessionConfiguration(identifier: identifier)
    }

    /// Returns a configuration of its own with the same values.
    public func copy(with zone: NSZone? = nil) -> Any { duplicate() }

    func duplicate() -> URLSessionConfiguration {
        let copy = URLSessionConfiguration(identifier: identifier ?? "")
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
        copy.launchHandler = launchHandler
        copy.acceptsErrorResponses = acceptsErrorResponses
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
        message.group = group
        return message
    }

    /// Refuses: there are background sessions only.
    @available(
        *,
        unavailable,
        message: "background sessions only: use FoundationNetworking.URLSessionConfiguration"
    )
    public static var `default`: URLSessionConfiguration { background(withIdentifier: "") }

    /// Refuses: there are background sessions only.
    @available(
        *,
        unavailable,
        message: "background sessions only: use FoundationNetworking.URLSessionConfiguration"
    )
    public static var ephemeral: URLSessionConfiguration { background(withIdentifier: "") }
}
