import StageFrame
import StageSystem
import Synchronization

/// A ``StreamCompressor`` that escaping closures can write to.
///
/// Not thread-safe. End it with ``finish(to:)`` or ``abandon()``.
final class SharedStreamCompressor {
    /// `nil` after the end.
    private var compressor: StreamCompressor?

    init(_ compressor: consuming StreamCompressor) {
        self.compressor = consume compressor
    }

    /// Compresses the next bytes; `sink` receives the output, in order.
    func write<Failure: Error>(
        _ bytes: Span<UInt8>,
        to sink: (Span<UInt8>) throws(Failure) -> Void
    ) throws(Failure) {
        guard try compressor?.write(bytes, to: sink) != nil else { Self.failEnded() }
    }

    /// Compresses the rest of the frame and ends it; the bytes that follow come into a further frame of another level.
    func startFrame<Failure: Error>(
        level: Int,
        to sink: (Span<UInt8>) throws(Failure) -> Void
    ) throws(Failure) {
        guard try compressor?.endFrame(to: sink) != nil else { Self.failEnded() }
        compressor?.setLevel(level)
    }

    /// Compresses the rest, and ends the frame.
    func finish<Failure: Error>(
        to sink: (Span<UInt8>) throws(Failure) -> Void
    ) throws(Failure) {
        guard try compressor?.endFrame(to: sink) != nil else { Self.failEnded() }
        compressor = nil
    }

    /// Discards the compressor without waiting for its threads.
    ///
    /// Each thread first compresses the block that it has begun, up to half a minute at level 19, and keeps its memory meanwhile.
    func abandon() {
        guard let compressor = compressor.take() else { return }
        let rest = Mutex<StreamCompressor?>(consume compressor)
        startBlockingThread { rest.withLock { $0 = nil } }
    }

    private static func failEnded() -> Never { preconditionFailure("the stream has ended") }
}
