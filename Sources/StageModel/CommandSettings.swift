/// Settings of the command `stagepack` for all users of a machine, from its configuration file.
///
/// A setting that is `nil` has the command's default. Options and environment variables take precedence.
public struct CommandSettings: Hashable, Sendable {
    /// Proxy for http URLs, in libcurl's syntax.
    public var httpProxy: String?
    /// Proxy for https URLs, in libcurl's syntax.
    public var httpsProxy: String?
    /// Hosts that are reached without a proxy, separated by commas.
    public var proxyExceptions: String?
    /// Absolute path of a file with the certificate authorities that replace the system's.
    public var certificateAuthorities: String?
    /// Maximum number of bytes per second that all transfers of a command together receive.
    public var bandwidth: ByteCount?
    /// Time limit of a run in the hook of a package manager.
    public var hookTimeLimit: Duration?
    /// Network and power conditions for periodic runs, overriding those of each application's registration.
    public var updateConditions: UpdateConditions?

    /// Maximum size of a configuration file.
    public static let byteLimit = 64 << 10

    /// Creates settings without a value.
    public init() {}
}
