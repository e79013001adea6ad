import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// A delta of an index for clients that have decoded another object of the pack: its archive, or a patch.
///
/// Its name in the store is `i/<SHA-256 of the delta>.of.<SHA-256 of the decompressed index>`, followed by
/// `.from.<SHA-256 of the decompressed older index>` for a patch.
struct StoredCompanionDelta {
    /// The reference for the manifest, with a URL relative to the store.
    let reference: PackIndex.CompanionDelta
    private let bytes: [UInt8]
    private let name: FilePath.Component

    /// Refers to the bytes of a delta.
    ///
    /// - Parameters:
    ///   - bytes: The bytes of the delta.
    ///   - content: The digest of the decompressed index.
    ///   - base: The digest of the decompressed older index, for the delta of a patch.
    init(_ bytes: [UInt8], of content: Digest, from base: Digest? = nil) {
        let digest = Digest(of: bytes)
        let name = "\(digest)\(Self.ending(of: content, from: base))"
        self.bytes = bytes
        self.name = FilePath.Component(stringLiteral: name)
        reference = PackIndex.CompanionDelta(
            url: "\(StoreObjectKind.index.folder)/\(name)",
            size: ByteCount(bytes.count),
            digest: digest
        )
    }

    /// Writes the delta to the directory of the indexes, unless it exists.
    func write(to directory: Directory) throws(FileError) {
        try StoreObjects(directory: directory)
            .write(bytes, digest: reference.digest, named: name)
    }

    /// Finds the smallest delta of an index in the directory of the indexes; `nil` if there is none.
    ///
    /// Skips damaged deltas: clients do not need them.
    ///
    /// - Parameters:
    ///   - content: The digest of the decompressed index.
    ///   - base: The digest of the decompressed older index, for the delta of a patch.
    ///   - directory: The directory of the indexes.
    ///   - isValid: Returns whether the bytes of a delta restore the index.
    /// - Returns: The delta.
    /// - Throws: ``FileError`` if the directory cannot be read.
    static func find(
        of content: Digest,
        from base: Digest? = nil,
        in directory: Directory,
        where isValid: (_ bytes: [UInt8]) -> Bool
    ) throws(FileError) -> StoredCompanionDelta? {
        let ending = Self.ending(of: content, from: base)
        var found: StoredCompanionDelta?
        for entry in try directory.entries()
        where entry.kind == .file && entry.path.string.hasSuffix(ending) {
            guard let file = try directory.file(reading: entry.path),
                try file.status().size <= IndexLimits.byteCount
            else { continue }
            let bytes = try file.readAll(limit: IndexLimits.byteCount)
            let delta = StoredCompanionDelta(bytes, of: content, from: base)
            guard delta.name == entry.name, found.map({ delta.isPreferred(to: $0) }) ?? true,
                isValid(bytes)
            else { continue }
            found = delta
        }
        return found
    }

    /// Returns whether this delta is smaller than another one; of equal sizes, the order of names decides.
    private func isPreferred(to other: StoredCompanionDelta) -> Bool {
        (reference.size.rawValue, reference.url)
            < (other.reference.size.rawValue, other.reference.url)
    }

    /// Returns the part of the name after the digest of the delta.
    private static func ending(of content: Digest, from base: Digest?) -> String {
        ".of.\(content)" + (base.map { ".from.\($0)" } ?? "")
    }
}
