import StageFrame

/// A ``StreamCompressor`` that escaping closures can write to.
///
/// Not thread-safe. End it with ``finish(to:)``.
final class SharedStreamCompressor {
    /// `nil` after the end, and after an error.
    private var compressor: StreamCompressor?

    init(_ compressor: consuming StreamCompressor) {
        self.compressor = consume compressor
    }

    /// Compresses the next bytes; `sink` receives the output, in order.
    func write<Failure: Error>(
        _ bytes: Span<UInt8>,
        to sink: (Span<UInt8>) throws(Failure) -> Void
    ) throws(Failure) {
        guard var compressor = compressor.take() else {
            preconditionFailure("a stream is finished once")
        }
        try compressor.write(bytes, to: sink)
        self.compressor = consume compressor
    }

    /// Ends the frame and starts another, as ``StageFrame/StreamCompressor/startFrame(level:to:)`` does.
    func startFrame<Failure: Error>(
        level: Int,
        to sink: (Span<UInt8>) throws(Failure) -> Void
    ) throws(Failure) {
        guard var compressor = compressor.take() else {
            preconditionFailure("a stream is finished once")
        }
        try compressor.startFrame(level: level, to: sink)
        self.compressor = consume compressor
    }

    /// Compresses the rest, and ends the frame.
    func finish<Failure: Error>(
        to sink: (Span<UInt8>) throws(Failure) -> Void
    ) throws(Failure) {
        guard let compressor = compressor.take() else {
            preconditionFailure("a stream is finished once")
        }
        try compressor.finish(to: sink)
    }
}
