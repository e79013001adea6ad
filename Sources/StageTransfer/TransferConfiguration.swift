import FoundationEssentials
public import StageModel
public import SystemPackage

/// Settings of a transfer engine.
///
/// An engine reads no environment variables and, of the user's files, only those that are named here.
public struct TransferConfiguration: Sendable {
    /// Maximum number of connections to one host.
    public var connectionsPerHost = 6
    /// Maximum number of connections in total.
    public var connections = 16
    /// Indicates whether a host that refuses some of several requests (429, 503) gets fewer at a time.
    package var adaptsConnections = true
    /// Indicates whether a delay that a host asks a transfer for (429 or 503 with `Retry-After`) holds for the others, too.
    package var sharesDelays = true
    /// Maximum number of bytes per second that all transfers together receive; `nil` for no limit.
    public var bandwidth: ByteCount?
    /// Time limit for opening a connection, name lookup and TLS included.
    public var connectTimeout = Duration.seconds(30)
    /// Rule by which a transfer counts as stalled.
    public var stall = StallRule()
    /// Proxies to use.
    public var proxies = ProxySettings()
    /// File of certificate authorities that replaces the system's.
    public var certificateAuthorities: FilePath?
    /// File of user names and passwords in the format of netrc(5); `nil` for none.
    ///
    /// They are sent as a ``BearerToken`` is: to their own host only, never after a redirect to another origin, and
    /// unencrypted only to this machine. The same applies to a name and a password in a URL.
    public var netrc: FilePath?
    /// Tokens by host, in lower case, such as `example.com` or `example.com:8443`.
    public var bearerTokens: [String: BearerToken] = [:]
    /// User names and passwords by host, as in ``bearerTokens``, which take precedence.
    public var basicCredentials: [String: BasicCredential] = [:]
    /// Value of the `User-Agent` field.
    public var userAgent = "StagePack"
    /// Schedule of retries.
    public var retry = RetryPolicy()
    /// Rule by which received bytes are made durable.
    public var checkpoint = CheckpointRule()

    /// Creates a configuration without proxies, credentials and bandwidth limit.
    public init() {}

    /// Adds a user name and password for requests to the origin of a URL.
    package mutating func add(_ credential: BasicCredential, forOriginOf url: String) {
        guard let url = try? TransferURL(url) else { return }
        basicCredentials[url.authority] = credential
    }
}

/// Rule for stalled transfers: fewer than `minimum` bytes within a whole `window`, or none for that long.
///
/// If fewer than `minimum` bytes of a body are missing, a tenth of the body in each window suffices, so that a short document
/// arrives over any slow link, and a server can delay it by ten windows at most. The first `minimum` bytes of a body whose size
/// is unknown may arrive at any rate, but for ten windows at most, too.
public struct StallRule: Equatable, Sendable {
    /// Minimum number of bytes within a window.
    public var minimum: ByteCount
    /// Length of a window.
    public var window: Duration

    /// Creates a rule; by default 1 KiB/s over 60 seconds.
    public init(minimum: ByteCount = .kibibytes(60), window: Duration = .seconds(60)) {
        self.minimum = minimum
        self.window = window
    }

    /// Returns the number of bytes that must arrive in a window, for a body of `size` bytes of which `missing` had not
    /// arrived when the window began.
    func minimum(ofBody size: Int64, missing: Int64) -> Int64 {
        guard missing < minimum.rawValue else { return minimum.rawValue }
        return max(min(size, minimum.rawValue) / Int64(Self.maximumSlowWindows), 1)
    }

    /// Returns the number of bytes that must arrive in a window of a body of unknown size, which was preceded by a number of
    /// other windows and `received` bytes of the body.
    func minimum(afterWindows count: Int, received: Int64) -> Int64 {
        count < Self.maximumSlowWindows && received < minimum.rawValue ? 1 : minimum.rawValue
    }

    /// Maximum number of windows in which a short body arrives.
    private static let maximumSlowWindows = 10
}

/// Proxies for requests; requests to this machine use none.
public struct ProxySettings: Equatable, Sendable {
    /// Proxy for http URLs, in libcurl's syntax (`CURLOPT_PROXY`); `nil` for none.
    public var http: String?
    /// Proxy for https URLs, in libcurl's syntax; `nil` for none.
    public var https: String?
    /// Hosts that are reached without a proxy, separated by commas, as in `NO_PROXY`.
    public var exceptions: String

    /// Creates settings; by default no proxy is used.
    public init(http: String? = nil, https: String? = nil, exceptions: String = "") {
        self.http = http
        self.https = https
        self.exceptions = exceptions
    }

    /// Creates settings from the configuration file of the command.
    package init(_ settings: CommandSettings) {
        self.init(
            http: settings.httpProxy,
            https: settings.httpsProxy,
            exceptions: settings.proxyExceptions ?? ""
        )
    }

    /// Creates settings from the usual environment variables: `http_proxy`, `https_proxy`, `all_proxy` and
    /// `no_proxy`, also in capitals except for `HTTP_PROXY`; `default` has those that no variable sets.
    public init(environment: [String: String], default settings: ProxySettings = ProxySettings()) {
        func proxy(_ names: [String]) -> String? {
            names.lazy.compactMap { environment[$0] }.first
        }
        self.init(
            http: proxy(Self.httpVariables) ?? settings.http,
            https: proxy(Self.httpsVariables) ?? settings.https,
            exceptions: environment["no_proxy"] ?? environment["NO_PROXY"] ?? settings.exceptions
        )
    }

    // A web server sets HTTP_PROXY from the field 'Proxy' of a request to a CGI program.
    private static let httpVariables = ["http_proxy", "all_proxy", "ALL_PROXY"]
    private static let httpsVariables = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]

    /// The variables of the proxy for http URLs, and of that for https URLs; the first that is set has effect.
    package static let variables = [httpVariables, httpsVariables]

    /// Returns whether requests to a host may bypass the proxy (CURLOPT_NOPROXY(3)).
    ///
    /// Returns `true` for every numeric address if there are exceptions, because an exception may be a network, which this
    /// method does not compare.
    func mayBypass(_ host: String) -> Bool {
        let items = exceptions.lowercased().split { $0 == "," || $0.isWhitespace }
        let isAddress = host.hasSuffix("]") || IPAddress(ipv4: host) != nil
        return items.contains { item in
            let name = item.drop { $0 == "." || $0 == "*" }
            return isAddress || name.isEmpty || host == name || host.hasSuffix(".\(name)")
        }
    }
}

/// A secret by which a client authenticates to a server (RFC 6750).
///
/// It is sent to its own host only, never after a redirect to another origin, and unencrypted only to this machine.
/// Its description does not reveal it.
public struct BearerToken: Hashable, Sendable, CustomStringConvertible {
    let secret: String

    /// Creates a token from its text; `nil` if the text is empty or has characters that a header field cannot carry.
    public init?(_ text: String) {
        guard !text.isEmpty, text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            return nil
        }
        secret = text
    }

    /// Text that does not reveal the secret.
    public var description: String { "(token)" }
}

/// A user name and a password by which a client authenticates to a server (RFC 7617).
///
/// They are sent as a ``BearerToken`` is. Their description does not reveal them.
public struct BasicCredential: Hashable, Sendable, CustomStringConvertible {
    let user: String
    let password: String

    /// Creates a credential; `nil` if the user name has a colon, or either has control characters (RFC 7617, section
    /// 2).
    public init?(user: String, password: String) {
        let isControl: (UInt8) -> Bool = { $0 < 0x20 || $0 == 0x7F }
        guard !user.utf8.contains(where: { isControl($0) || $0 == UInt8(ascii: ":") }),
            !password.utf8.contains(where: isControl)
        else { return nil }
        self.user = user
        self.password = password
    }

    /// Value of the `Authorization` field.
    package var fieldValue: String {
        "Basic \(Data("\(user):\(password)".utf8).base64EncodedString())"
    }

    /// Text that does not reveal the secret.
    public var description: String { "(credential)" }
}

/// Rule by which received bytes are synced to disk, so that they survive a power loss.
public struct CheckpointRule: Equatable, Sendable {
    /// Number of new bytes that triggers a checkpoint.
    public var size: ByteCount
    /// Minimum time between two checkpoints.
    public var interval: Duration
    /// Time after which new bytes are synced however few they are.
    public var age: Duration
    /// Size up to which content is downloaded again instead of resumed by another process.
    public var smallest: ByteCount

    /// Creates a rule; by default a checkpoint follows 8 MiB of new bytes, at most once a second, and at the latest
    /// after 5 seconds.
    public init(
        size: ByteCount = .mebibytes(8),
        interval: Duration = .seconds(1),
        age: Duration = .seconds(5),
        smallest: ByteCount = .kibibytes(256)
    ) {
        self.size = size
        self.interval = interval
        self.age = age
        self.smallest = smallest
    }

    /// Returns whether a checkpoint is due.
    func isDue(newBytes: Int64, sinceLast elapsed: Duration) -> Bool {
        guard newBytes > 0 else { return false }
        return elapsed >= age || newBytes >= size.rawValue && elapsed >= interval
    }
}
