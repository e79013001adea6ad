import StageModel
import StageSystem
import SystemPackage

/// Creates a patch, and keeps the delta of the index for clients of the patch if that saves enough.
struct IndexedPatchWriter {
    private let patches: PatchWriter
    /// The delta, which may save too little to be kept; `nil` if no digest can be omitted, or too few.
    private let indexDelta: StoredCompanionDelta?

    /// The fraction of an update's bytes that the delta must save, as a divisor: it is one more object for each update.
    private static let leastSaving = Int64(50)
    /// The number of bytes that the delta must save at least: the manifest, which all clients download, names it in more than 300.
    static let leastBytes = Int64(512)

    /// Creates a writer of the patch that `patches` makes, with the delta of the index for its clients.
    init(_ patches: PatchWriter, indexDelta: StoredCompanionDelta?) {
        (self.patches, self.indexDelta) = (patches, indexDelta)
    }

    /// Writes the patch, unless the update transfers about as little without it.
    ///
    /// - Parameters:
    ///   - cost: The bytes that the update transfers without a patch.
    ///   - store: The store with the bundles of both versions.
    /// - Returns: The outcome, and the patch's reference for the manifest if it was written.
    /// - Throws: ``PackagingError`` if the store cannot be read or written, or the task is cancelled.
    func write(
        insteadOf cost: UpdateCost,
        in store: Directory
    ) async throws(PackagingError) -> (BaseUpdate.Outcome, PackIndex.Patch?) {
        // The index is smaller only with a patch, so a patch may have as many bytes more as the delta of the index saves. A patch that
        // is kept has fewer bytes than this limit, so the delta is kept, too.
        let limit = cost.content + saving(of: cost.index)
        let isCounted = isWorthKeeping(besides: limit, insteadOf: cost.index)
        let other = isCounted ? limit : cost.content
        let (outcome, patch) = try await patches.write(insteadOf: other, in: store)
        guard let patch else { return (outcome, nil) }
        let complete = try addIndexDelta(to: patch, insteadOf: cost.index, in: store)
        return (outcome, complete)
    }

    /// Writes the delta of the index if it saves enough, and returns a patch with its reference.
    ///
    /// - Parameters:
    ///   - patch: The patch.
    ///   - index: The bytes of the index that the update transfers without this delta.
    ///   - store: The store.
    /// - Returns: The patch.
    /// - Throws: ``PackagingError`` if the store cannot be written.
    func addIndexDelta(
        to patch: PackIndex.Patch,
        insteadOf index: ByteCount,
        in store: Directory
    ) throws(PackagingError) -> PackIndex.Patch {
        var patch = patch
        patch.indexDelta = nil
        guard let indexDelta, isWorthKeeping(besides: patch.size, insteadOf: index) else {
            return patch
        }
        try PackagingError.wrapping { () throws(FileError) in
            try indexDelta.write(to: store.makeDirectory("i"))
        }
        patch.indexDelta = indexDelta.reference
        return patch
    }

    /// The bytes that the delta saves of those of the index.
    private func saving(of index: ByteCount) -> ByteCount {
        guard let size = indexDelta?.reference.size, size < index else { return .zero }
        return index - size
    }

    /// Returns whether the delta saves enough of an update with content of this size.
    private func isWorthKeeping(besides content: ByteCount, insteadOf index: ByteCount) -> Bool {
        let whole = (index + content).rawValue
        return saving(of: index).rawValue >= max(whole / Self.leastSaving, Self.leastBytes)
    }
}
