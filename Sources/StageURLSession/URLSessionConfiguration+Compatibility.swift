import Foundation
public import FoundationNetworking

/// Properties of Apple's class that sessions store without any effect, except for the cache of sessions in the process;
/// each documents the reason.
struct InertSettings {
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

extension URLSessionConfiguration {
    /// Use of several networks at once (Multipath TCP).
    public enum MultipathServiceType: Int, Sendable {
        /// One network.
        case none = 0
        /// Another network if the first one fails.
        case handover = 1
        /// The network with the lower delay.
        case interactive = 2
        /// All networks together.
        case aggregate = 3
    }

    /// No effect: no packets are marked. The daemon orders transfers by ``URLSessionTask/priority``; a session in this
    /// process orders none.
    public var networkServiceType: URLRequest.NetworkServiceType {
        get { inert.networkServiceType }
        set { inert.networkServiceType = newValue }
    }

    /// No effect: the daemon and sessions in this process send each request of a connection after the response to the
    /// previous one.
    public var httpShouldUsePipelining: Bool {
        get { inert.httpShouldUsePipelining }
        set { inert.httpShouldUsePipelining = newValue }
    }

    /// The cache for data tasks of a session in this process (RFC 9111); `nil` for none.
    ///
    /// Responses with a `Vary` field other than `Accept-Encoding` are not stored, nor those larger than a twentieth
    /// of the cache. No effect in a background session: the daemon has no cache.
    public var urlCache: URLCache? {
        get { inert.urlCache }
        set { inert.urlCache = newValue }
    }

    /// No effect: in a background session, as in Apple's, since a class of this process cannot run in the daemon; in a
    /// session in this process since the transfer engine makes its requests, without `URLProtocol`.
    public var protocolClasses: [AnyClass]? {
        get { inert.protocolClasses }
        set { inert.protocolClasses = newValue }
    }

    /// No effect: the connections of a background session belong to the daemon, which keeps running when the application
    /// does not; a session in this process needs no such mode, since Linux suspends no applications.
    public var shouldUseExtendedBackgroundIdleMode: Bool {
        get { inert.shouldUseExtendedBackgroundIdleMode }
        set { inert.shouldUseExtendedBackgroundIdleMode = newValue }
    }

    /// No effect: on Linux the administrator configures Multipath TCP.
    public var multipathServiceType: MultipathServiceType {
        get { inert.multipathServiceType }
        set { inert.multipathServiceType = newValue }
    }

    /// No effect: Linux has no ultra-constrained networks.
    ///
    /// ``allowsConstrainedNetworkAccess`` and ``allowsExpensiveNetworkAccess`` apply to all networks.
    public var allowsUltraConstrainedNetworkAccess: Bool {
        get { inert.allowsUltraConstrainedNetworkAccess }
        set { inert.allowsUltraConstrainedNetworkAccess = newValue }
    }

    /// No effect: there is one loading mode.
    public var usesClassicLoadingMode: Bool {
        get { inert.usesClassicLoadingMode }
        set { inert.usesClassicLoadingMode = newValue }
    }

    /// No effect: the daemon and sessions in this process send no data before the TLS handshake is complete.
    public var enablesEarlyData: Bool {
        get { inert.enablesEarlyData }
        set { inert.enablesEarlyData = newValue }
    }

    /// No effect: the server negotiates the newest version that both sides support with the daemon, or with a session in
    /// this process.
    public var tlsMaximumSupportedProtocolVersion: tls_protocol_version_t {
        get { inert.tlsMaximumSupportedProtocolVersion }
        set { inert.tlsMaximumSupportedProtocolVersion = newValue }
    }

    /// Unavailable: an application cannot choose the proxy of the daemon, which has its own configuration; sessions in
    /// this process take their proxies from the environment.
    @available(
        *,
        unavailable,
        message: "proxies are set in stagepackd.json: httpProxy, httpsProxy, proxyExceptions"
    )
    public var connectionProxyDictionary: [AnyHashable: Any]? {
        get { preconditionFailure("unavailable") }
        set { preconditionFailure("unavailable") }
    }

    /// Unavailable: neither the daemon nor a session in this process validates DNSSEC.
    @available(*, unavailable, message: "use a resolver that validates DNSSEC, for all programs")
    public var requiresDNSSECValidation: Bool {
        get { preconditionFailure("unavailable") }
        set { preconditionFailure("unavailable") }
    }
}
