import StageArchive
import StageDigest
import StageModel
import StageSystem
import SystemPackage

/// The patches between the versions of indexed packs in a store.
enum StoredPatch {
    /// Returns a patch's path in the store, from its digest and those of the decompressed indexes of both
    /// versions.
    static func path(_ digest: Digest, to new: Digest, from old: Digest) -> String {
        "\(StoreObjectKind.patch.folder)/\(digest).of.\(new).from.\(old)"
    }

    /// Returns the reference of a patch for the manifest, with a URL relative to the store; `nil` for bytes that no
    /// client accepts.
    ///
    /// - Parameters:
    ///   - head: The first bytes, at least those of the header of a frame.
    ///   - size: The number of all bytes.
    ///   - digest: The digest of all bytes.
    ///   - new: The digest of the decompressed index of the newer version.
    ///   - old: That of the older version.
    /// - Returns: The reference.
    static func reference(
        head: [UInt8],
        size: ByteCount,
        digest: Digest,
        to new: Digest,
        from old: Digest
    ) -> PackIndex.Patch? {
        guard size <= ManifestLimits.deltaSetSize, let header = ZstandardHeader(head),
            header.windowSize <= UInt64(ManifestLimits.windowSize.rawValue)
        else { return nil }
        return PackIndex.Patch(
            url: path(digest, to: new, from: old),
            size: size,
            digest: digest,
            windowSize: ByteCount(Int64(header.windowSize))
        )
    }

    /// Returns the reference of a patch in a store, which it reads completely.
    static func reference(
        of file: borrowing File,
        to new: Digest,
        from old: Digest
    ) throws(FileError) -> PackIndex.Patch? {
        var head = [UInt8](repeating: 0, count: ZstandardHeader.maximumLength)
        let count = try file.read(into: &head, at: 0)
        return reference(
            head: Array(head[..<count]),
            size: ByteCount(try file.status().size),
            digest: try Digest(of: file),
            to: new,
            from: old
        )
    }
}
