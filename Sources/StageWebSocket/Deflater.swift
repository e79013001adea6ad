import CZlib

/// Compressor for the messages of one direction of a connection (RFC 7692, section 7.2.1).
///
/// Owns one raw deflate stream of zlib.
@safe struct Deflater: ~Copyable {
    private let stream: UnsafeMutablePointer<z_stream>
    /// `true` if each message starts with an empty window.
    private let resets: Bool
    private var scratch = [UInt8](repeating: 0, count: 1 << 14)

    /// Creates a compressor with a window of 2 to the power of `windowBits` bytes, 9 to 15.
    init(windowBits: Int, resets: Bool) {
        unsafe stream = .allocate(capacity: 1)
        unsafe stream.initialize(to: z_stream())
        self.resets = resets
        // The sender waits for the compression: use the fastest level.
        let code = unsafe stage_deflate_init(stream, Z_BEST_SPEED, CInt(windowBits))
        precondition(code == Z_OK, "zlib refused to compress")
    }

    deinit {
        // zlib reports an error for a stream with pending input, but frees it.
        unsafe _ = deflateEnd(stream)
        unsafe stream.deallocate()
    }

    /// Compresses the payload of a message of at least one byte.
    mutating func deflate(_ bytes: UnsafeRawBufferPointer) -> [UInt8] {
        let input = unsafe bytes.bindMemory(to: UInt8.self)
        precondition(input.count <= Int(uInt.max), "expected a message below 4 GiB")
        unsafe stream.pointee.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
        unsafe stream.pointee.avail_in = uInt(input.count)
        var result: [UInt8] = []
        var isFull = true
        while isFull {
            let count = unsafe scratch.withUnsafeMutableBufferPointer { output in
                unsafe stream.pointee.next_out = output.baseAddress
                unsafe stream.pointee.avail_out = uInt(output.count)
                let code = unsafe CZlib.deflate(stream, Z_SYNC_FLUSH)
                precondition(code == Z_OK || code == Z_BUF_ERROR, "zlib refused to compress")
                return unsafe output.count - Int(stream.pointee.avail_out)
            }
            result += scratch[..<count]
            isFull = unsafe stream.pointee.avail_out == 0
        }
        // The flush ends with an empty block, which the receiver appends.
        result.removeLast(4)
        if resets {
            let code = unsafe deflateReset(stream)
            precondition(code == Z_OK, "zlib refused to reset the stream")
        }
        return result
    }
}
