import CZstd

/// Compresses byte strings to independent Zstandard frames (RFC 8878) with a content size and without a
/// checksum.
///
/// Owns one libzstd context; must be used by one thread at a time.
@safe package struct FrameCompressor: ~Copyable {
    private let context: OpaquePointer

    /// Creates a compressor of a level, 1 to 22.
    ///
    /// - Parameters:
    ///   - level: The compression level.
    ///   - findsDistantRepeats: Indicates whether to find distant matches of a few hundred bytes even where
    ///     the level would skip positions after a long search without matches.
    package init(level: Int, findsDistantRepeats: Bool = false) {
        guard let context = unsafe ZSTD_createCCtx() else { fatalError("out of memory") }
        unsafe self.context = context
        set(ZSTD_c_compressionLevel, to: CInt(level))
        set(ZSTD_c_contentSizeFlag, to: 1)
        set(ZSTD_c_checksumFlag, to: 0)
        if findsDistantRepeats { set(ZSTD_c_enableLongDistanceMatching, to: 1) }
    }

    deinit { unsafe _ = ZSTD_freeCCtx(context) }

    /// Returns the frame of `bytes`; equal bytes, levels and libzstd versions give equal frames.
    package mutating func compress(_ bytes: Span<UInt8>) -> [UInt8] {
        set(ZSTD_c_windowLog, to: 0)
        return frame(of: bytes)
    }

    /// Returns a frame of `bytes` that refers to `prefix`, which decompression needs too.
    ///
    /// Finds matches within 128 MiB.
    package mutating func compress(
        _ bytes: Span<UInt8>,
        after prefix: Span<UInt8>
    ) -> [UInt8] {
        let reach = max(bytes.count + prefix.count, 2)
        set(
            ZSTD_c_windowLog,
            to: CInt(min(max(Int.bitWidth - (reach - 1).leadingZeroBitCount, 10), 27))
        )
        return unsafe prefix.withUnsafeBufferPointer { buffer in
            require(unsafe ZSTD_CCtx_refPrefix(context, buffer.baseAddress, buffer.count))
            return frame(of: bytes)
        }
    }

    /// Makes all later frames of ``compress(_:)`` refer to a copy of `prefix`, or to no prefix if it is
    /// empty.
    ///
    /// Loading takes longer than one frame with a prefix, but each frame takes much less. A prefix that
    /// starts like a Zstandard dictionary is not used: frames then refer to no prefix, and still decompress
    /// with it.
    package mutating func load(prefix: Span<UInt8>) {
        let mark: [UInt8] = [0x37, 0xA4, 0x30, 0xEC]
        let isDictionary = prefix.count >= 4 && (0..<4).allSatisfy { prefix[$0] == mark[$0] }
        unsafe prefix.withUnsafeBufferPointer { buffer in
            let count = isDictionary ? 0 : buffer.count
            require(unsafe ZSTD_CCtx_loadDictionary(context, buffer.baseAddress, count))
        }
    }

    private mutating func frame(of bytes: Span<UInt8>) -> [UInt8] {
        let capacity = ZSTD_compressBound(bytes.count)
        return unsafe [UInt8](unsafeUninitializedCapacity: capacity) { output, count in
            unsafe bytes.withUnsafeBufferPointer { input in
                count = require(
                    unsafe ZSTD_compress2(
                        context,
                        output.baseAddress,
                        output.count,
                        input.baseAddress,
                        input.count
                    )
                )
            }
        }
    }

    private func set(_ parameter: ZSTD_cParameter, to value: CInt) {
        require(unsafe ZSTD_CCtx_setParameter(context, parameter, value))
    }
}

/// Traps if a libzstd call failed that cannot fail with valid arguments.
@discardableResult
func require(_ result: Int) -> Int {
    precondition(ZSTD_isError(result) == 0, "libzstd refused to compress")
    return result
}
