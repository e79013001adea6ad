import CCurl

/// The connection that an answer came over, and the times of its request, as libcurl measures them.
public struct ConnectionSummary: Equatable, Sendable {
    /// The time from the start of the request to the end of the lookup of the host's name.
    public var nameLookup: Duration
    /// The time to the end of the connection's set-up, TLS excluded; `nil` for a connection that was open.
    public var connect: Duration?
    /// The time to the end of the TLS handshake; `nil` without one.
    public var secureConnect: Duration?
    /// The time to the start of the transfer.
    public var requestStart: Duration
    /// The time to the first byte of the answer.
    public var firstByte: Duration
    /// The protocol's name as in ALPN, where it is known.
    public var networkProtocol: String?
    /// The address and port that answered: the server's, or a proxy's.
    public var remote: (address: String, port: Int)
    /// The address and port of this machine.
    public var local: (address: String, port: Int)
    /// Whether the connection was open already.
    public var isReused: Bool
    /// The bytes of the request's head.
    public var requestHeaderBytes: Int64
    /// The bytes of the heads of answers, interim ones included.
    public var responseHeaderBytes: Int64

    /// Returns whether two summaries are of the same connection and times.
    public static func == (one: Self, other: Self) -> Bool {
        one.nameLookup == other.nameLookup && one.connect == other.connect
            && one.secureConnect == other.secureConnect && one.requestStart == other.requestStart
            && one.firstByte == other.firstByte && one.networkProtocol == other.networkProtocol
            && one.remote == other.remote && one.local == other.local
            && one.isReused == other.isReused
            && one.requestHeaderBytes == other.requestHeaderBytes
            && one.responseHeaderBytes == other.responseHeaderBytes
    }
}

extension EasyHandle {
    /// The connection and times of the request that is being answered.
    var connection: ConnectionSummary {
        let isReused = number(CURLINFO_NUM_CONNECTS) == 0
        let secure = time(CURLINFO_APPCONNECT_TIME_T)
        return ConnectionSummary(
            nameLookup: time(CURLINFO_NAMELOOKUP_TIME_T),
            connect: isReused ? nil : time(CURLINFO_CONNECT_TIME_T),
            secureConnect: isReused || secure == .zero ? nil : secure,
            requestStart: time(CURLINFO_PRETRANSFER_TIME_T),
            firstByte: time(CURLINFO_STARTTRANSFER_TIME_T),
            networkProtocol: networkProtocol,
            remote: (text(CURLINFO_PRIMARY_IP), number(CURLINFO_PRIMARY_PORT)),
            local: (text(CURLINFO_LOCAL_IP), number(CURLINFO_LOCAL_PORT)),
            isReused: isReused,
            requestHeaderBytes: Int64(number(CURLINFO_REQUEST_SIZE)),
            responseHeaderBytes: Int64(number(CURLINFO_HEADER_SIZE))
        )
    }

    private var networkProtocol: String? {
        switch number(CURLINFO_HTTP_VERSION) {
        case Int(CURL_HTTP_VERSION_1_0): "http/1.0"
        case Int(CURL_HTTP_VERSION_1_1): "http/1.1"
        case Int(CURL_HTTP_VERSION_2_0): "h2"
        case Int(CURL_HTTP_VERSION_3): "h3"
        default: nil
        }
    }

    private func time(_ item: CURLINFO) -> Duration {
        var microseconds: curl_off_t = 0
        let code = unsafe stage_easy_offset(pointer, item, &microseconds)
        return .microseconds(code == CURLE_OK ? Int64(microseconds) : 0)
    }

    private func text(_ item: CURLINFO) -> String {
        var text: UnsafePointer<CChar>?
        guard unsafe stage_easy_text(pointer, item, &text) == CURLE_OK, let text = unsafe text
        else { return "" }
        return unsafe String(cString: text)
    }
}
