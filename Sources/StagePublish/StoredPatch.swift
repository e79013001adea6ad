import StageDigest
import StageIndex
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

    /// Returns the reference of a patch for the manifest, with a URL relative to the store.
    ///
    /// - Parameters:
    ///   - table: The table of the patch.
    ///   - size: The number of all bytes.
    ///   - digest: The digest of all bytes.
    ///   - new: The digest of the decompressed index of the newer version.
    ///   - old: That of the older version.
    /// - Returns: The reference.
    static func reference(
        to table: PatchTable,
        size: ByteCount,
        digest: Digest,
        to new: Digest,
        from old: Digest
    ) -> PackIndex.Patch {
        PackIndex.Patch(
            url: path(digest, to: new, from: old),
            size: size,
            digest: digest,
            windowSize: table.windowSize,
            prefixSize: table.prefixSize
        )
    }

    /// Returns the reference of a patch in a store, which it reads completely; `nil` for other bytes, and for a patch
    /// that no client accepts.
    static func reference(
        of file: borrowing File,
        to new: Digest,
        from old: Digest
    ) throws(FileError) -> PackIndex.Patch? {
        let size = try file.status().size
        let read = try PatchTable.read(ofPatchWith: size) { (count) throws(FileError) in
            try file.head(count)
        }
        guard let read, size <= ManifestLimits.patchSize.rawValue else { return nil }
        return reference(
            to: read.table,
            size: ByteCount(size),
            digest: try Digest(of: file),
            to: new,
            from: old
        )
    }
}
