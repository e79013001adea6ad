import FoundationEssentials
public import StageModel
public import SystemPackage

/// How an engine talks to servers.
///
/// Everything is said here: an engine reads no environment variable and no file of the user that is
/// not named.
public struct TransferConfiguration: Sendable {
    /// How many connections one host gets at most.
    public var connectionsPerHost = 6
    /// How many connections there are at most.
    public var connections = 16
    /// How many bytes a second all transfers together may receive; `nil` stands for no limit.
    public var bandwidth: ByteCount?
    /// How long a connection may take to come about, name lookup and TLS included.
    public var connectTimeout = Duration.seconds(30)
    /// When a transfer counts as stalled.
    public var stall = StallRule()
    /// The proxies to go through.
    public var proxies = ProxySettings()
    /// The file of certificate authorities to trust instead of the system's.
    public var certificateAuthorities: FilePath?
    /// The file of user names and passwords in the format of netrc(5); `nil` stands for none.
    ///
    /// They are sent as a ``BearerToken`` is: to their own host only, never after a redirect to another
    /// origin, and unencrypted only to this machine. So are a name and a password in a URL.
    public var netrc: FilePath?
    /// Tokens by host, in lower case, as `example.com` or `example.com:8443`.
    public var bearerTokens: [String: BearerToken] = [:]
    /// User names and passwords by host, as those of ``bearerTokens``, which take precedence.
    public var basicCredentials: [String: BasicCredential] = [:]
    /// What the engine calls itself.
    public var userAgent = "StagePack"
    /// When a failed transfer is tried again.
    public var retry = RetryPolicy()
    /// When received bytes are made to survive a power cut.
    public var checkpoint = CheckpointRule()

    /// Creates a configuration without proxies, credentials and bandwidth limit.
    public init() {}

    /// Sends a user name and password with requests to the origin of a URL.
    package mutating func add(_ credential: BasicCredential, forOriginOf url: String) {
        guard let url = try? TransferURL(url) else { return }
        basicCredentials[url.authority] = credential
    }
}

/// When a transfer counts as stalled: it received fewer than `minimum` bytes in a whole `window`.
public struct StallRule: Equatable, Sendable {
    /// How many bytes a window must bring.
    public var minimum: ByteCount
    /// How long is waited for them.
    public var window: Duration

    /// Creates a rule; by default 1 KiB/s over 60 seconds.
    public init(minimum: ByteCount = .kibibytes(60), window: Duration = .seconds(60)) {
        self.minimum = minimum
        self.window = window
    }
}

/// The proxies that requests go through; those to this machine go through none.
public struct ProxySettings: Equatable, Sendable {
    /// The proxy for http URLs, as libcurl takes it (`CURLOPT_PROXY`); `nil` stands for none.
    public var http: String?
    /// The proxy for https URLs, as libcurl takes it; `nil` stands for none.
    public var https: String?
    /// The hosts that are reached without a proxy, separated by commas, as in `NO_PROXY`.
    public var exceptions: String

    /// Creates settings; by default no proxy is used.
    public init(http: String? = nil, https: String? = nil, exceptions: String = "") {
        self.http = http
        self.https = https
        self.exceptions = exceptions
    }

    /// Reads settings from the usual variables: `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in capitals,
    /// too, except `HTTP_PROXY`.
    public init(environment: [String: String]) {
        let all = environment["all_proxy"] ?? environment["ALL_PROXY"]
        // HTTP_PROXY in capitals is what a web server sets for a header 'Proxy:' of a CGI request.
        self.init(
            http: environment["http_proxy"] ?? all,
            https: environment["https_proxy"] ?? environment["HTTPS_PROXY"] ?? all,
            exceptions: environment["no_proxy"] ?? environment["NO_PROXY"] ?? ""
        )
    }
}

/// A secret that a server takes as proof of who asks (RFC 6750).
///
/// It is sent to its own host only, never after a redirect to another origin, and unencrypted only to
/// this machine. Its description does not show it.
public struct BearerToken: Hashable, Sendable, CustomStringConvertible {
    let secret: String

    /// Creates a token from its text, or returns `nil` if that is empty or has characters that a
    /// header field cannot carry.
    public init?(_ text: String) {
        guard !text.isEmpty, text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            return nil
        }
        secret = text
    }

    /// A text that does not give the secret away.
    public var description: String { "(token)" }
}

/// A user name and a password that a server takes as proof of the client's identity (RFC 7617).
///
/// They are sent as a ``BearerToken`` is. Their description does not show them.
public struct BasicCredential: Hashable, Sendable, CustomStringConvertible {
    let user: String
    let password: String

    /// Creates a credential, or returns `nil` if the user name has a colon, or either has control characters
    /// (RFC 7617, section 2).
    public init?(user: String, password: String) {
        let isControl: (UInt8) -> Bool = { $0 < 0x20 || $0 == 0x7F }
        guard !user.utf8.contains(where: { isControl($0) || $0 == UInt8(ascii: ":") }),
            !password.utf8.contains(where: isControl)
        else { return nil }
        self.user = user
        self.password = password
    }

    /// The value of the `Authorization` field.
    package var fieldValue: String {
        "Basic \(Data("\(user):\(password)".utf8).base64EncodedString())"
    }

    /// A text that does not give the secret away.
    public var description: String { "(credential)" }
}

/// When received bytes are made to survive a power cut.
public struct CheckpointRule: Equatable, Sendable {
    /// How many new bytes there are at least, unless ``age`` has passed.
    public var size: ByteCount
    /// How long after the last checkpoint the next one is made, at the earliest.
    public var interval: Duration
    /// How long after the last checkpoint new bytes are made safe however few they are.
    public var age: Duration
    /// Content up to this size is received again rather than resumed by another process.
    public var smallest: ByteCount

    /// Creates a rule; by default a checkpoint is made for 8 MiB, not more than once a second, and
    /// every 5 seconds.
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

    /// Whether it is time for a checkpoint.
    func isDue(newBytes: Int64, sinceLast elapsed: Duration) -> Bool {
        guard newBytes > 0 else { return false }
        return elapsed >= age || newBytes >= size.rawValue && elapsed >= interval
    }
}
