import CCurl
import StageModel

/// Facts about the connection of a failed exchange.
struct FailedConnection: Equatable, Sendable {
    /// Host and port of a proxy.
    struct Proxy: Equatable, Sendable {
        var host: String
        var port: Int
    }

    /// Host and port of the server that the URL names.
    var server: String
    /// Port of the server.
    var serverPort: Int
    /// The configured proxy for the URL's scheme; libcurl ignores it for some hosts.
    var proxy: Proxy?
    /// `true` if the URL's scheme is https.
    var isEncrypted = false
    /// Time limit for the lookup of the name, the connection and the TLS handshake.
    var timeout = Duration.zero
    /// The last `errno` of a system call that failed; 0 without one.
    var systemError: Int32 = 0
    /// Address of the established connection; empty without one.
    var address = ""
    /// Remote port of the established connection; 0 without one.
    var port = 0
    /// `true` if the name of the server, or of the proxy, was resolved.
    var wasNameResolved = false
    /// Number of bytes of the response that are missing, if the server announced its size.
    var missing: Int64?
}

extension FailedConnection.Proxy {
    /// Parses a proxy in libcurl's syntax, `[scheme://][user:password@]host[:port]`; `nil` if it has no host.
    init?(_ text: String) {
        guard !text.isEmpty, let url = unsafe curl_url() else { return nil }
        defer { unsafe curl_url_cleanup(url) }
        let flags = UInt32(CURLU_NON_SUPPORT_SCHEME)
        let whole = text.endOfScheme == nil ? "http://\(text)" : text
        guard unsafe curl_url_set(url, CURLUPART_URL, whole, flags) == CURLUE_OK else { return nil }
        func part(_ part: CURLUPart) -> String? {
            var text: UnsafeMutablePointer<CChar>?
            guard unsafe curl_url_get(url, part, &text, 0) == CURLUE_OK, let text = unsafe text
            else { return nil }
            defer { unsafe curl_free(text) }
            return unsafe String(cString: text)
        }
        guard let host = part(CURLUPART_HOST) else { return nil }
        self.host = host
        // The default ports of proxies (CURLOPT_PROXY(3)).
        port = part(CURLUPART_PORT).flatMap { Int($0) } ?? (whole.hasPrefix("https:") ? 443 : 1080)
    }
}

extension TransferConfiguration {
    /// Returns the proxy for a URL, in libcurl's syntax; `nil` if there is none.
    func proxy(for url: TransferURL) -> String? {
        // To a proxy on another machine, a loopback address would mean the proxy itself.
        url.isLoopback ? nil : url.scheme == "https" ? proxies.https : proxies.http
    }

    /// Returns whether libcurl may look up a name for a request: neither the server nor the proxy may have one, because
    /// libcurl decides which of them it connects to.
    func mayLookUpName(for url: TransferURL) -> Bool {
        let proxy = proxy(for: url).flatMap { FailedConnection.Proxy($0) }
        return [url.host, proxy?.host].contains { host in
            host.map { unsafe stage_is_numeric($0) == 0 } ?? false
        }
    }
}

extension EasyHandle {
    /// Returns the result of an exchange that libcurl ended with an error.
    func end(
        _ code: CURLcode,
        of url: TransferURL,
        configuration: TransferConfiguration
    ) -> ExchangeEnd {
        var end = ExchangeEnd(code: code)
        end.detail = errorMessage
        if end.detail.isEmpty { end.detail = unsafe String(cString: curl_easy_strerror(code)) }
        end.wasRequestSent = wasRequestSent
        end.certificate = certificateResult
        end.proxyStatus = proxyStatus
        var failed = FailedConnection(server: url.authority, serverPort: Int(url.port) ?? 0)
        failed.proxy = configuration.proxy(for: url).flatMap { FailedConnection.Proxy($0) }
        failed.isEncrypted = url.scheme == "https"
        failed.timeout = configuration.connectTimeout
        failed.systemError = Int32(clamping: number(CURLINFO_OS_ERRNO))
        (failed.address, failed.port) = remote
        failed.wasNameResolved = wasNameResolved
        let announced = offset(CURLINFO_CONTENT_LENGTH_DOWNLOAD_T)
        let received = offset(CURLINFO_SIZE_DOWNLOAD_T)
        failed.missing = announced > received ? announced - received : nil
        end.connection = failed
        return end
    }
}
