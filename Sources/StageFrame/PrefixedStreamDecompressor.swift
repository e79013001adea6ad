import CZstd

/// Decompresses one Zstandard frame (RFC 8878) that was compressed with a prefix, in the order of its bytes.
///
/// Owns one libzstd context; must be used by one thread at a time.
@safe package struct PrefixedStreamDecompressor: ~Copyable {
    private let context: OpaquePointer

    /// Creates a decompressor for frames whose window has at most `window` bytes, rounded up to a power of two
    /// of at most ``StreamCompressor/largestWindow``; that is the content that it keeps in memory.
    package init(window: Int64) {
        guard let context = unsafe ZSTD_createDCtx() else { fatalError("out of memory") }
        unsafe self.context = context
        let log = StreamCompressor.window(for: window).trailingZeroBitCount
        require(unsafe ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, CInt(log)))
    }

    deinit { unsafe _ = ZSTD_freeDCtx(context) }

    /// Decompresses a frame.
    ///
    /// - Parameters:
    ///   - prefix: The prefix that the frame was compressed with.
    ///   - source: Fills a buffer with the next bytes of the frame, and returns their number; 0 at its end.
    ///   - sink: Receives the content, in order; returns `false` to stop.
    /// - Returns: `true` if the frame is complete; `false` if it is damaged, ends early, needs a larger window,
    ///   is followed by other bytes, or was stopped.
    /// - Throws: The errors of `source` and `sink`.
    package mutating func decompress<Failure: Error>(
        after prefix: Span<UInt8>,
        from source: (inout [UInt8]) throws(Failure) -> Int,
        to sink: (Span<UInt8>) throws(Failure) -> Bool
    ) throws(Failure) -> Bool {
        try unsafe prefix.withUnsafeBufferPointer { buffer throws(Failure) in
            require(unsafe ZSTD_DCtx_refPrefix(context, buffer.baseAddress, buffer.count))
            return try decompress(from: source, to: sink)
        }
    }

    private mutating func decompress<Failure: Error>(
        from source: (inout [UInt8]) throws(Failure) -> Int,
        to sink: (Span<UInt8>) throws(Failure) -> Bool
    ) throws(Failure) -> Bool {
        var input = [UInt8](repeating: 0, count: ZSTD_DStreamInSize())
        var output = [UInt8](repeating: 0, count: ZSTD_DStreamOutSize())
        while true {
            let count = try source(&input)
            guard count > 0 else { return false }
            var taken = 0
            var isFull = false
            while taken < count || isFull {
                guard let step = advance(input, from: taken, to: count, into: &output) else {
                    return false
                }
                taken = step.taken
                isFull = step.made == output.count
                if step.made > 0, try !sink(output.span.extracting(0..<step.made)) { return false }
                if step.isEnd {
                    guard taken == count else { return false }
                    return try source(&input) == 0
                }
            }
        }
    }

    /// Decompresses until the input is used up or the output is full; `nil` for a damaged frame.
    private func advance(
        _ input: [UInt8],
        from taken: Int,
        to count: Int,
        into output: inout [UInt8]
    ) -> (taken: Int, made: Int, isEnd: Bool)? {
        unsafe input.withUnsafeBufferPointer { source in
            unsafe output.withUnsafeMutableBufferPointer { target in
                var input = unsafe ZSTD_inBuffer(
                    src: source.baseAddress,
                    size: count,
                    pos: taken
                )
                var output = unsafe ZSTD_outBuffer(
                    dst: target.baseAddress,
                    size: target.count,
                    pos: 0
                )
                let left = unsafe ZSTD_decompressStream(context, &output, &input)
                guard ZSTD_isError(left) == 0 else { return nil }
                return unsafe (input.pos, output.pos, left == 0)
            }
        }
    }
}
