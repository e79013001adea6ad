package import StageModel

/// Configuration of an origin: its address, and the faults it injects for tests of applications.
package struct OriginConfiguration: Sendable {
    /// Host name or address to listen on; `127.0.0.1` is reachable from this machine only.
    package var host = "127.0.0.1"
    /// Port to listen on; 0 lets the system choose one.
    package var port = 0
    /// Maximum rate of each body in bytes per second; `nil` for no limit.
    ///
    /// Must be positive.
    package var bytesPerSecond: ByteCount?
    /// Number of bytes after which the first body for each path is cut off; `nil` for never.
    ///
    /// Later requests are served completely, so that resuming can be tested.
    package var dropAfter: ByteCount?
    /// Time without data after which a WebSocket connection of the echo endpoint is closed.
    package var echoIdleLimit = Duration.seconds(60)
    /// Maximum number of open WebSocket connections of the echo endpoint; others are refused with status 503.
    package var echoConnections = 64
    /// Called once per request, after the response was sent or has failed.
    package var onAccess: (@Sendable (AccessRecord) -> Void)?

    /// Creates a configuration without faults, on a port that the system chooses.
    package init() {}
}

/// Record of a request and its response.
package struct AccessRecord: Equatable, Sendable {
    /// Method, as it was sent.
    package var method: String
    /// Path of the request, as it was sent; unsafe to display without escaping.
    package var path: String
    /// Status code of the response.
    package var status: Int
    /// Number of body bytes handed to the connection.
    package var bytes: ByteCount
}

/// Address of a running origin.
package struct OriginAddress: Equatable, Sendable {
    /// Host name or address that the origin listens on.
    package var host: String
    /// Port that the origin listens on.
    package var port: Int

    /// URL of the directory, with a trailing slash: `http://127.0.0.1:8080/`.
    package var baseURL: String {
        host.contains(":") ? "http://[\(host)]:\(port)/" : "http://\(host):\(port)/"
    }
}
