import CZlib

/// Decompressor for the messages of one direction of a connection (RFC 7692, section 7.2.2).
///
/// Owns one raw inflate stream of zlib.
@safe struct Inflater: ~Copyable {
    private let stream: UnsafeMutablePointer<z_stream>
    /// `true` if each message starts with an empty window.
    private let resets: Bool
    /// Number of final blocks within the current message.
    private var ends = 0
    private var scratch = [UInt8](repeating: 0, count: 1 << 14)

    /// Bytes that senders remove from the end of each message.
    private static let tail: [UInt8] = [0x00, 0x00, 0xFF, 0xFF]

    init(windowBits: Int, resets: Bool) {
        unsafe stream = .allocate(capacity: 1)
        unsafe stream.initialize(to: z_stream())
        self.resets = resets
        // Releases of zlib before 1.2.9 use 9 bits where 8 are requested.
        let code = unsafe stage_inflate_init(stream, CInt(max(windowBits, 9)))
        precondition(code == Z_OK, "zlib refused to decompress")
    }

    deinit {
        unsafe _ = inflateEnd(stream)
        unsafe stream.deallocate()
    }

    /// Appends the decompressed bytes to `message`, which never exceeds the limit; after an error it has the bytes
    /// before the fault.
    mutating func inflate(
        _ bytes: Span<UInt8>,
        into message: inout [UInt8],
        limits: WebSocketLimits
    ) throws(WebSocketError) {
        try run(bytes, flush: Z_SYNC_FLUSH, into: &message, limits: limits)
    }

    /// Finishes a message.
    mutating func finish(
        into message: inout [UInt8],
        limits: WebSocketLimits
    ) throws(WebSocketError) {
        let tail = Self.tail
        try run(tail.span, flush: Z_BLOCK, into: &message, limits: limits)
        // The tail is an empty block; a message that ends within a block would consume the tail as data.
        guard unsafe stream.pointee.data_type & 128 != 0 else { throw .invalidCompression }
        ends = 0
        if resets {
            let code = unsafe inflateReset(stream)
            precondition(code == Z_OK, "zlib refused to reset the stream")
        }
    }

    private mutating func run(
        _ bytes: Span<UInt8>,
        flush: CInt,
        into message: inout [UInt8],
        limits: WebSocketLimits
    ) throws(WebSocketError) {
        try unsafe bytes.withUnsafeBufferPointer { input throws(WebSocketError) in
            try unsafe run(input, flush: flush, into: &message, limits: limits)
        }
    }

    private mutating func run(
        _ input: UnsafeBufferPointer<UInt8>,
        flush: CInt,
        into message: inout [UInt8],
        limits: WebSocketLimits
    ) throws(WebSocketError) {
        unsafe stream.pointee.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
        unsafe stream.pointee.avail_in = uInt(input.count)
        while true {
            let (code, count) = unsafe scratch.withUnsafeMutableBufferPointer { output in
                unsafe stream.pointee.next_out = output.baseAddress
                unsafe stream.pointee.avail_out = uInt(output.count)
                let code = unsafe CZlib.inflate(stream, flush)
                return (code, unsafe output.count - Int(stream.pointee.avail_out))
            }
            let remaining = limits.messageSize - message.count
            message += scratch[..<min(count, remaining)]
            guard count <= remaining else { throw .tooLarge(limit: limits.messageSize) }
            switch code {
            case Z_OK:
                let isDone = unsafe stream.pointee.avail_in == 0 && stream.pointee.avail_out != 0
                if isDone { return }
            case Z_BUF_ERROR: return
            case Z_STREAM_END: try restart(limits)
            default: throw .invalidCompression
            }
        }
    }

    /// Continues after a final block, which does not end the connection's stream (RFC 7692, section 7.2.3.4).
    private mutating func restart(_ limits: WebSocketLimits) throws(WebSocketError) {
        ends += 1
        guard ends <= limits.emptyFragments else {
            throw .tooManyEmptyFragments(limit: limits.emptyFragments)
        }
        var window = [UInt8](repeating: 0, count: 1 << 15)
        var count: uInt = 0
        let code = unsafe window.withUnsafeMutableBufferPointer { buffer in
            var code = unsafe inflateGetDictionary(stream, buffer.baseAddress, &count)
            if code == Z_OK { code = unsafe inflateReset(stream) }
            if code == Z_OK, count > 0 {
                code = unsafe inflateSetDictionary(stream, buffer.baseAddress, count)
            }
            return code
        }
        precondition(code == Z_OK, "zlib cannot continue")
    }
}
