import StageDigest
import StageIndex
import StageModel
package import StageSystem
import SystemPackage

/// A file in a store that lists the objects of a version that will be offered.
///
/// Existing objects are not rewritten, so their timestamps do not show that a new version uses them. Without
/// the mark, ``StoreGarbageCollection`` could remove one before a manifest names it. The collection deletes the
/// marks; a store that was never collected gets none.
package enum OfferMark {
    /// The prefix of the names of marks.
    static let prefix = ".offered."
    /// The maximum number of bytes of a mark, enough for the bundles of the largest index.
    private static let limit = 64 << 20

    /// Marks the objects of an index, with its deltas, delta sets and patches.
    ///
    /// - Throws: ``FileError`` if the store cannot be written.
    package static func write(
        _ stored: StoredIndex,
        to store: Directory
    ) throws(FileError) {
        try write(stored, deltas: stored.reference.deltas, to: store)
    }

    static func write(
        _ stored: StoredIndex,
        deltas: [PackIndex.Delta],
        to store: Directory
    ) throws(FileError) {
        try write(
            stored.index,
            named: stored.reference.digest,
            archive: stored.archive,
            fileTableDelta: stored.reference.fileTableDelta,
            deltas: deltas,
            to: store
        )
    }

    static func write(
        _ index: ContentIndex,
        named name: Digest,
        archive: PackArchive?,
        fileTableDelta: PackIndex.CompanionDelta?,
        deltas: [PackIndex.Delta] = [],
        to store: Directory
    ) throws(FileError) {
        // Without a record, a collection that waits at all removes nothing, so the store needs no marks.
        guard try store.status(FilePath(StoreGarbageCollection.recordName)) != nil else { return }
        let patches = deltas.compactMap(\.patch)
        let patchPaths = patches.map(\.url) + patches.compactMap(\.indexDelta?.url)
        let paths =
            ["i/\(name)"] + index.bundles.map { "b/\($0.digest)" }
            + [archive?.url, fileTableDelta?.url].compactMap(\.self) + deltas.map(\.url)
            + deltas.compactMap(\.frames).map { "\(StoreObjectKind.deltas.folder)/\($0.digest)" }
            + patchPaths
        let text = Array(paths.map { $0 + "\n" }.joined().utf8)
        // The name stands for the text, so that marks of one version do not add up.
        guard let file = FilePath.Component("\(prefix)\(Digest(of: text))") else {
            throw FileError("create", path: store.path, errno: .invalidArgument)
        }
        try store.write(text, to: file, durably: true)
    }

    /// Returns the marks of a store, and the paths that they list.
    static func all(
        in store: Directory
    ) throws(FileError) -> (names: [FilePath.Component], paths: Set<String>) {
        var names: [FilePath.Component] = []
        var paths: Set<String> = []
        for entry in try store.entries()
        where entry.kind == .file && entry.path.string.hasPrefix(prefix) {
            guard let file = try store.file(reading: entry.path) else { continue }
            let text = String(decoding: try file.readAll(limit: limit), as: UTF8.self)
            paths.formUnion(text.split(separator: "\n").map(String.init))
            names.append(entry.name)
        }
        return (names, paths)
    }
}
