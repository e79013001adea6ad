/// State machine for the frames and messages of one WebSocket connection after its opening handshake (RFC 6455, RFC
/// 7692).
///
/// Bytes enter by ``receive(_:)``, events come from ``nextEvent()``, and bytes to send from ``takeOutput()``. It does
/// no I/O and reads no clock. The result does not depend on how the bytes are split.
///
/// Memory is bounded by one message, one piece of input and the pending output: the machine processes input only when
/// ``nextEvent()`` is called, so a caller that sends the output after each event has at most one pong or one close
/// frame pending.
package struct WebSocketMachine: ~Copyable {
    /// Side of the connection.
    package enum Role: Sendable {
        /// The client, with a source of unpredictable masking keys (RFC 6455, section 10.3).
        case client(maskingKey: @Sendable () -> UInt32)
        /// The server.
        case server
    }

    private let role: Role
    private let limits: WebSocketLimits
    private var input: [UInt8] = []
    private var position = 0
    private var output: [UInt8] = []
    private var frame: FrameHeader?
    /// Number of payload bytes of `frame` that were read.
    private var offset = 0
    private var control: [UInt8] = []
    private var message: PartialMessage?
    private var inflater: Inflater?
    private var deflater: Deflater?
    private var hasFailed = false
    /// The close frame that responds to the last event; it is queued by the next call of ``nextEvent()``.
    private var pendingClose: WebSocketClose?

    /// `true` once a close frame was queued: no more messages can be sent.
    package private(set) var hasSentClose = false
    /// `true` once a close frame was received: no event follows.
    package private(set) var hasReceivedClose = false

    /// Creates the machine of one side, with the compression that the handshake agreed on.
    package init(
        role: Role,
        compression: DeflateAgreement? = nil,
        limits: WebSocketLimits = WebSocketLimits()
    ) {
        self.role = role
        self.limits = limits
        guard let compression else { return }
        var (sending, receiving) = (compression.server, compression.client)
        if case .client = role { swap(&sending, &receiving) }
        inflater = Inflater(
            windowBits: receiving.windowBits,
            resets: !receiving.allowsContextTakeover
        )
        // zlib compresses with at least 9 bits: with 8, messages are sent uncompressed.
        if sending.windowBits >= 9 {
            deflater = Deflater(
                windowBits: sending.windowBits,
                resets: !sending.allowsContextTakeover
            )
        }
    }

    /// `true` if the connection must be closed once the output was sent: both close frames were exchanged, or the
    /// peer violated the protocol and was informed.
    package var isFinished: Bool { hasSentClose && (hasFailed || hasReceivedClose) }

    /// `true` if there are bytes to send.
    package var hasOutput: Bool { !output.isEmpty }

    /// Adds bytes that the peer sent; ``nextEvent()`` finds the events in them.
    package mutating func receive(_ bytes: Span<UInt8>) {
        guard !hasFailed, !hasReceivedClose else { return }
        if position > 0 {
            input.removeFirst(position)
            position = 0
        }
        unsafe bytes.withUnsafeBufferPointer { unsafe input.append(contentsOf: $0) }
    }

    /// Returns and removes the bytes to send.
    package mutating func takeOutput() -> [UInt8] {
        var bytes: [UInt8] = []
        swap(&bytes, &output)
        return bytes
    }

    /// Returns the next event in the received bytes; `nil` if more bytes are needed.
    ///
    /// After ``WebSocketEvent/close(_:)`` and ``WebSocketEvent/failure(_:)`` messages can still be sent, such as
    /// responses to earlier ones; the next call queues the close frame, and returns `nil`.
    package mutating func nextEvent() -> WebSocketEvent? {
        if let pendingClose = pendingClose.take() { close(pendingClose) }
        guard !hasFailed, !hasReceivedClose else { return nil }
        do throws(WebSocketError) {
            while true {
                if frame == nil, try !beginFrame() { return nil }
                if let event = try readPayload() { return event }
                if frame != nil { return nil }
            }
        } catch {
            fail(error)
            return .failure(error)
        }
    }

    /// Queues a message as one frame.
    ///
    /// - Throws: ``WebSocketError/closed`` if a close frame was sent.
    package mutating func send(_ message: WebSocketMessage) throws(WebSocketError) {
        guard !hasSentClose else { throw .closed }
        switch message {
        case .text(var text):
            text.withUTF8 { unsafe send(.text, payload: UnsafeRawBufferPointer($0)) }
        case .binary(let bytes):
            unsafe bytes.withUnsafeBytes { unsafe send(.binary, payload: $0) }
        }
    }

    /// Queues a ping with a payload of at most 125 bytes.
    ///
    /// - Throws: ``WebSocketError/closed`` as ``send(_:)`` does.
    package mutating func ping(_ payload: [UInt8] = []) throws(WebSocketError) {
        guard !hasSentClose else { throw .closed }
        sendControl(.ping, payload: payload)
    }

    /// Queues a close frame, unless one was sent; the peer responds with its own.
    ///
    /// A code that must not be sent is omitted, and the reason is truncated to 123 bytes.
    package mutating func close(_ close: WebSocketClose) {
        guard !hasSentClose else { return }
        hasSentClose = true
        var payload: [UInt8] = []
        if let code = close.code, code.mayBeSent {
            payload = [UInt8(code.rawValue >> 8), UInt8(code.rawValue & 0xFF)]
            for character in close.reason.unicodeScalars {
                let bytes = Array(String(character).utf8)
                guard payload.count + bytes.count <= FrameHeader.controlLimit else { break }
                payload += bytes
            }
        }
        sendControl(.close, payload: payload)
    }
}

extension WebSocketMachine {
    private mutating func fail(_ error: WebSocketError) {
        pendingClose = WebSocketClose(code: error.closeCode, reason: "\(error)")
        hasFailed = true
        input = []
        position = 0
        message = nil
    }

    /// Parses the header of the next frame, and returns whether it was complete.
    private mutating func beginFrame() throws(WebSocketError) -> Bool {
        guard let (header, count) = try FrameHeader.read(input[position...]) else { return false }
        switch role {
        case .client: guard header.mask == nil else { throw .frame(.unexpectedMask) }
        case .server: guard header.mask != nil else { throw .frame(.missingMask) }
        }
        if !header.opcode.isControl { try beginData(header) }
        position += count
        frame = header
        offset = 0
        return true
    }

    private mutating func beginData(_ header: FrameHeader) throws(WebSocketError) {
        if header.opcode == .continuation {
            guard message != nil else { throw .frame(.unexpectedContinuation) }
            guard !header.isCompressed else { throw .frame(.reservedBits) }
        } else {
            guard message == nil else { throw .frame(.interruptedMessage) }
            guard !header.isCompressed || inflater != nil else { throw .frame(.reservedBits) }
            message = PartialMessage(
                isText: header.opcode == .text,
                isCompressed: header.isCompressed
            )
        }
        guard header.length <= limits.frameSize else { throw .tooLarge(limit: limits.frameSize) }
        let held = message?.bytes.count ?? 0
        if message?.isCompressed == false, header.length > limits.messageSize - held {
            throw .tooLarge(limit: limits.messageSize)
        }
        if header.length == 0, !header.isFinal {
            message?.emptyFragments += 1
            if message?.emptyFragments ?? 0 > limits.emptyFragments {
                throw .tooManyEmptyFragments(limit: limits.emptyFragments)
            }
        }
    }

    /// Reads the available payload of the current frame, and returns the event of a complete one.
    private mutating func readPayload() throws(WebSocketError) -> WebSocketEvent? {
        guard let header = frame else { return nil }
        let count = min(header.length - offset, input.count - position)
        let range = position..<position + count
        if let mask = header.mask {
            FrameHeader.apply(mask, to: &input, in: range, from: offset)
        }
        position += count
        offset += count
        let isComplete = offset == header.length
        if header.opcode.isControl {
            control += input[range]
            guard isComplete else { return nil }
            frame = nil
            let payload = control
            control = []
            return try handle(header.opcode, payload: payload)
        }
        try take(range)
        guard isComplete else { return nil }
        frame = nil
        guard header.isFinal else { return nil }
        return .message(try finishMessage())
    }

    private mutating func take(_ range: Range<Int>) throws(WebSocketError) {
        // Moved out to avoid a copy while it changes; an error discards both.
        guard !range.isEmpty, var message = self.message.take() else { return }
        let start = message.bytes.count
        if message.isCompressed {
            var input: [UInt8] = []
            swap(&input, &self.input)
            do throws(WebSocketError) {
                try inflater?.inflate(
                    input.span.extracting(range),
                    into: &message.bytes,
                    limits: limits
                )
            } catch {
                // An error in the text before it takes precedence, as when the bytes arrive one by one.
                try message.check(from: start)
                throw error
            }
            self.input = input
        } else {
            message.bytes += input[range]
        }
        try message.check(from: start)
        self.message = message
    }

    private mutating func finishMessage() throws(WebSocketError) -> WebSocketMessage {
        guard var message = self.message.take() else { return .binary([]) }
        if message.isCompressed {
            let start = message.bytes.count
            do throws(WebSocketError) {
                try inflater?.finish(into: &message.bytes, limits: limits)
            } catch {
                try message.check(from: start)
                throw error
            }
            try message.check(from: start)
        }
        guard message.isText else { return .binary(message.bytes) }
        guard message.utf8.isComplete else { throw .invalidText }
        return .text(String(decoding: message.bytes, as: UTF8.self))
    }

    private mutating func handle(
        _ opcode: Opcode,
        payload: [UInt8]
    ) throws(WebSocketError) -> WebSocketEvent {
        switch opcode {
        case .ping:
            if !hasSentClose { sendControl(.pong, payload: payload) }
            return .ping(payload)
        case .pong: return .pong(payload)
        default:
            let content = try Self.closeContent(payload)
            pendingClose = WebSocketClose(code: content.code)
            hasReceivedClose = true
            input = []
            position = 0
            return .close(content)
        }
    }

    private static func closeContent(_ payload: [UInt8]) throws(WebSocketError) -> WebSocketClose {
        if payload.isEmpty { return WebSocketClose() }
        guard payload.count >= 2 else { throw .frame(.closePayload) }
        let code = CloseCode(rawValue: UInt16(payload[0]) << 8 | UInt16(payload[1]))
        guard code.mayBeSent else { throw .frame(.closeCode(code.rawValue)) }
        guard let reason = String(validating: payload[2...], as: UTF8.self) else {
            throw .invalidText
        }
        return WebSocketClose(code: code, reason: reason)
    }

    private mutating func sendControl(_ opcode: Opcode, payload: [UInt8]) {
        precondition(payload.count <= FrameHeader.controlLimit, "expected at most 125 bytes")
        unsafe payload.withUnsafeBytes { unsafe append(opcode, isCompressed: false, payload: $0) }
    }

    private mutating func send(_ opcode: Opcode, payload: UnsafeRawBufferPointer) {
        guard deflater != nil, unsafe !payload.isEmpty else {
            return unsafe append(opcode, isCompressed: false, payload: payload)
        }
        let compressed = unsafe deflater?.deflate(payload) ?? []
        unsafe compressed.withUnsafeBytes { unsafe append(opcode, isCompressed: true, payload: $0) }
    }

    private mutating func append(
        _ opcode: Opcode,
        isCompressed: Bool,
        payload: UnsafeRawBufferPointer
    ) {
        var mask: [UInt8]?
        if case .client(let maskingKey) = role {
            let key = maskingKey()
            mask = (0..<4).map { UInt8(truncatingIfNeeded: key >> ($0 * 8)) }
        }
        let header = FrameHeader(
            opcode: opcode,
            isCompressed: isCompressed,
            mask: mask,
            length: payload.count
        )
        output.reserveCapacity(output.count + payload.count + 14)
        header.write(to: &output)
        let start = output.count
        unsafe output.append(contentsOf: payload)
        if let mask {
            FrameHeader.apply(mask, to: &output, in: start..<output.count, from: 0)
        }
    }
}

/// A message whose last frame has not arrived.
private struct PartialMessage {
    let isText: Bool
    let isCompressed: Bool
    var bytes: [UInt8] = []
    var utf8 = UTF8Check()
    var emptyFragments = 0

    /// Validates the bytes of a text from an index on.
    mutating func check(from start: Int) throws(WebSocketError) {
        guard isText else { return }
        let isValid = unsafe bytes[start...].withUnsafeBytes { unsafe utf8.take($0) }
        guard isValid else { throw .invalidText }
    }
}
