import CCurl
import SystemPackage

/// What takes the answer of one exchange in.
protocol ExchangeReceiver: AnyObject {
    /// Hears that all connections are in use.
    func wait()
    /// Hears that the server is being asked.
    func connect()
    /// Decides, when the head of the answer is complete, what happens to the body.
    func receive(_ head: ResponseHead) -> BodyUse
    /// Takes the next bytes of the body, or returns `false` to end the exchange.
    func receive(_ body: Span<UInt8>) -> Bool
}

/// What happens to a body.
enum BodyUse {
    /// Its bytes are wanted.
    case take
    /// Its bytes are not wanted; a short body is read past, so that the connection can be used again.
    case skip
}

/// One request.
struct ExchangeRequest {
    var url: TransferURL
    /// Header fields, each as one line.
    var fields: [String] = []
    var priority = 0
    /// How many bytes the body is expected to have.
    var size: Int64 = 0
    /// Whether the server may be told who asks.
    var mayAuthenticate = true
}

/// How an exchange ended.
struct ExchangeEnd: Sendable {
    /// libcurl's result; `nil` if the exchange was cancelled.
    var code: CURLcode?
    /// libcurl's own words.
    var detail = ""
    /// The result of looking at the server's certificate (`X509_V_…`).
    var certificate = 0
    /// The bytes of the body that were received.
    var bytes: Int64 = 0
    /// Whether the engine ended the exchange because too little came.
    var isStalled = false

    /// Whether the answer is complete as HTTP has it.
    var isComplete: Bool { code == CURLE_OK }
}

/// One request on its way and the answer to it: the owner of an easy handle.
///
/// It belongs to the engine's thread.
@safe final class Exchange {
    let request: ExchangeRequest
    let easy: UnsafeMutableRawPointer
    let receiver: any ExchangeReceiver
    var continuation: CheckedContinuation<ExchangeEnd, Never>?
    var isRunning = false

    private(set) var bytes: Int64 = 0
    private var fields: UnsafeMutablePointer<curl_slist>?
    private let words: UnsafeMutablePointer<CChar>
    private var head: ResponseHead?
    private var use: BodyUse?
    private var skipped = 0

    /// Whether the exchange waits for bandwidth.
    var isPaused = false
    /// The bytes that all exchanges together may take; `nil` for any number.
    var budget: BandwidthBudget?
    /// When the current window of the stall rule began, and the bytes received by then.
    var window: (start: ContinuousClock.Instant, bytes: Int64)

    init(_ request: ExchangeRequest, receiver: any ExchangeReceiver, now: ContinuousClock.Instant) {
        guard let easy = unsafe curl_easy_init() else { fatalError("out of memory") }
        self.request = request
        unsafe self.easy = easy
        self.receiver = receiver
        unsafe words = .allocate(capacity: Int(CURL_ERROR_SIZE))
        unsafe words.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
        unsafe fields = nil
        window = (now, 0)
    }

    deinit {
        unsafe curl_easy_cleanup(easy)
        unsafe curl_slist_free_all(fields)
        unsafe words.deallocate()
    }

    /// Prepares the handle.
    ///
    /// - Throws: ``TransferError/unacceptable(url:_:)`` if libcurl lacks an option.
    func prepare(_ configuration: TransferConfiguration, tag: Int) throws(TransferError) {
        let url = request.url
        try check(unsafe stage_easy_set_private(easy, UnsafeMutableRawPointer(bitPattern: tag)))
        try check(unsafe stage_easy_set_error_buffer(easy, words))
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        try check(unsafe stage_easy_set_receiver(easy, takeHeader, takeBody, context))
        try set(CURLOPT_URL, url.text)
        try set(CURLOPT_USERAGENT, configuration.userAgent)
        try set(CURLOPT_PROTOCOLS_STR, "http,https")
        try set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_1_1))
        try set(CURLOPT_NOSIGNAL, 1)
        try set(CURLOPT_NOPROGRESS, 1)
        try set(CURLOPT_TCP_KEEPALIVE, 1)
        try set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
        try set(CURLOPT_CONNECTTIMEOUT_MS, configuration.connectTimeout.milliseconds)
        try set(CURLOPT_BUFFERSIZE, Int(min(max(request.size, 1 << 14), 1 << 19)))
        // Set even when empty: libcurl would ask the environment otherwise.
        let proxies = configuration.proxies
        try set(CURLOPT_PROXY, (url.scheme == "https" ? proxies.https : proxies.http) ?? "")
        try set(CURLOPT_NOPROXY, proxies.exceptions)
        if let file = configuration.certificateAuthorities {
            try set(CURLOPT_CAINFO, file.string)
        }
        try setFields(configuration)
    }

    private func setFields(_ configuration: TransferConfiguration) throws(TransferError) {
        var lines = request.fields
        if request.mayAuthenticate {
            if let netrc = configuration.netrc {
                try set(CURLOPT_NETRC, Int(CURL_NETRC_OPTIONAL.rawValue))
                try set(CURLOPT_NETRC_FILE, netrc.string)
            }
            if let token = configuration.token(for: request.url) {
                lines.append("Authorization: Bearer \(token.secret)")
            }
        }
        for line in lines {
            guard let longer = unsafe curl_slist_append(fields, line) else {
                fatalError("out of memory")
            }
            unsafe fields = longer
        }
        try check(unsafe stage_easy_set_fields(easy, fields))
    }

    private func set(_ option: CURLoption, _ value: Int) throws(TransferError) {
        try check(unsafe stage_easy_set_number(easy, option, value))
    }

    private func set(_ option: CURLoption, _ value: String) throws(TransferError) {
        try check(unsafe stage_easy_set_text(easy, option, value))
    }

    private func check(_ code: CURLcode) throws(TransferError) {
        guard code != CURLE_OK else { return }
        let detail = unsafe String(cString: curl_easy_strerror(code))
        throw .unacceptable(url: request.url.display, .library(detail))
    }

    /// What is left of the exchange when libcurl is done with it.
    func end(_ code: CURLcode?) -> ExchangeEnd {
        var end = ExchangeEnd(code: code, bytes: bytes)
        guard let code, code != CURLE_OK else { return end }
        end.detail = unsafe String(cString: words)
        if end.detail.isEmpty { end.detail = unsafe String(cString: curl_easy_strerror(code)) }
        var result = 0
        if unsafe stage_easy_number(easy, CURLINFO_SSL_VERIFYRESULT, &result) == CURLE_OK {
            end.certificate = result
        }
        return end
    }
}

extension Exchange {
    /// Takes a line of the head, or of a trailer, which is passed over.
    fileprivate func take(header line: UnsafeRawBufferPointer) -> Bool {
        guard use == nil else { return true }
        let text = unsafe String(decoding: line, as: UTF8.self)[...]
        guard let current = head, !text.hasPrefix("HTTP/") else {
            head = ResponseHead(statusLine: text)
            return head != nil
        }
        guard text.trimmingBlanks.isEmpty else {
            head?.read(text)
            return true
        }
        // Interim answers are followed by another head.
        if current.status >= 200 { use = receiver.receive(current) }
        return true
    }

    /// Takes bytes of the body; returns how many were taken, or what makes libcurl pause.
    fileprivate func take(body: UnsafeBufferPointer<UInt8>) -> Int {
        if let budget {
            guard budget.isOpen(at: .now) else {
                isPaused = true
                return Int(CURL_WRITEFUNC_PAUSE)
            }
            budget.take(body.count)
        }
        bytes += Int64(body.count)
        switch use {
        case .take:
            return receiver.receive(unsafe body.span) ? body.count : 0
        case .skip:
            skipped += body.count
            return skipped <= Self.skipLimit ? body.count : 0
        case nil:
            return 0
        }
    }

    private static let skipLimit = 1 << 16
}

private func takeHeader(
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ context: UnsafeMutableRawPointer?
) -> Int {
    guard let context = unsafe context else { return 0 }
    let exchange = unsafe Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()
    let line = unsafe UnsafeRawBufferPointer(start: bytes, count: size * count)
    return unsafe exchange.take(header: line) ? size * count : 0
}

private func takeBody(
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ context: UnsafeMutableRawPointer?
) -> Int {
    guard let context = unsafe context else { return 0 }
    let exchange = unsafe Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()
    let raw = unsafe UnsafeRawBufferPointer(start: bytes, count: size * count)
    return unsafe raw.withMemoryRebound(to: UInt8.self) { unsafe exchange.take(body: $0) }
}

extension TransferConfiguration {
    /// The token for a URL, if there is one and it may be sent there.
    func token(for url: TransferURL) -> BearerToken? {
        let isLocal = ["localhost", "127.0.0.1", "[::1]"].contains(url.host)
        guard url.scheme == "https" || isLocal else { return nil }
        return bearerTokens[url.authority] ?? bearerTokens[url.host]
    }
}

extension Duration {
    /// The whole milliseconds in the duration.
    var milliseconds: Int { Int(self / .milliseconds(1)) }
}
