import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// Creates delta frames from one version to another, whose bundles are in the same store.
///
/// Equal indexes give equal bytes, wherever the frames of the newer one are stored. Skips frames whose
/// bundles, or those of their windows, are missing in the store: clients download them as they are.
struct DeltaFrameMaker: Sendable {
    private let old: StoredFrames
    private let new: StoredFrames
    private let width: Int
    private let report: @Sendable (_ done: ByteCount, _ total: ByteCount) -> Void

    private typealias DeltaFrame = UnpublishedDeltaSet.DeltaFrame

    /// The compression level of all sets: lower levels miss matches in a window, and higher ones take ten
    /// times as long for a fiftieth fewer bytes.
    private static let level = 12
    /// The number of windows that a processor handles in one batch.
    private static let batch = 4

    init(
        from old: StoredFrames,
        to new: StoredFrames,
        width: Int,
        report: @escaping @Sendable (_ done: ByteCount, _ total: ByteCount) -> Void
    ) {
        self.old = old
        self.new = new
        self.width = width
        self.report = report
    }

    /// Creates the delta frames that save enough bytes.
    func makeFrames() async throws(PackagingError) -> UnpublishedDeltaSet {
        var unpublished = UnpublishedDeltaSet()
        var groups = try await plan().groups[...]
        let total = size(of: groups)
        var done = ByteCount.zero
        report(done, total)
        while !groups.isEmpty {
            if Task.isCancelled { throw .cancelled }
            let batch = Array(groups.prefix(width * Self.batch))
            groups = groups.dropFirst(batch.count)
            let results = await frames(of: batch)
            try unpublished.add(batch, results: results)
            done = done + size(of: batch[...])
            report(done, total)
        }
        return unpublished
    }

    /// Plans which content to compare, after reading the contents of both versions.
    private func plan() async throws(PackagingError) -> DeltaPlan {
        let missing = IndexDifference(from: old.index, to: new.index).frames
        guard !missing.isEmpty else { return DeltaPlan() }
        let search = SampleSearch(old: old, new: new, width: width)
        let matches = try await search.matches(of: missing, in: ContentAddresses(of: old.index))
        return DeltaPlan(from: old.index, to: new.index, matches: matches)
    }

    /// Returns the total length of the frames of groups.
    private func size(of groups: ArraySlice<DeltaPlan.Group>) -> ByteCount {
        let frames = groups.lazy.flatMap(\.frames)
        return ByteCount(frames.reduce(Int64(0)) { $0 + Int64(new.index.frames[$1].length) })
    }

    /// Creates the delta frames of groups on `width` processors, each of which takes every `width`th group.
    private func frames(of groups: [DeltaPlan.Group]) async -> [Result<[[DeltaFrame]], FileError>] {
        await withTaskGroup(of: (Int, Result<[[DeltaFrame]], FileError>).self) { tasks in
            for part in 0..<width {
                let own = stride(from: part, to: groups.count, by: width).map { groups[$0] }
                tasks.addTask { (part, await withBlockingThread { frames(ofOwn: own) }) }
            }
            var results = [Result<[[DeltaFrame]], FileError>](repeating: .success([]), count: width)
            for await (part, result) in tasks { results[part] = result }
            return results
        }
    }

    private func frames(ofOwn groups: [DeltaPlan.Group]) -> Result<[[DeltaFrame]], FileError> {
        var compressor = FrameCompressor(level: Self.level)
        var decompressor = FrameDecompressor()
        do throws(FileError) {
            var made: [[DeltaFrame]] = []
            for group in groups {
                made.append(
                    try frames(of: group, compressor: &compressor, decompressor: &decompressor)
                )
            }
            return .success(made)
        } catch {
            return .failure(error)
        }
    }

    private func frames(
        of group: DeltaPlan.Group,
        compressor: inout FrameCompressor,
        decompressor: inout FrameDecompressor
    ) throws(FileError) -> [DeltaFrame] {
        guard let window = try old.bytes(of: group.window, decompressor: &decompressor) else {
            return []
        }
        compressor.load(prefix: window.span)
        var made: [DeltaFrame] = []
        for position in group.frames {
            guard let content = try new.content(of: position, decompressor: &decompressor) else {
                continue
            }
            let bytes = compressor.compress(content.span)
            guard isWorthwhile(bytes.count, insteadOf: position) else { continue }
            // Only frames that decompress correctly are published.
            let tried = try? decompressor.decompress(
                bytes.span,
                after: window.span,
                to: content.count
            )
            guard tried == content else { continue }
            made.append(
                DeltaFrame(
                    position: position,
                    contentLength: content.count,
                    bytes: bytes,
                    digest: Digest(of: bytes)
                )
            )
        }
        return made
    }

    /// Returns whether a delta frame of `count` bytes, with its table entry, saves enough of the frame to
    /// justify reading old bytes on the client.
    private func isWorthwhile(_ count: Int, insteadOf position: Int) -> Bool {
        (count + Digest.byteCount + 4) * 10 < new.index.frames[position].storedLength * 7
    }
}
