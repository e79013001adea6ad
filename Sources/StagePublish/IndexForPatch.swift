import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// The index of a version without the digests that clients compute from the content of a patch.
struct IndexForPatch {
    /// The encoded index without these digests.
    private let content: [UInt8]
    /// The encoded older index.
    private let prefix: [UInt8]
    /// The number of pieces of the patch whose digests are omitted.
    private(set) var omittedCount = 0

    /// Omits digests of the index of a version; `nil` if there are none to omit, or if a client would not get the index again.
    ///
    /// - Parameters:
    ///   - version: The index of the newer version.
    ///   - old: The index of the older version.
    init?(of version: ContentIndex, from old: ContentIndex) {
        let index = version.omittingDigests(notIn: old)
        guard index != version else { return nil }
        (content, prefix) = (index.encoded(), old.encoded())
        guard let count = restoredCount(in: version, from: old) else { return nil }
        omittedCount = count
    }

    /// Returns the number of digests that a client restores from `content` and the content of the patch; `nil` if that does not
    /// give the index of the version.
    private func restoredCount(in version: ContentIndex, from old: ContentIndex) -> Int? {
        guard let index = try? ContentIndex(decoding: content) else { return nil }
        let whole = PatchContent(of: version, notIn: old)
        let restorable = PatchContent(of: index, notIn: old)
        guard whole.pieces == restorable.pieces else { return nil }
        var count = 0
        for (digest, expected) in zip(restorable.digests, whole.digests) {
            if digest == .omitted {
                count += 1
            } else if digest != expected {
                return nil
            }
        }
        let restored = index.encoded(restoring: whole.digests, of: restorable)
        return restored == version.encoded() ? count : nil
    }

    /// Returns the index as a delta from the older one.
    func delta() -> [UInt8] {
        var compressor = FrameCompressor(level: 19)
        return compressor.compress(content.span, after: prefix.span)
    }

    /// Returns whether a delta restores the index from the older one.
    func isRestored(by delta: [UInt8]) -> Bool {
        var decompressor = FrameDecompressor()
        let made = try? decompressor.decompress(delta.span, after: prefix.span, to: content.count)
        return made == content
    }
}

extension StoredCompanionDelta {
    /// Finds or creates the delta of an index for clients of the patch from an older version, and does not write it.
    ///
    /// - Parameters:
    ///   - version: The newer version.
    ///   - old: The index of the older version.
    ///   - base: The digest of the encoded older index.
    ///   - store: The store.
    /// - Returns: The delta; `nil` if no digest can be omitted, or too few for a delta that is kept.
    /// - Throws: ``FileError`` if the store cannot be read.
    static func forPatch(
        to version: StoredIndex,
        from old: ContentIndex,
        base: Digest,
        in store: Directory
    ) throws(FileError) -> StoredCompanionDelta? {
        guard let index = IndexForPatch(of: version.index, from: old) else { return nil }
        // Checked before the slow compression: an omitted digest saves its 32 bytes, and fewer that state its position.
        guard Int64(64 * index.omittedCount) >= IndexedPatchWriter.leastBytes else { return nil }
        let content = version.reference.contentDigest
        if let directory = try store.directory("i") {
            let present = try find(of: content, from: base, in: directory) {
                index.isRestored(by: $0)
            }
            if let present { return present }
        }
        let delta = index.delta()
        guard index.isRestored(by: delta) else { return nil }
        return StoredCompanionDelta(delta, of: content, from: base)
    }
}
