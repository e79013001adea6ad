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

    /// Returns the reference of a patch for the manifest, with a URL relative to the store; `nil` for a file that
    /// no client accepts.
    static func reference(
        of file: borrowing File,
        to new: Digest,
        from old: Digest
    ) throws(FileError) -> PackIndex.Patch? {
        var head = [UInt8](repeating: 0, count: ZstandardHeader.maximumLength)
        let count = try file.read(into: &head, at: 0)
        let size = ByteCount(try file.status().size)
        guard size <= ManifestLimits.deltaSetSize,
            let header = ZstandardHeader(Array(head[..<count])),
            header.windowSize <= UInt64(ManifestLimits.windowSize.rawValue)
        else { return nil }
        let digest = try Digest(of: file)
        return PackIndex.Patch(
            url: path(digest, to: new, from: old),
            size: size,
            digest: digest,
            windowSize: ByteCount(Int64(header.windowSize))
        )
    }
}
