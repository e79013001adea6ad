import CCurl
import Glibc
import StageModel

/// What takes the answer of one exchange in.
protocol ExchangeReceiver: AnyObject {
    /// Hears that all connections are in use.
    func wait()
    /// Hears that the server is being asked.
    func connect()
    /// Hears an interim answer of status 104: where an upload can resume.
    func receive(interim head: ResponseHead)
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

extension ExchangeReceiver {
    func receive(interim head: ResponseHead) {}
}

/// One request.
struct ExchangeRequest {
    var url: TransferURL
    var method = "GET"
    /// Header fields, each as one line.
    var fields: [String] = []
    var priority = 0
    /// How many bytes the body of the answer is expected to have.
    var size: Int64 = 0
    /// After how long without a byte the exchange ends; `nil` stands for the engine's stall rule.
    var timeout: Duration?
    /// Whether the server may be told who asks.
    var mayAuthenticate = true
    /// Whether the server may be on this machine or its link.
    var mayAskThisMachine = true
    /// Whether libcurl may send it twice: it does so by itself where a connection that had been used before ends
    /// without an answer.
    var mayRepeat = true
    /// Whether a server that does not speak TLS 1.3 is refused.
    var requiresNewestTLS = false
    /// Whether libcurl decodes the body of the answer, and offers the codings that it knows.
    var decodesContent = false
}

/// How an exchange ended.
struct ExchangeEnd: Sendable {
    /// libcurl's result; `nil` if the exchange was cancelled.
    var code: CURLcode?
    /// libcurl's own words.
    var detail = ""
    /// The result of looking at the server's certificate (`X509_V_…`).
    var certificate = 0
    /// The status with which a proxy refused to connect to the server; 0 if it did not.
    var proxyStatus = 0
    /// The bytes of the body that were received.
    var bytes: Int64 = 0
    /// The time in which too little came, if the engine ended the exchange for that.
    var stalled: Duration?
    /// Whether libcurl sent a request, or a part of one.
    var wasRequestSent = false
    /// Whether libcurl was to decode the body of the answer.
    var decodesContent = false
    /// The fault of the answer, if that ended the exchange: a fragment.
    var fault: String?

    /// Whether the answer is complete as HTTP has it.
    var isComplete: Bool { code == CURLE_OK }
}

/// One request on its way and the answer to it.
///
/// It belongs to the engine's thread.
@safe final class Exchange {
    let request: ExchangeRequest
    let receiver: any ExchangeReceiver
    /// The body of the request, if it has one.
    let source: UploadSource?
    var continuation: CheckedContinuation<ExchangeEnd, Never>?
    /// The bytes that all exchanges together may take; `nil` for any number.
    var budget: BandwidthBudget?
    /// What others must be done with before more is taken; `nil` where that is at once.
    var backlog: Backlog?
    /// When the current window of the stall rule began, and the bytes moved by then.
    var window: (start: ContinuousClock.Instant, bytes: Int64)

    /// Whether the exchange has its connection.
    private(set) var isRunning = false
    /// Whether the exchange waits for bandwidth, or for who takes its bytes.
    private(set) var isPaused = false
    private(set) var bytes: Int64 = 0
    /// The bytes that moved in either direction, heads included.
    private(set) var moved: Int64 = 0
    private var easy: EasyHandle?
    private var head: ResponseHead?
    private var use: BodyUse?
    private var skipped = 0
    /// Whether the first line of a head says no status.
    private var isStatusLineUnreadable = false
    /// Whether bytes of a body came before the head of a final answer.
    private var hasEarlyBody = false
    /// The bytes of all heads, interim ones included, and of trailers.
    private var lineBytes = 0

    init(
        _ request: ExchangeRequest,
        receiver: any ExchangeReceiver,
        source: UploadSource? = nil,
        now: ContinuousClock.Instant
    ) {
        self.request = request
        self.receiver = receiver
        self.source = source
        window = (now, 0)
    }

    /// Hands the request to libcurl; it must be taken back by ``leave(_:)`` whatever this returns.
    func start(
        on multi: UnsafeMutableRawPointer,
        _ configuration: TransferConfiguration,
        tag: Int
    ) -> CURLcode {
        isRunning = true
        var easy = EasyHandle()
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        var code = unsafe easy.prepare(for: tag, header: takeHeader, body: takeBody, context)
        if code == CURLE_OK, let source {
            code = unsafe easy.send(source.rest, read: giveBody, seek: seekBody, context)
        }
        if code == CURLE_OK { code = easy.set(request, configuration) }
        if code == CURLE_OK, unsafe curl_multi_add_handle(multi, easy.pointer) != CURLM_OK {
            code = CURLE_FAILED_INIT
        }
        self.easy = consume easy
        return code
    }

    /// Takes the request back from libcurl.
    func leave(_ multi: UnsafeMutableRawPointer) {
        isRunning = false
        guard let pointer = unsafe easy?.pointer else { return }
        // A handle that was never added is none to complain of.
        unsafe _ = curl_multi_remove_handle(multi, pointer)
    }

    /// Whether the exchange may come to wait with its connection held.
    var canPause: Bool { budget != nil || backlog != nil || source != nil }

    /// Lets an exchange go on that waits, if it need not wait any longer.
    func goOn(at now: ContinuousClock.Instant) {
        guard budget?.isOpen(at: now) ?? true, backlog?.isFull != true,
            source?.isWaiting != true
        else { return }
        isPaused = false
        guard let pointer = unsafe easy?.pointer else { return }
        // A failure ends the transfer, which its message then tells.
        unsafe _ = curl_easy_pause(pointer, CURLPAUSE_CONT)
    }

    /// What is left of the exchange when libcurl is done with it.
    func end(_ code: CURLcode?) -> ExchangeEnd {
        var end = ExchangeEnd(code: code, bytes: bytes)
        end.wasRequestSent = easy?.wasRequestSent ?? false
        end.decodesContent = request.decodesContent
        guard let code, code != CURLE_OK else {
            end.fault = fault("")
            return end
        }
        end.detail = easy?.words ?? ""
        end.fault = fault(code == CURLE_OUT_OF_MEMORY ? "Out of memory" : end.detail)
        if end.detail.isEmpty { end.detail = unsafe String(cString: curl_easy_strerror(code)) }
        end.certificate = easy?.certificateResult ?? 0
        end.proxyStatus = easy?.proxyStatus ?? 0
        return end
    }

    /// Returns what is wrong with the answer, where that ended the exchange with libcurl's words `detail`.
    private func fault(_ detail: String) -> String? {
        if lineBytes > lineLimit {
            return "its heads and trailers have more than \(lineLimit.quantity(of: "byte"))"
        }
        // libcurl keeps a line until its end has come, and gives up after 100 KiB of it in these words.
        let isLineTooLong = detail.hasPrefix("Out of memory")
        if head?.isTooLarge == true || isLineTooLong && use == nil {
            let limits = ResponseHead.limits
            return
                "its head has more than \(limits.fields.quantity(of: "field")) or \(limits.bytes.quantity(of: "byte"))"
        }
        if isLineTooLong { return "its trailers have a line of more than 102400 bytes" }
        if isStatusLineUnreadable { return "it does not begin with an HTTP status line" }
        if hasEarlyBody { return "status \(head?.status ?? 0), and no final answer after it" }
        return nil
    }
}

extension Exchange {
    /// Takes a line of the head, or of a trailer, which is passed over.
    fileprivate func take(header line: UnsafeRawBufferPointer) -> Bool {
        moved += Int64(line.count)
        lineBytes += line.count
        // libcurl keeps every line, trailers too, for as long as the exchange lasts.
        guard lineBytes <= lineLimit else { return false }
        let text = unsafe String(decoding: line, as: UTF8.self)[...]
        if use != nil {
            guard text.beginsHead else { return true }
            // libcurl asks again by itself after a 417, without the field that led to it.
            use = nil
        }
        guard let current = head, !text.beginsHead else {
            head = ResponseHead(statusLine: text)
            isStatusLineUnreadable = head == nil
            return head != nil
        }
        guard text.trimmingBlanks.isEmpty else {
            head?.read(text)
            return head?.isTooLarge != true
        }
        // Interim answers are followed by another head.
        guard current.status >= 200 else {
            if current.status == 104 { receiver.receive(interim: current) }
            return true
        }
        var final = current
        final.connection = easy?.connection
        use = receiver.receive(final)
        return true
    }

    /// Takes bytes of the body; returns how many were taken, or what makes libcurl pause.
    fileprivate func take(body: UnsafeBufferPointer<UInt8>) -> Int {
        if backlog?.isFull == true {
            isPaused = true
            return Int(CURL_WRITEFUNC_PAUSE)
        }
        if let budget {
            guard budget.isOpen(at: .now) else {
                isPaused = true
                return Int(CURL_WRITEFUNC_PAUSE)
            }
            budget.take(body.count)
        }
        bytes += Int64(body.count)
        moved += Int64(body.count)
        switch use {
        case .take:
            return receiver.receive(unsafe body.span) ? body.count : 0
        case .skip:
            skipped += body.count
            return skipped <= Self.skipLimit ? body.count : 0
        case nil:
            hasEarlyBody = true
            return 0
        }
    }

    /// Gives libcurl bytes of the request's body; returns how many there were: 0 at its end, `nil` for
    /// a body that is not what was announced, or what makes libcurl pause.
    fileprivate func give(_ buffer: UnsafeMutableRawBufferPointer) -> Int? {
        if backlog?.isHeld == true {
            isPaused = true
            return Int(CURL_READFUNC_PAUSE)
        }
        switch unsafe source?.read(into: buffer) {
        case .bytes(let count):
            moved += Int64(count)
            return count
        case .wait:
            isPaused = true
            return Int(CURL_READFUNC_PAUSE)
        case .failure, nil: return nil
        }
    }

    /// A server may tell an upload's progress in interim answers, for as long as it lasts.
    private var lineLimit: Int { Self.lineLimit + Int(source?.total ?? 0) / 256 }

    private static let skipLimit = 1 << 16
    /// The most bytes of all heads and trailers of an exchange: those of four answers.
    static let lineLimit = 4 * ResponseHead.limits.bytes
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

private func giveBody(
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ context: UnsafeMutableRawPointer?
) -> Int {
    guard let context = unsafe context else { return Int(CURL_READFUNC_ABORT) }
    let exchange = unsafe Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()
    let buffer = unsafe UnsafeMutableRawBufferPointer(start: bytes, count: size * count)
    return unsafe exchange.give(buffer) ?? Int(CURL_READFUNC_ABORT)
}

private func seekBody(
    _ context: UnsafeMutableRawPointer?,
    _ offset: curl_off_t,
    _ origin: CInt
) -> CInt {
    guard let context = unsafe context, origin == SEEK_SET else { return CURL_SEEKFUNC_FAIL }
    let exchange = unsafe Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()
    guard let source = exchange.source else { return CURL_SEEKFUNC_FAIL }
    source.seek(to: Int64(offset))
    return CURL_SEEKFUNC_OK
}
