public import StageModel

/// How an origin listens, and how it misbehaves for those who test their applications.
public struct OriginConfiguration: Sendable {
    /// The name or address to listen on; `127.0.0.1` reaches no other machine.
    public var host = "127.0.0.1"
    /// The port to listen on; 0 lets the system choose one.
    public var port = 0
    /// How many bytes of a body are sent in a second on each connection; `nil` sets no limit.
    ///
    /// Must be positive.
    public var bytesPerSecond: ByteCount?
    /// After how many bytes of the first body for each path the connection is closed; `nil` never.
    ///
    /// The requests after the first are answered in full, so that resuming can be tried.
    public var dropAfter: ByteCount?
    /// Time after which a WebSocket connection of the echo is closed if nothing moves on it.
    public var echoIdleLimit = Duration.seconds(60)
    /// Number of WebSocket connections of the echo that may be open at once; others are refused with status 503.
    public var echoConnections = 64
    /// Called once for each request when its answer has been sent, or could not be.
    public var onAccess: (@Sendable (AccessRecord) -> Void)?

    /// Creates the configuration of an origin that behaves, on a port that the system chooses.
    public init() {}
}

/// One request and what became of it.
public struct AccessRecord: Equatable, Sendable {
    /// The method, as it was sent.
    public var method: String
    /// The path of the request, as it was sent: safe to show only after escaping.
    public var path: String
    /// The status of the answer.
    public var status: Int
    /// How many bytes of the body were handed to the connection.
    public var bytes: ByteCount
}

/// Where a running origin is reached.
public struct OriginAddress: Equatable, Sendable {
    /// The name or address that the origin listens on.
    public var host: String
    /// The port that it listens on.
    public var port: Int

    /// The URL of the directory, with a slash at its end: `http://127.0.0.1:8080/`.
    public var baseURL: String {
        host.contains(":") ? "http://[\(host)]:\(port)/" : "http://\(host):\(port)/"
    }
}
