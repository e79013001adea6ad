import Foundation
public import FoundationNetworking

/// Properties of Apple's class that background sessions store without any effect; each documents the reason.
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

    /// No effect: the daemon marks no packets, and orders transfers by ``URLSessionTask/priority``.
    public var networkServiceType: URLRequest.NetworkServiceType {
        get { inert.networkServiceType }
        set { inert.networkServiceType = newValue }
    }

    /// No effect: the daemon sends each request after the response to the previous one.
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

    /// No effect, as in Apple's background sessions: a class of this process cannot run in the daemon.
    public var protocolClasses: [AnyClass]? {
        get { inert.protocolClasses }
        set { inert.protocolClasses = newValue }
    }

    /// No effect: connections belong to the daemon, which keeps running when the application does not.
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

    /// No effect: the daemon sends no data before the TLS handshake is complete.
    public var enablesEarlyData: Bool {
        get { inert.enablesEarlyData }
        set { inert.enablesEarlyData = newValue }
    }

    /// No effect: server and daemon negotiate the newest version that both support.
    public var tlsMaximumSupportedProtocolVersion: tls_protocol_version_t {
        get { inert.tlsMaximumSupportedProtocolVersion }
        set { inert.tlsMaximumSupportedProtocolVersion = newValue }
    }

    /// Unavailable: an application cannot choose the proxy of the daemon, which has its own configuration.
    @available(
        *,
        unavailable,
        message: "proxies are set in stagepackd.json: httpProxy, httpsProxy, proxyExceptions"
    )
    public var connectionProxyDictionary: [AnyHashable: Any]? {
        get { preconditionFailure("unavailable") }
        set { preconditionFailure("unavailable") }
    }

    /// Unavailable: the daemon does not validate DNSSEC.
    @available(*, unavailable, message: "use a resolver that validates DNSSEC, for all programs")
    public var requiresDNSSECValidation: Bool {
        get { preconditionFailure("unavailable") }
        set { preconditionFailure("unavailable") }
    }
}
