import StageIndex
import StageModel
public import StageSystem
import SystemPackage

/// A file of a store that names the objects of a version which is about to be offered.
///
/// Objects that are there are left alone, so their times do not tell that a new version has them. Without the mark,
/// ``StoreCollection`` could remove one before a manifest names it. It takes the marks away; a store that it has
/// never looked at gets none.
public enum StoreMark {
    /// The beginning of the names of marks, and of no others in a store.
    private static let prefix = ".offered."
    /// The most bytes of a mark: the bundles of the largest index, and more.
    private static let limit = 64 << 20

    /// Marks the objects of an index, with its deltas and delta sets.
    ///
    /// - Throws: ``FileError`` if the store cannot be written.
    public static func write(
        _ stored: StoredIndex,
        to store: Directory
    ) throws(FileError) {
        try write(stored, stored.reference.deltas, to: store)
    }

    static func write(
        _ stored: StoredIndex,
        _ deltas: [PackIndex.Delta],
        to store: Directory
    ) throws(FileError) {
        try write(stored.index, named: stored.reference.digest, stored.archive, deltas, to: store)
    }

    static func write(
        _ index: ContentIndex,
        named name: Digest,
        _ archive: PackArchive?,
        _ deltas: [PackIndex.Delta] = [],
        to store: Directory
    ) throws(FileError) {
        // Where nothing was ever found without use, the first collection removes nothing.
        guard try store.status(FilePath(StoreCollection.recordName)) != nil else { return }
        let paths =
            ["i/\(name)"] + index.bundles.map { "b/\($0.digest)" }
            + [archive?.url].compactMap(\.self) + deltas.map(\.url)
            + deltas.compactMap(\.frames).map { "\(StoreDraft.deltas.folder)/\($0.digest)" }
        let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        guard let file = FilePath.Component(prefix + mark) else {
            throw FileError("create", store.path, .invalidArgument)
        }
        let text = paths.map { $0 + "\n" }.joined()
        try store.write(Array(text.utf8), to: file, durably: true)
    }

    /// The marks of a store, and the paths that they name.
    static func all(
        in store: Directory
    ) throws(FileError) -> (names: [FilePath.Component], paths: Set<String>) {
        var names: [FilePath.Component] = []
        var paths: Set<String> = []
        for entry in try store.entries()
        where entry.kind == .file && entry.name.string.hasPrefix(prefix) {
            guard let file = try store.file(reading: FilePath(entry.name)) else { continue }
            let text = String(decoding: try file.readAll(limit: limit), as: UTF8.self)
            paths.formUnion(text.split(separator: "\n").map(String.init))
            names.append(entry.name)
        }
        return (names, paths)
    }
}
