import StageIndex
import StageModel
import StagePublish
import StageSystem
import SystemPackage

/// The index of a published version, named by its file or by a manifest.
struct IndexFile {
    private let path: String

    init(_ path: String) { self.path = path }

    /// Reads the index, whichever pack it is of; its deltas, delta sets and archive are read, too, unless these are
    /// of no interest.
    func read(findsCompanions: Bool = true) throws(CommandFailure) -> StoredIndex {
        do throws(StoredIndex.Fault) {
            return try StoredIndex(at: FilePath(path), findsCompanions: findsCompanions)
        } catch {
            throw Self.failure(error)
        }
    }

    /// Reads the index of a store that is about to be offered, and has its objects kept until it is.
    ///
    /// An index that is in no store is read alone.
    func readForOffer() throws(CommandFailure) -> StoredIndex {
        let stored = try read()
        do throws(FileError) {
            guard let store = try store() else { return stored }
            guard let bundles = try store.directory("b") else { return stored }
            for bundle in stored.index.bundles {
                let name = FilePath("\(bundle.digest)")
                guard try bundles.status(name)?.size == bundle.size else {
                    throw FileError(
                        "open",
                        path: bundles.path.pushing(name),
                        errno: .noSuchFileOrDirectory
                    )
                }
            }
            try StoreMark.write(stored, to: store)
        } catch {
            throw CommandFailure(output: error)
        }
        return stored
    }

    /// Opens the store that the index is in; `nil` for an index that is in no folder `i`.
    func store() throws(FileError) -> Directory? {
        let folder = FilePath(path).absolute.removingLastComponent()
        guard folder.lastComponent == "i" else { return nil }
        return try Directory.open(folder.removingLastComponent())
    }

    /// The file of the index of a pack: this one or, where it is a manifest, the one that it names in a
    /// store.
    ///
    /// `pack` is `nil` where it is not known; then a manifest is refused.
    func index(of pack: PackID?, in store: FilePath) throws(CommandFailure) -> IndexFile {
        guard let manifest = try manifest() else { return self }
        guard let pack else {
            throw .usage(
                "'\(path.forDisplay())' is a manifest: name an index, or pass '--manifest'"
            )
        }
        guard let reference = manifest[pack]?.index else {
            throw .usage("the manifest '\(path.forDisplay())' has no index of the pack '\(pack)'")
        }
        let name = reference.url.split(separator: "/").suffix(2).joined(separator: "/")
        return IndexFile(store.pushing(FilePath(name)).string)
    }

    /// The time at which the index was written, in nanoseconds since 1970.
    func modified() throws(CommandFailure) -> Int64 {
        do throws(FileError) {
            return try File.open(readingRegular: FilePath(path)).identity().modified
        } catch {
            throw .usage(error.description)
        }
    }

    /// The manifest that the file is; `nil` for anything else.
    private func manifest() throws(CommandFailure) -> Manifest? {
        do throws(FileError) {
            let limit = IndexLimits.byteCount
            let bytes = try File.open(readingRegular: FilePath(path)).readAll(limit: limit)
            // A file that is no manifest is an index, or refused as one.
            return try? Manifest(json: bytes)
        } catch {
            throw .usage(error.description)
        }
    }

    private static func failure(_ fault: StoredIndex.Fault) -> CommandFailure {
        var failure = CommandFailure.usage(fault.description)
        if case .notAnIndex = fault {
            failure.hint = "name a file of the folder 'i' of a store"
        }
        return failure
    }
}
