import Foundation
import FoundationNetworking
import StageControl

/// Values of the properties of a ``URLSessionConfiguration``, with their defaults.
struct SessionSettings {
    var isDiscretionary = false
    var sessionSendsLaunchEvents = true
    var allowsCellularAccess = true
    var allowsExpensiveNetworkAccess = true
    var allowsConstrainedNetworkAccess = true
    var waitsForConnectivity = false
    var timeoutIntervalForRequest: TimeInterval = 60
    var timeoutIntervalForResource: TimeInterval = 604_800
    var sharedContainerIdentifier: String?
    var httpMaximumConnectionsPerHost = 6
    var httpAdditionalHeaders: [AnyHashable: Any]?
    var requestCachePolicy = URLRequest.CachePolicy.useProtocolCachePolicy
    var tlsMinimumSupportedProtocolVersion = tls_protocol_version_t.TLSv12
    var httpCookieStorage: HTTPCookieStorage?
    var httpShouldSetCookies = true
    var httpCookieAcceptPolicy = HTTPCookie.AcceptPolicy.onlyFromMainDocumentDomain
    var urlCredentialStorage: URLCredentialStorage?
    var launchHandler: LaunchHandler?
    var failsOnErrorStatus = false
    var requestsAreIdempotent = false
    var uploadProtocol = URLSessionConfiguration.UploadProtocol.resumable
    var answersChallenges = true
    var group: String?
    var serviceSocketPath: String?
    var timeoutIntervalForService: TimeInterval?

    // Without any effect, except for the cache of sessions in the process; the configuration documents the reasons.

    var networkServiceType = URLRequest.NetworkServiceType.default
    var httpShouldUsePipelining = false
    var urlCache: URLCache?
    var protocolClasses: [AnyClass]?
    var shouldUseExtendedBackgroundIdleMode = false
    var multipathServiceType = URLSessionConfiguration.MultipathServiceType.none
    var allowsUltraConstrainedNetworkAccess = false
    var usesClassicLoadingMode = true
    var enablesEarlyData = false
    var tlsMaximumSupportedProtocolVersion = tls_protocol_version_t.TLSv13
}
