import Dispatch
import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import Synchronization

/// Consumes the bytes of one range as they arrive, and writes each frame as soon as it is complete.
final class RangeConsumer: Sendable {
    private struct State: ~Copyable {
        var decompressor = FrameDecompressor()
        var cursor: DirectoryCursor
        /// The window of the delta set that was used last.
        var window: DeltaSource.Window?
        /// The received bytes that do not complete a frame yet, from offset `start` of the object.
        var bytes: [UInt8] = []
        var start: Int64 = 0
        /// The position in the request of the frame to complete next.
        var next = 0
        /// The position in the request of the first frame that was never completed.
        var reached = 0
        var isWritten: [Bool]
        var error: StageError?

        init(_ request: RangePlan.Request, in content: Directory) {
            cursor = DirectoryCursor(content)
            isWritten = [Bool](repeating: false, count: request.frames.count)
        }
    }

    private let fetch: FrameDownloader
    private let request: RangePlan.Request
    /// The delta set that the request reads; `nil` if it reads a bundle.
    private let deltas: DeltaSource?
    /// `true` if the request is for a complete bundle, which may have unneeded frames between the needed ones.
    private let isWhole: Bool
    private let progress: FrameDownloadProgress
    private let queue = DispatchQueue(label: "stagepack.frames")
    /// Used by the jobs of `queue` only, one at a time; the lock is never contended.
    private let state: Mutex<State>
    /// `true` once an error occurred that no other bytes would prevent, such as a full disk.
    private let hasLocalError = Atomic<Bool>(false)

    init(
        fetch: FrameDownloader,
        request: RangePlan.Request,
        deltas: DeltaSource?,
        isWhole: Bool = false,
        progress: FrameDownloadProgress
    ) {
        self.fetch = fetch
        self.request = request
        self.deltas = deltas
        self.isWhole = isWhole
        self.progress = progress
        state = Mutex(State(request, in: fetch.tree.content))
    }

    /// Enqueues the next piece, without waiting for it to be written.
    func take(_ piece: BodyPiece) {
        queue.async { [self] in state.withLock { consume(piece, updating: &$0) } }
    }

    /// `false` once an error occurred that no other bytes would prevent, such as a full disk.
    var isWanted: Bool { !hasLocalError.load(ordering: .relaxed) }

    /// Waits until all enqueued pieces are processed, and returns the frames that were not written, by their
    /// positions in the index.
    ///
    /// - Throws: The first error in processing the bytes received.
    func finish() async throws(StageError) -> [Int] {
        let result: Result<[Int], StageError> = await withCheckedContinuation { continuation in
            queue.async { [self] in
                continuation.resume(returning: state.withLock { self.result($0) })
            }
        }
        return try result.get()
    }

    /// Waits until all enqueued pieces are processed, and returns the range from the first frame that has not arrived
    /// to the end of the request.
    func remainingRange() async -> Range<Int64> {
        await withCheckedContinuation { continuation in
            queue.async { [self] in
                continuation.resume(returning: state.withLock { remainingRange($0.reached) })
            }
        }
    }

    private func remainingRange(_ next: Int) -> Range<Int64> {
        let end = request.range.upperBound
        // If no frame has arrived, the whole range is missing, with any bytes before its first frame.
        if next == 0 { return request.range }
        return next < request.frames.count
            ? range(of: request.frames[next]).lowerBound..<end : end..<end
    }

    /// Returns the range of a frame of the request in its object.
    private func range(of number: Int) -> Range<Int64> {
        deltas?.ranges[number] ?? fetch.tree.index.frames[number].range
    }

    /// Makes the remaining range begin at the first frame that is not written, once all enqueued pieces are processed.
    ///
    /// In a complete bundle, frames after a damaged one may have been written.
    func returnToUnwrittenFrames() async {
        await withCheckedContinuation { continuation in
            queue.async { [self] in
                state.withLock { state in
                    state.reached = state.isWritten.firstIndex(of: false) ?? state.isWritten.count
                }
                continuation.resume()
            }
        }
    }

    /// Waits until all enqueued pieces are processed, and returns the error that no other bytes would prevent, such as a full
    /// disk; `nil` if there is none.
    ///
    /// The complete frames among these pieces are then written, so that a later run does not request them again.
    func localError() async -> StageError? {
        await withCheckedContinuation { continuation in
            queue.async { [self] in
                continuation.resume(returning: isWanted ? nil : state.withLock { $0.error })
            }
        }
    }

    private func result(_ state: borrowing State) -> Result<[Int], StageError> {
        if let error = state.error { return .failure(error) }
        let left = request.frames.indices.filter { !state.isWritten[$0] }
        return .success(left.map { position(of: request.frames[$0]) })
    }

    /// Returns the position in the index of a frame of the request, or of the frame that a delta frame
    /// produces.
    private func position(of number: Int) -> Int {
        deltas?.set.frames[number].position ?? number
    }

    private func consume(_ piece: BodyPiece, updating state: inout State) {
        switch piece {
        case .began(let offset):
            state.bytes = []
            state.start = offset
            state.next =
                request.frames.firstIndex { range(of: $0).lowerBound >= offset }
                ?? request.frames.count
            // A retry, from the same server or another, may deliver the right bytes.
            if case .transfer(.wrongDigest) = state.error { state.error = nil }
        case .bytes(let bytes):
            defer { progress.receiveWindow.remove(bytes.count) }
            guard state.error == nil else { return }
            state.bytes += bytes
            if deltas == nil, !isWhole {
                progress.receive(bytes.count)
            } else {
                progress.receive(ofOther: bytes.count)
            }
            do throws(StageError) {
                try writeFrames(&state)
            } catch {
                state.error = error
                if case .transfer(.wrongDigest) = error { return }
                hasLocalError.store(true, ordering: .relaxed)
            }
        }
    }

    /// Writes the complete frames.
    private func writeFrames(_ state: inout State) throws(StageError) {
        var used = 0
        while state.next < request.frames.count {
            let number = request.frames[state.next]
            let range = range(of: number)
            let begin = Int(range.lowerBound - state.start)
            let end = Int(range.upperBound - state.start)
            used = min(begin, state.bytes.count)
            guard end <= state.bytes.count else { break }
            if !state.isWritten[state.next] {
                let stored = Array(state.bytes[begin..<end])
                if let content = try content(of: number, decoding: stored, updating: &state) {
                    try write(content, of: position(of: number), using: &state.cursor)
                    state.isWritten[state.next] = true
                }
            }
            state.next += 1
            state.reached = max(state.reached, state.next)
            used = end
        }
        // The rest of a complete bundle is not needed.
        if state.next == request.frames.count { used = state.bytes.count }
        state.bytes.removeFirst(used)
        state.start += Int64(used)
    }

    /// Verifies and decodes a frame; returns `nil` if a delta frame does not produce the frame of the index, or if a frame
    /// of a complete bundle is damaged.
    private func content(
        of number: Int,
        decoding stored: [UInt8],
        updating state: inout State
    ) throws(StageError) -> [UInt8]? {
        let index = fetch.tree.index
        if let deltas {
            return try StageError.wrapping { () throws(FileError) in
                try deltas.content(
                    of: number,
                    decoding: stored,
                    in: index,
                    using: &state.decompressor,
                    window: &state.window
                )
            }
        }
        let frame = index.frames[number]
        guard Digest(of: stored) == frame.storedDigest else {
            // Continues with the next frames, which may be intact: the server sends only complete bundles.
            if isWhole { return nil }
            throw .transfer(.wrongDigest(url: ""))
        }
        guard frame.compressed != nil else { return stored }
        let content = try StageError.wrapping { () throws(FrameError) in
            try state.decompressor.decompress(stored.span, to: frame.length)
        }
        guard Digest(of: content) == frame.digest else {
            throw .index(
                reason: "a frame decompresses to content with another digest than the index names"
            )
        }
        return content
    }

    private func write(
        _ content: [UInt8],
        of position: Int,
        using cursor: inout DirectoryCursor
    ) throws(StageError) {
        let written = try StageError.wrapping { () throws(FileError) in
            try fetch.tree.writeFrame(
                position,
                content: content,
                except: fetch.done,
                using: &cursor
            )
        }
        let frame = fetch.tree.index.frames[position]
        if deltas != nil { progress.countDecoded(frame) }
        if isWhole { progress.countReceived(frame) }
        progress.write(written)
    }
}
