import Foundation
public import FoundationNetworking

extension URLSessionConfiguration {
    /// Use of several networks at once (Multipath TCP).
    @nonexhaustive(warn)
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

    /// No effect: no packets are marked.
    ///
    /// The daemon orders transfers by ``URLSessionTask/priority``; a session in this process orders none.
    public var networkServiceType: URLRequest.NetworkServiceType {
        get { settings.networkServiceType }
        set { settings.networkServiceType = newValue }
    }

    /// No effect: the daemon and sessions in this process send each request of a connection after the response to the
    /// previous one.
    public var httpShouldUsePipelining: Bool {
        get { settings.httpShouldUsePipelining }
        set { settings.httpShouldUsePipelining = newValue }
    }

    /// The cache for data tasks of a session in this process (RFC 9111); `nil` for none.
    ///
    /// Responses with a `Vary` field other than `Accept-Encoding` are not stored, nor those larger than a twentieth
    /// of the cache. No effect in a background session: the daemon has no cache.
    public var urlCache: URLCache? {
        get { settings.urlCache }
        set { settings.urlCache = newValue }
    }

    /// No effect: in a background session, as in Apple's, since a class of this process cannot run in the daemon; in a
    /// session in this process since the transfer engine makes its requests, without `URLProtocol`.
    public var protocolClasses: [AnyClass]? {
        get { settings.protocolClasses }
        set { settings.protocolClasses = newValue }
    }

    /// No effect: the connections of a background session belong to the daemon, which keeps running when the application
    /// does not; a session in this process needs no such mode, since Linux suspends no applications.
    public var shouldUseExtendedBackgroundIdleMode: Bool {
        get { settings.shouldUseExtendedBackgroundIdleMode }
        set { settings.shouldUseExtendedBackgroundIdleMode = newValue }
    }

    /// No effect: on Linux the administrator configures Multipath TCP.
    public var multipathServiceType: MultipathServiceType {
        get { settings.multipathServiceType }
        set { settings.multipathServiceType = newValue }
    }

    /// No effect: Linux has no ultra-constrained networks.
    ///
    /// ``allowsConstrainedNetworkAccess`` and ``allowsExpensiveNetworkAccess`` apply to all networks.
    public var allowsUltraConstrainedNetworkAccess: Bool {
        get { settings.allowsUltraConstrainedNetworkAccess }
        set { settings.allowsUltraConstrainedNetworkAccess = newValue }
    }

    /// No effect: there is one loading mode.
    public var usesClassicLoadingMode: Bool {
        get { settings.usesClassicLoadingMode }
        set { settings.usesClassicLoadingMode = newValue }
    }

    /// No effect: the daemon and sessions in this process send no data before the TLS handshake is complete.
    public var enablesEarlyData: Bool {
        get { settings.enablesEarlyData }
        set { settings.enablesEarlyData = newValue }
    }

    /// No effect: the server negotiates the newest version that both sides support with the daemon, or with a session in
    /// this process.
    public var tlsMaximumSupportedProtocolVersion: tls_protocol_version_t {
        get { settings.tlsMaximumSupportedProtocolVersion }
        set { settings.tlsMaximumSupportedProtocolVersion = newValue }
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
