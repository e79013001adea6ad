import CZstd

/// Compresses a stream to Zstandard frames (RFC 8878) with checksums; finds matches at any distance within its
/// window.
///
/// Owns one libzstd context. `@unchecked Sendable` because a context belongs to no thread, and only the owner of this
/// value can use it.
@safe package struct StreamCompressor: ~Copyable, @unchecked Sendable {
    private let context: OpaquePointer
    private var buffer: [UInt8]

    /// The largest window: 128 MiB, which decoders accept by default.
    package static let largestWindow = 1 << 27

    /// Returns the window for `count` bytes: the smallest power of two that covers them, at most
    /// ``largestWindow``.
    package static func window(for count: Int64) -> Int {
        let least = 1 << 10
        guard count > least else { return least }
        guard count < largestWindow else { return largestWindow }
        return 1 << (Int64.bitWidth - (count - 1).leadingZeroBitCount)
    }

    /// Creates a compressor.
    ///
    /// - Parameters:
    ///   - level: The compression level, 1 to 22.
    ///   - window: The decoder's window in bytes, a power of two as ``window(for:)`` returns.
    ///   - width: The number of threads; the output does not depend on it.
    package init(level: Int, window: Int, width: Int) {
        guard let context = unsafe ZSTD_createCCtx() else { fatalError("out of memory") }
        unsafe self.context = context
        buffer = [UInt8](repeating: 0, count: ZSTD_CStreamOutSize())
        setLevel(level)
        set(ZSTD_c_windowLog, to: CInt(window.trailingZeroBitCount))
        set(ZSTD_c_enableLongDistanceMatching, to: 1)
        set(ZSTD_c_checksumFlag, to: 1)
        // Zero workers would compress on this thread, and produce other bytes than one worker.
        set(ZSTD_c_nbWorkers, to: CInt(max(width, 1)))
    }

    deinit { unsafe _ = ZSTD_freeCCtx(context) }

    /// Compresses the next bytes; `sink` receives the output, in order.
    package mutating func write<Failure: Error>(
        _ bytes: Span<UInt8>,
        to sink: (Span<UInt8>) throws(Failure) -> Void
    ) throws(Failure) {
        try run(bytes, operation: ZSTD_e_continue, sink: sink)
    }

    /// Compresses the rest of the frame and ends it; later bytes go into a new frame that does not refer to earlier frames.
    package mutating func endFrame<Failure: Error>(
        to sink: (Span<UInt8>) throws(Failure) -> Void
    ) throws(Failure) {
        try run([UInt8]().span, operation: ZSTD_e_end, sink: sink)
    }

    /// Sets the level of the frames that begin later, 1 to 22.
    package mutating func setLevel(_ level: Int) {
        set(ZSTD_c_compressionLevel, to: CInt(level))
    }

    private mutating func run<Failure: Error>(
        _ bytes: Span<UInt8>,
        operation: ZSTD_EndDirective,
        sink: (Span<UInt8>) throws(Failure) -> Void
    ) throws(Failure) {
        var taken = 0
        var left = 0
        let context = unsafe context
        repeat {
            var made = 0
            unsafe bytes.withUnsafeBufferPointer { source in
                unsafe buffer.withUnsafeMutableBufferPointer { target in
                    var input = unsafe ZSTD_inBuffer(
                        src: source.baseAddress,
                        size: source.count,
                        pos: taken
                    )
                    var output = unsafe ZSTD_outBuffer(
                        dst: target.baseAddress,
                        size: target.count,
                        pos: 0
                    )
                    left = require(
                        unsafe ZSTD_compressStream2(context, &output, &input, operation)
                    )
                    taken = unsafe input.pos
                    made = unsafe output.pos
                }
            }
            if made > 0 { try sink(buffer.span.extracting(0..<made)) }
        } while taken < bytes.count || (operation == ZSTD_e_end && left > 0)
    }

    private func set(_ parameter: ZSTD_cParameter, to value: CInt) {
        require(unsafe ZSTD_CCtx_setParameter(context, parameter, value))
    }
}
