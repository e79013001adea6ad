import StageArchive
import StageDigest
import StageModel
import StageSystem
import SystemPackage

/// The archives of the indexed packs in a store.
enum StoredArchive {
    /// Returns the name of an archive, from its digest and that of the index of its files.
    static func name(_ digest: Digest, of content: Digest) -> String { "\(digest).of.\(content)" }

    /// Returns an archive's reference for the manifest, with a URL relative to the store.
    static func reference(
        digest: Digest,
        content: Digest,
        size: ByteCount,
        window: ByteCount
    ) -> PackArchive {
        PackArchive(
            url: "\(StoreObjectKind.archive.folder)/\(name(digest, of: content))",
            format: .tarZstandard,
            size: size,
            digest: digest,
            windowSize: window
        )
    }

    /// Finds the smallest archive of an index in a store, and reads it completely; `nil` if there is none.
    ///
    /// Skips damaged archives: clients do not need one.
    static func find(
        of content: Digest,
        in store: Directory
    ) throws(FileError) -> PackArchive? {
        let folder = FilePath(StoreObjectKind.archive.folder)
        guard let directory = try store.directory(folder) else { return nil }
        var found: PackArchive?
        for entry in try directory.entries()
        where entry.kind == .file && entry.path.string.hasSuffix(".of.\(content)") {
            guard let file = try directory.file(reading: entry.path) else { continue }
            let head = try file.head(ZstandardHeader.maximumLength)
            let digest = try Digest(of: file)
            guard name(digest, of: content) == entry.path.string,
                let header = ZstandardHeader(head),
                header.windowSize <= UInt64(ManifestLimits.windowSize.rawValue)
            else { continue }
            let archive = reference(
                digest: digest,
                content: content,
                size: ByteCount(try file.status().size),
                window: ByteCount(Int64(header.windowSize))
            )
            if found.map({ (archive.size, archive.url) < ($0.size, $0.url) }) ?? true {
                found = archive
            }
        }
        return found
    }
}
