import CCurl
import Glibc
import StageModel

/// Receives the response of one exchange.
protocol ExchangeReceiver: AnyObject {
    /// Called when all connections are in use.
    func wait()
    /// Called when the request is sent.
    func connect()
    /// Receives an interim response of status 104, which names the URL at which an upload can resume.
    func receive(interim head: ResponseHead)
    /// Receives the complete head of a response, and decides whether to read the body.
    func receive(_ head: ResponseHead) -> BodyUse
    /// Receives the next bytes of the body; returns `false` to end the exchange.
    func receive(_ body: Span<UInt8>) -> Bool
    /// Called twice a second or more often; reports the bytes that were not reported yet.
    func reportProgress()
}

/// Decision about the body of a response.
enum BodyUse {
    /// Pass the bytes to the receiver.
    case take
    /// Discard the bytes; libcurl reads a short body to its end, so that the connection can be reused.
    case skip
}

extension ExchangeReceiver {
    func receive(interim head: ResponseHead) {}
}

/// An HTTP request.
struct ExchangeRequest {
    var url: TransferURL
    var method = "GET"
    /// Header fields, each as one line.
    var fields: [String] = []
    var priority = 0
    /// User on whose behalf the request is sent; `nil` for the process's own.
    var user: UInt32?
    /// Expected size of the response body in bytes.
    var size: Int64 = 0
    /// Time without a byte after which the exchange ends; `nil` applies the engine's stall rule.
    var timeout: Duration?
    /// `true` if the engine's credentials may be sent.
    var mayAuthenticate = true
    /// `true` if the server may be on this machine or its link.
    var allowsLocalAddresses = true
    /// `true` if libcurl may send the request twice: it does so by itself if a reused connection closes without a
    /// response.
    var mayRepeat = true
    /// `true` to require TLS 1.3.
    var requiresNewestTLS = false
    /// `true` if libcurl decodes the response body, and offers the codings that it supports.
    var decodesContent = false
}

/// A request in progress and its response.
///
/// Used on the engine's thread only.
@safe final class Exchange {
    let request: ExchangeRequest
    let receiver: any ExchangeReceiver
    /// The body of the request, if it has one.
    let source: UploadSource?
    var continuation: CheckedContinuation<ExchangeEnd, Never>?
    /// Bandwidth that all exchanges share; `nil` for no limit.
    var budget: BandwidthBudget?
    /// Limit on received and unprocessed bytes; `nil` if the receiver processes bytes at once.
    var receiveWindow: ReceiveWindow?
    /// Makes the engine resume paused exchanges; callable from any thread.
    var wake: @Sendable () -> Void = {}
    /// Start of the current window of the stall rule, and the bytes transferred by then; before the exchange has a connection, the start
    /// of its wait for earlier lookups.
    var window: (start: SuspendingClock.Instant, bytes: Int64)
    /// Number of windows that have ended.
    var windows = 0
    /// `true` if the exchange may use a kept connection, and its own is kept (``ConnectionOwners``).
    var keepsConnection = true
    /// Time of the last check that found new bytes, and the bytes transferred by then.
    var lastActivity: (time: SuspendingClock.Instant, bytes: Int64)

    /// `true` while the exchange has a connection.
    private(set) var isRunning = false
    /// `true` while the exchange waits for bandwidth, the consumer, or the body of the request.
    private(set) var isPaused = false
    /// `true` while the exchange waits for bandwidth, which becomes available as time passes.
    private(set) var isThrottled = false
    private(set) var bytes: Int64 = 0
    /// Bytes transferred in both directions, heads included.
    private(set) var moved: Int64 = 0
    private var easy: EasyHandle?
    private var configuration = TransferConfiguration()
    private var head: ResponseHead?
    private var use: BodyUse?
    private var skipped = 0
    /// `true` if the first line of a head is not an HTTP status line.
    private var isStatusLineUnreadable = false
    /// `true` if a line of a head or of a trailer has too many combining characters in a row.
    private var hasLongCombiningSequence = false
    /// `true` if body bytes arrived before the head of a final response.
    private var hasEarlyBody = false
    /// Size in bytes of all heads, interim ones included, and of trailers.
    private var lineBytes = 0

    init(
        _ request: ExchangeRequest,
        receiver: any ExchangeReceiver,
        source: UploadSource? = nil,
        now: SuspendingClock.Instant
    ) {
        self.request = request
        self.receiver = receiver
        self.source = source
        window = (now, 0)
        lastActivity = (now, 0)
    }

    /// Adds the request to libcurl's multi handle.
    ///
    /// The caller must call ``remove(from:)`` also after an error. That call does not wait for the lookup of a name.
    func start(
        on multi: UnsafeMutableRawPointer,
        configuration: TransferConfiguration,
        tag: Int
    ) -> CURLcode {
        isRunning = true
        self.configuration = configuration
        var easy = EasyHandle()
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        var code = unsafe easy.prepare(
            for: tag,
            header: takeHeader,
            body: takeBody,
            context: context
        )
        if code == CURLE_OK, let source {
            code = unsafe easy.send(
                size: source.bodySize,
                read: giveBody,
                seek: seekBody,
                context: context
            )
        }
        if code == CURLE_OK {
            code = easy.set(
                request,
                configuration: configuration,
                keepsConnection: keepsConnection
            )
        }
        if code == CURLE_OK, unsafe curl_multi_add_handle(multi, easy.pointer) != CURLM_OK {
            code = CURLE_FAILED_INIT
        }
        self.easy = consume easy
        return code
    }

    /// Removes the request from libcurl's multi handle.
    func remove(from multi: UnsafeMutableRawPointer) {
        isRunning = false
        receiveWindow?.stopWaiting(self)
        guard let pointer = unsafe easy?.pointer else { return }
        // The call fails for a handle that was never added, which is harmless.
        unsafe _ = curl_multi_remove_handle(multi, pointer)
    }

    /// Status of the final response; `nil` before its head is complete.
    var status: Int? { use == nil ? nil : head?.status }

    /// Size of the request's body, or of the response's once its head is complete, and the bytes not yet transferred.
    var body: (size: Int64, missing: Int64)? {
        guard use != nil else { return source.map { (size: $0.bodySize, missing: $0.unread) } }
        guard let size = head?.bodyLength else { return nil }
        return (size: size, missing: max(size - bytes, 0))
    }

    /// `true` if the exchange ends, with this result, while the name of the server or of the proxy is looked up.
    func isLookingUp(at code: CURLcode?) -> Bool {
        (code == nil || code == CURLE_OPERATION_TIMEDOUT) && easy?.wasNameResolved == false
            && configuration.mayLookUpName(for: request.url)
    }

    /// `true` if this machine no longer has the local address of the connection.
    var hasLostAddress: Bool { easy?.hasLostAddress ?? false }

    /// `true` if the exchange can pause while it keeps its connection.
    var canPause: Bool { budget != nil || receiveWindow != nil || source != nil }

    /// Resumes a paused exchange unless there is still a reason to pause.
    func resumeIfPossible(at now: SuspendingClock.Instant) {
        isThrottled = false
        guard mayReceive(), source?.isWaiting != true else { return }
        guard budget?.isOpen(at: now) ?? true else {
            isThrottled = true
            return
        }
        isPaused = false
        guard let pointer = unsafe easy?.pointer else { return }
        // A failure ends the transfer, and libcurl's message reports it.
        unsafe _ = curl_easy_pause(pointer, CURLPAUSE_CONT)
    }

    /// Returns whether the receive window is open; otherwise the window wakes the engine when it opens.
    private func mayReceive() -> Bool {
        receiveWindow?.isOpen(for: self, orElse: wake) ?? true
    }

    /// Returns the result of the exchange, given libcurl's result code.
    func end(_ code: CURLcode?) -> ExchangeEnd {
        var end = ExchangeEnd(code: code)
        if let code, code != CURLE_OK {
            end = easy?.end(code, of: request.url, configuration: configuration) ?? end
            end.fault = fault(code == CURLE_OUT_OF_MEMORY ? "Out of memory" : end.detail)
        } else {
            end.wasRequestSent = easy?.wasRequestSent ?? false
            end.fault = fault("")
        }
        end.bytes = bytes
        end.decodesContent = request.decodesContent
        return end
    }

    /// Returns a description of the fault in the response, if one ended the exchange with libcurl's message `detail`.
    private func fault(_ detail: String) -> String? {
        if lineBytes > lineLimit {
            return "its heads and trailers have more than \(lineLimit.quantity(of: "byte"))"
        }
        // libcurl buffers a line until its end, and gives up after 100 KiB with this message.
        let isLineTooLong = detail.hasPrefix("Out of memory")
        if head?.isTooLarge == true || isLineTooLong && use == nil {
            let limits = ResponseHead.limits
            return
                "its head has more than \(limits.fields.quantity(of: "field")) or \(limits.bytes.quantity(of: "byte"))"
        }
        if isLineTooLong { return "its trailers have a line of more than 102400 bytes" }
        if hasLongCombiningSequence {
            return "its head has more than \(CombiningSequence.limit) combining characters in a row"
        }
        if isStatusLineUnreadable { return "it does not begin with an HTTP status line" }
        if hasEarlyBody { return "status \(head?.status ?? 0), and no final answer after it" }
        return nil
    }
}

extension Exchange {
    /// Processes a line of a head or of a trailer; trailers are ignored.
    fileprivate func take(header line: UnsafeRawBufferPointer) -> Bool {
        moved += Int64(line.count)
        lineBytes += line.count
        // libcurl keeps every line, trailers too, for as long as the exchange lasts.
        guard lineBytes <= lineLimit else { return false }
        let text = unsafe String(decoding: line, as: UTF8.self)[...]
        hasLongCombiningSequence = CombiningSequence.exceedsLimit(in: text)
        guard !hasLongCombiningSequence else { return false }
        if use != nil {
            guard text.beginsHead else { return true }
            // After a 417, libcurl repeats the request by itself, without the 'Expect' field.
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
        // Another head follows an interim response.
        guard current.status >= 200 else {
            if current.status == 104 { receiver.receive(interim: current) }
            return true
        }
        var final = current
        final.connection = easy?.connection
        use = receiver.receive(final)
        // Windows that ended while the request was sent do not count for the rate of the response.
        windows = 0
        return true
    }

    /// Processes body bytes; returns their number, or the constant that makes libcurl pause.
    fileprivate func take(body: UnsafeBufferPointer<UInt8>) -> Int {
        guard mayReceive() else {
            isPaused = true
            return Int(CURL_WRITEFUNC_PAUSE)
        }
        if let budget {
            guard budget.isOpen(at: .now) else {
                (isPaused, isThrottled) = (true, true)
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

    /// Reads bytes of the request's body for libcurl; returns their number, 0 at the end, the constant that makes
    /// libcurl pause, or `nil` if the body differs from what was announced.
    fileprivate func give(_ buffer: UnsafeMutableRawBufferPointer) -> Int? {
        if receiveWindow?.isPaused == true, !mayReceive() {
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

    /// Limit on the bytes of heads and trailers: it grows with an upload, whose progress a server may report in
    /// interim responses.
    private var lineLimit: Int { Self.lineLimit + Int(source?.total ?? 0) / 256 }

    private static let skipLimit = 1 << 16
    /// Maximum size of all heads and trailers of an exchange: that of four responses.
    static let lineLimit = 4 * ResponseHead.limits.bytes
}

private func takeHeader(
    bytes: UnsafeMutablePointer<CChar>?,
    size: Int,
    count: Int,
    context: UnsafeMutableRawPointer?
) -> Int {
    guard let context = unsafe context else { return 0 }
    let exchange = unsafe Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()
    let line = unsafe UnsafeRawBufferPointer(start: bytes, count: size * count)
    return unsafe exchange.take(header: line) ? size * count : 0
}

private func takeBody(
    bytes: UnsafeMutablePointer<CChar>?,
    size: Int,
    count: Int,
    context: UnsafeMutableRawPointer?
) -> Int {
    guard let context = unsafe context else { return 0 }
    let exchange = unsafe Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()
    let raw = unsafe UnsafeRawBufferPointer(start: bytes, count: size * count)
    return unsafe raw.withMemoryRebound(to: UInt8.self) { unsafe exchange.take(body: $0) }
}

private func giveBody(
    bytes: UnsafeMutablePointer<CChar>?,
    size: Int,
    count: Int,
    context: UnsafeMutableRawPointer?
) -> Int {
    guard let context = unsafe context else { return Int(CURL_READFUNC_ABORT) }
    let exchange = unsafe Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()
    let buffer = unsafe UnsafeMutableRawBufferPointer(start: bytes, count: size * count)
    return unsafe exchange.give(buffer) ?? Int(CURL_READFUNC_ABORT)
}

private func seekBody(
    context: UnsafeMutableRawPointer?,
    offset: curl_off_t,
    origin: CInt
) -> CInt {
    guard let context = unsafe context, origin == SEEK_SET else { return CURL_SEEKFUNC_FAIL }
    let exchange = unsafe Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()
    guard let source = exchange.source else { return CURL_SEEKFUNC_FAIL }
    source.seek(to: Int64(offset))
    return CURL_SEEKFUNC_OK
}

extension ExchangeReceiver {
    func reportProgress() {}
}
