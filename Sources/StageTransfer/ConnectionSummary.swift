import CCurl

/// Connection that a response came over, with the timings of its request, as measured by libcurl.
public struct ConnectionSummary: Equatable, Sendable {
    /// Time from the start of the request to the end of the DNS lookup.
    public var nameLookup: Duration
    /// Time to the end of the TCP connection setup, without TLS; `nil` for a reused connection.
    public var connect: Duration?
    /// Time to the end of the TLS handshake; `nil` without one.
    public var secureConnect: Duration?
    /// Time to the start of the transfer.
    public var requestStart: Duration
    /// Time to the first byte of the response.
    public var firstByte: Duration
    /// ALPN name of the protocol; `nil` if unknown.
    public var networkProtocol: String?
    /// Address and port of the server, or of the proxy.
    public var remote: (address: String, port: Int)
    /// Local address and port.
    public var local: (address: String, port: Int)
    /// `true` if the connection was already open.
    public var isReused: Bool
    /// Size of the request's header in bytes.
    public var requestHeaderBytes: Int64
    /// Size of the response headers in bytes, interim responses included.
    public var responseHeaderBytes: Int64

    /// Returns whether two summaries describe the same connection and timings.
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
    /// Connection and timings of the current request.
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
            remote: remote,
            local: (text(CURLINFO_LOCAL_IP), number(CURLINFO_LOCAL_PORT)),
            isReused: isReused,
            requestHeaderBytes: Int64(number(CURLINFO_REQUEST_SIZE)),
            responseHeaderBytes: Int64(number(CURLINFO_HEADER_SIZE))
        )
    }

    /// Address and port of the server, or of the proxy; empty and 0 without a connection.
    var remote: (address: String, port: Int) {
        (text(CURLINFO_PRIMARY_IP), number(CURLINFO_PRIMARY_PORT))
    }

    /// `true` if this machine no longer has the local address of the connection.
    var hasLostAddress: Bool { unsafe stage_address_is_gone(text(CURLINFO_LOCAL_IP)) != 0 }

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
        .microseconds(offset(item))
    }

    private func text(_ item: CURLINFO) -> String {
        var text: UnsafePointer<CChar>?
        guard unsafe stage_easy_text(pointer, item, &text) == CURLE_OK, let text = unsafe text
        else { return "" }
        return unsafe String(cString: text)
    }
}
