import CCurl
import StageModel
import StageSystem
import SystemPackage

/// Owner of a libcurl easy handle and of the memory that it refers to.
@safe struct EasyHandle: ~Copyable {
    let pointer: UnsafeMutableRawPointer
    private var fields: UnsafeMutablePointer<curl_slist>?
    private let message: UnsafeMutablePointer<CChar>

    init() {
        guard let pointer = unsafe curl_easy_init() else { fatalError("out of memory") }
        unsafe self.pointer = pointer
        unsafe fields = nil
        unsafe message = .allocate(capacity: Int(CURL_ERROR_SIZE))
        unsafe message.initialize(to: 0)
    }

    deinit {
        unsafe curl_easy_cleanup(pointer)
        unsafe curl_slist_free_all(fields)
        unsafe message.deallocate()
    }

    /// libcurl's error message; empty if there is none.
    var errorMessage: String { unsafe String(cString: message) }

    /// Verification result of the certificate of the server, or of the proxy (`X509_V_…`); 0 if both are valid.
    var certificateResult: Int {
        let result = number(CURLINFO_SSL_VERIFYRESULT)
        return result == 0 ? number(CURLINFO_PROXY_SSL_VERIFYRESULT) : result
    }

    /// Status of a proxy's response to CONNECT; 0 if there was none.
    var proxyStatus: Int { number(CURLINFO_HTTP_CONNECTCODE) }

    /// `true` if at least a part of the request was sent.
    var wasRequestSent: Bool { number(CURLINFO_REQUEST_SIZE) > 0 }

    /// `true` if the name of the server, or of the proxy, was resolved.
    var wasNameResolved: Bool { offset(CURLINFO_NAMELOOKUP_TIME_T) > 0 }

    /// Makes the end of the request wait for the lookup of a name; returns libcurl's error.
    mutating func waitForLookup() -> CURLcode {
        unsafe stage_easy_set_number(pointer, CURLOPT_QUICK_EXIT, 0)
    }

    func number(_ item: CURLINFO) -> Int {
        var result = 0
        let code = unsafe stage_easy_number(pointer, item, &result)
        return code == CURLE_OK ? result : 0
    }

    func offset(_ item: CURLINFO) -> Int64 {
        var result: curl_off_t = 0
        let code = unsafe stage_easy_offset(pointer, item, &result)
        return code == CURLE_OK ? Int64(result) : 0
    }

    /// Sets the handle's tag, its callbacks for the response, and the context that they receive.
    mutating func prepare(
        for tag: Int,
        header: curl_write_callback,
        body: curl_write_callback,
        context: UnsafeMutableRawPointer
    ) -> CURLcode {
        var code = unsafe stage_easy_set_private(pointer, UnsafeMutableRawPointer(bitPattern: tag))
        if code == CURLE_OK { code = unsafe stage_easy_set_error_buffer(pointer, message) }
        if code == CURLE_OK {
            code = unsafe stage_easy_set_receiver(pointer, header, body, context)
        }
        return code
    }

    /// Sets the callbacks that read the request's body, and its size.
    mutating func send(
        size: Int64,
        read: curl_read_callback,
        seek: curl_seek_callback,
        context: UnsafeMutableRawPointer
    ) -> CURLcode {
        let code = unsafe stage_easy_set_sender(pointer, read, seek, context, curl_off_t(size))
        guard code == CURLE_OK else { return code }
        // libcurl sends 'Expect: 100-continue' before a larger body, so that it receives a refusal or a redirect
        // before it has sent the whole body, and before the server resets the connection. A server that ignores the
        // field sends nothing: this limits the wait for it, once in an attempt.
        return unsafe stage_easy_set_number(pointer, CURLOPT_EXPECT_100_TIMEOUT_MS, 1000)
    }

    /// Sets all options of the request; returns libcurl's first error.
    ///
    /// Without `keepsConnection`, the request uses a new connection, which is closed after it.
    mutating func set(
        _ request: ExchangeRequest,
        configuration: TransferConfiguration,
        keepsConnection: Bool = true
    ) -> CURLcode {
        var options = Options(request, configuration: configuration)
        if !keepsConnection {
            options.numbers += [(CURLOPT_FRESH_CONNECT, 1), (CURLOPT_FORBID_REUSE, 1)]
            // As for a request that may not be repeated (``Options``).
            if request.mayRepeat { options.fields.append("Expect:") }
        }
        for (option, value) in options.numbers {
            let code = unsafe stage_easy_set_number(pointer, option, value)
            if code != CURLE_OK { return code }
        }
        for (option, value) in options.texts {
            let code = unsafe stage_easy_set_text(pointer, option, value)
            if code != CURLE_OK { return code }
        }
        for line in options.fields {
            guard let longer = unsafe curl_slist_append(fields, line) else {
                return CURLE_OUT_OF_MEMORY
            }
            unsafe fields = longer
        }
        if request.url.isLoopback {
            // The name of a loopback host may resolve to another machine's address: refuse such a connection.
            let code = unsafe stage_easy_set_prerequest(pointer) { _, address, _, _, _ in
                let isLoopback = unsafe address.map {
                    unsafe ManifestTrust.isLoopbackAddress(String(cString: $0))
                }
                return isLoopback == true ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
            }
            if code != CURLE_OK { return code }
        }
        if !request.allowsLocalAddresses {
            let code = denyLocalAddresses(request.url, configuration: configuration)
            if code != CURLE_OK { return code }
        }
        if let user = request.user {
            let code = unsafe stage_easy_open_sockets_as(pointer, user)
            if code != CURLE_OK { return code }
        }
        return unsafe stage_easy_set_fields(pointer, fields)
    }
}

extension EasyHandle {
    /// Refuses a request to an address of this machine or its link, and connections to one; a name that a proxy
    /// resolves is not checked.
    private mutating func denyLocalAddresses(
        _ url: TransferURL,
        configuration: TransferConfiguration
    ) -> CURLcode {
        guard unsafe stage_is_this_machine(url.host) == 0 else {
            return CURLE_ABORTED_BY_CALLBACK
        }
        var port: Int?
        if let proxy = configuration.proxy(for: url), !proxy.isEmpty {
            guard configuration.proxies.mayBypass(url.host) else { return CURLE_OK }
            // libcurl may connect to the proxy or to the server: the port of the connection tells which, unless both
            // have the same.
            port = FailedConnection.Proxy(proxy)?.port
            if port == Int(url.port) { port = nil }
        }
        return unsafe stage_easy_refuse_this_machine(pointer, port ?? 0)
    }

    /// Makes libcurl open a connection that the caller then uses; returns libcurl's first error.
    mutating func setConnectOnly(
        to url: TransferURL,
        configuration: TransferConfiguration,
        requiresNewestTLS: Bool
    ) -> CURLcode {
        var request = ExchangeRequest(url: url)
        request.requiresNewestTLS = requiresNewestTLS
        var code = set(request, configuration: configuration)
        if code == CURLE_OK {
            code = unsafe stage_easy_set_number(pointer, CURLOPT_CONNECT_ONLY, 1)
        }
        // The proxy opens a tunnel even for a server without TLS.
        guard code == CURLE_OK else { return code }
        return unsafe stage_easy_set_number(pointer, CURLOPT_HTTPPROXYTUNNEL, 1)
    }
}

/// libcurl options of a request.
private struct Options {
    var numbers: [(CURLoption, Int)]
    var texts: [(CURLoption, String)]
    var fields: [String]

    init(_ request: ExchangeRequest, configuration: TransferConfiguration) {
        let url = request.url
        let proxies = configuration.proxies
        fields = request.fields
        let oldest =
            request.requiresNewestTLS ? CURL_SSLVERSION_TLSv1_3 : CURL_SSLVERSION_TLSv1_2
        numbers = [
            (CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1)),
            (CURLOPT_NOSIGNAL, 1),
            (CURLOPT_NOPROGRESS, 1),
            // Without this option, the end of a request waits for the resolver, and all requests of the thread wait with it.
            (CURLOPT_QUICK_EXIT, 1),
            (CURLOPT_TCP_KEEPALIVE, 1),
            (CURLOPT_SUPPRESS_CONNECT_HEADERS, 1),
            // Overrides the minimum version of the system's OpenSSL configuration.
            (CURLOPT_SSLVERSION, Int(oldest)),
            (CURLOPT_PROXY_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2)),
            (CURLOPT_MAXAGE_CONN, ConnectionOwners.idleSeconds),
            (CURLOPT_CONNECTTIMEOUT_MS, Int(configuration.connectTimeout.wholeMilliseconds)),
            (CURLOPT_BUFFERSIZE, Int(min(max(request.size, 1 << 14), 1 << 19))),
        ]
        if !request.mayRepeat {
            numbers.append((CURLOPT_FRESH_CONNECT, 1))
            // After a 417, libcurl repeats the request over any connection.
            fields.append("Expect:")
        }
        texts = [
            (CURLOPT_URL, url.isConfidential ? url.text : url.display),
            (CURLOPT_USERAGENT, configuration.userAgent),
            (CURLOPT_PROTOCOLS_STR, "http,https"),
            // Set even when empty: libcurl would read the environment otherwise.
            (CURLOPT_PROXY, configuration.proxy(for: url) ?? ""),
            (CURLOPT_NOPROXY, proxies.exceptions),
        ]
        if let file = configuration.certificateAuthorities {
            texts.append((CURLOPT_CAINFO, file.string))
            // libcurl verifies a proxy with authorities of its own.
            texts.append((CURLOPT_PROXY_CAINFO, file.string))
        }
        // An empty string stands for all codings that libcurl was built with.
        if request.decodesContent { texts.append((CURLOPT_ACCEPT_ENCODING, "")) }
        setMethod(request.method)
        guard request.mayAuthenticate, url.isConfidential else { return }
        if let netrc = configuration.netrc {
            numbers.append((CURLOPT_NETRC, Int(CURL_NETRC_OPTIONAL.rawValue)))
            texts.append((CURLOPT_NETRC_FILE, netrc.string))
        }
        if let value = configuration.authorization(for: url) {
            fields.append("Authorization: \(value)")
        }
    }

    private mutating func setMethod(_ method: String) {
        switch method {
        case "GET": break
        case "HEAD": numbers.append((CURLOPT_NOBODY, 1))
        default: texts.append((CURLOPT_CUSTOMREQUEST, method))
        }
    }
}

extension TransferConfiguration {
    /// Returns the value of the `Authorization` field for a URL, if there are credentials that may be sent there.
    func authorization(for url: TransferURL) -> String? {
        guard url.isConfidential else { return nil }
        if let token = bearerTokens[url.authority] ?? bearerTokens[url.host] {
            return "Bearer \(token.secret)"
        }
        return (basicCredentials[url.authority] ?? basicCredentials[url.host])?.fieldValue
    }
}
