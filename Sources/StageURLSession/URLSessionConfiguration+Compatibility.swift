import Foundation
public import FoundationNetworking

/// Properties of Apple's class that sessions of the daemon keep without any effect, each with the reason.
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
    /// A use of several networks at once (Multipath TCP).
    public enum MultipathServiceType: Int, Sendable {
        /// One network.
        case none = 0
        /// Another network where the first one fails.
        case handover = 1
        /// The network with the lower delay.
        case interactive = 2
        /// All networks together.
        case aggregate = 3
    }

    /// Of no effect: the daemon marks no packets, and orders transfers by ``URLSessionTask/priority``.
    public var networkServiceType: URLRequest.NetworkServiceType {
        get { inert.networkServiceType }
        set { inert.networkServiceType = newValue }
    }

    /// Of no effect: the daemon sends each request after the answer to the one before.
    public var httpShouldUsePipelining: Bool {
        get { inert.httpShouldUsePipelining }
        set { inert.httpShouldUsePipelining = newValue }
    }

    /// The cache that data tasks of a session in this process are answered from, and that keeps their answers (RFC 9111);
    /// `nil` for none.
    ///
    /// Answers with a `Vary` field other than `Accept-Encoding` are not kept, nor those larger than a twentieth of the cache.
    /// Of no effect in a background session: the daemon has no cache.
    public var urlCache: URLCache? {
        get { inert.urlCache }
        set { inert.urlCache = newValue }
    }

    /// Of no effect, as in Apple's background sessions: a class of this process cannot run in the daemon.
    public var protocolClasses: [AnyClass]? {
        get { inert.protocolClasses }
        set { inert.protocolClasses = newValue }
    }

    /// Of no effect: connections belong to the daemon, which runs on when the application does not.
    public var shouldUseExtendedBackgroundIdleMode: Bool {
        get { inert.shouldUseExtendedBackgroundIdleMode }
        set { inert.shouldUseExtendedBackgroundIdleMode = newValue }
    }

    /// Of no effect: on Linux the administrator decides on Multipath TCP.
    public var multipathServiceType: MultipathServiceType {
        get { inert.multipathServiceType }
        set { inert.multipathServiceType = newValue }
    }

    /// Of no effect: Linux calls no network ultra-constrained.
    ///
    /// ``allowsConstrainedNetworkAccess`` and
    /// ``allowsExpensiveNetworkAccess`` hold for all networks.
    public var allowsUltraConstrainedNetworkAccess: Bool {
        get { inert.allowsUltraConstrainedNetworkAccess }
        set { inert.allowsUltraConstrainedNetworkAccess = newValue }
    }

    /// Of no effect: there is one way of loading.
    public var usesClassicLoadingMode: Bool {
        get { inert.usesClassicLoadingMode }
        set { inert.usesClassicLoadingMode = newValue }
    }

    /// Of no effect: the daemon sends no data before the TLS handshake is complete.
    public var enablesEarlyData: Bool {
        get { inert.enablesEarlyData }
        set { inert.enablesEarlyData = newValue }
    }

    /// Of no effect: server and daemon speak the newest version that both have.
    public var tlsMaximumSupportedProtocolVersion: tls_protocol_version_t {
        get { inert.tlsMaximumSupportedProtocolVersion }
        set { inert.tlsMaximumSupportedProtocolVersion = newValue }
    }

    /// Refuses: an application cannot choose the proxy of the daemon, whose configuration names it.
    @available(
        *,
        unavailable,
        message: "proxies are set in stagepackd.json: httpProxy, httpsProxy, proxyExceptions"
    )
    public var connectionProxyDictionary: [AnyHashable: Any]? {
        get { preconditionFailure("unavailable") }
        set { preconditionFailure("unavailable") }
    }

    /// Refuses: the daemon does not validate DNSSEC.
    @available(*, unavailable, message: "use a resolver that validates DNSSEC, for all programs")
    public var requiresDNSSECValidation: Bool {
        get { preconditionFailure("unavailable") }
        set { preconditionFailure("unavailable") }
    }
}
