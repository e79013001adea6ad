import CZstd

/// The reason why bytes are not the expected frame.
package indirect enum FrameError: Error, Hashable, Sendable {
    /// libzstd cannot decompress them; `detail` is its message.
    case damaged(detail: String)
    /// The decompressed length differs.
    case wrongLength(expected: Int, actual: Int)
}

extension FrameError: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    package var description: String {
        switch self {
        case .damaged(let detail): "not a frame of Zstandard: \(detail)"
        case .wrongLength(let expected, let actual):
            "a frame of \(actual) bytes where there should be \(expected)"
        }
    }
}

/// Decompresses Zstandard frames (RFC 8878) of known length.
///
/// Owns one libzstd context; must be used by one thread at a time.
@safe package struct FrameDecompressor: ~Copyable {
    private let context: OpaquePointer

    /// Creates a decompressor.
    package init() {
        guard let context = unsafe ZSTD_createDCtx() else { fatalError("out of memory") }
        unsafe self.context = context
    }

    deinit { unsafe _ = ZSTD_freeDCtx(context) }

    /// Returns the content size that a frame states.
    package static func contentSize(of frame: Span<UInt8>) throws(FrameError) -> Int {
        let size = unsafe frame.withUnsafeBufferPointer {
            unsafe ZSTD_getFrameContentSize($0.baseAddress, $0.count)
        }
        // The two highest values mean 'unknown' and 'not a frame'.
        guard size < UInt64.max - 1, let count = Int(exactly: size) else {
            throw .damaged(detail: "it does not state its length")
        }
        return count
    }

    /// Returns the `count` bytes of content of `frame`; never allocates more.
    package mutating func decompress(
        _ frame: Span<UInt8>,
        to count: Int
    ) throws(FrameError) -> [UInt8] {
        var result = 0
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { output, initialized in
            unsafe frame.withUnsafeBufferPointer { input in
                unsafe result = ZSTD_decompressDCtx(
                    context,
                    output.baseAddress,
                    output.count,
                    input.baseAddress,
                    input.count
                )
            }
            initialized = ZSTD_isError(result) == 0 ? result : 0
        }
        guard ZSTD_isError(result) == 0 else {
            throw .damaged(detail: unsafe String(cString: ZSTD_getErrorName(result)))
        }
        guard result == count else { throw .wrongLength(expected: count, actual: result) }
        return bytes
    }

    /// Returns the `count` bytes of content of `frame`, which was compressed with the same `prefix`.
    package mutating func decompress(
        _ frame: Span<UInt8>,
        after prefix: Span<UInt8>,
        to count: Int
    ) throws(FrameError) -> [UInt8] {
        try unsafe prefix.withUnsafeBufferPointer { buffer throws(FrameError) in
            let result = unsafe ZSTD_DCtx_refPrefix(context, buffer.baseAddress, buffer.count)
            precondition(ZSTD_isError(result) == 0, "libzstd refused a prefix")
            return try decompress(frame, to: count)
        }
    }
}
