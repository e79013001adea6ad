import CZstd

/// Compresses byte strings, each to one independent Zstandard frame (RFC 8878) that says its length and
/// has no checksum.
///
/// Owns one context of libzstd; used by one thread at a time.
@safe public struct FrameCompressor: ~Copyable {
    private let context: OpaquePointer

    /// Creates a compressor of a level, 1 to 22.
    ///
    /// - Parameters:
    ///   - level: What the search for repeats may cost.
    ///   - findsDistantRepeats: Searches for repeats of a few hundred bytes also where the level would
    ///     skip positions because it has found nothing for long.
    public init(level: Int, findsDistantRepeats: Bool = false) {
        guard let context = unsafe ZSTD_createCCtx() else { fatalError("out of memory") }
        unsafe self.context = context
        set(ZSTD_c_compressionLevel, CInt(level))
        set(ZSTD_c_contentSizeFlag, 1)
        set(ZSTD_c_checksumFlag, 0)
        if findsDistantRepeats { set(ZSTD_c_enableLongDistanceMatching, 1) }
    }

    deinit { unsafe _ = ZSTD_freeCCtx(context) }

    /// Returns the frame of `bytes`: the same for the same bytes, level and release of libzstd.
    public mutating func compress(_ bytes: Span<UInt8>) -> [UInt8] {
        set(ZSTD_c_windowLog, 0)
        return frame(of: bytes)
    }

    /// Returns the frame of `bytes` that refers to `prefix`, without which it cannot be decompressed.
    ///
    /// Matches are found within 128 MiB.
    public mutating func compress(
        _ bytes: Span<UInt8>,
        after prefix: Span<UInt8>
    ) -> [UInt8] {
        let reach = max(bytes.count + prefix.count, 2)
        set(
            ZSTD_c_windowLog,
            CInt(min(max(Int.bitWidth - (reach - 1).leadingZeroBitCount, 10), 27))
        )
        return unsafe prefix.withUnsafeBufferPointer { buffer in
            require(unsafe ZSTD_CCtx_refPrefix(context, buffer.baseAddress, buffer.count))
            return frame(of: bytes)
        }
    }

    /// Has all further frames of ``compress(_:)`` refer to `prefix`, of which a copy is kept; to nothing,
    /// if it is empty.
    ///
    /// That takes longer than one frame after a prefix, and each frame much less. Nothing is referred to
    /// where `prefix` begins as a dictionary of Zstandard does: such a frame decompresses with the
    /// prefix, too.
    public mutating func load(prefix: Span<UInt8>) {
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

    private func set(_ parameter: ZSTD_cParameter, _ value: CInt) {
        require(unsafe ZSTD_CCtx_setParameter(context, parameter, value))
    }
}

/// Stops the process if a call of libzstd that cannot fail on valid arguments did.
@discardableResult
func require(_ result: Int) -> Int {
    precondition(ZSTD_isError(result) == 0, "libzstd refused to compress")
    return result
}
