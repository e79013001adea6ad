import FoundationEssentials
import StageEngine
import StageIndex
import StageModel
import StagePublish
import StageSystem
import SystemPackage

/// The index of a published version, named by its file or by a manifest.
struct IndexFile {
    /// The path of the file, or of the target of a symbolic link.
    let path: String

    /// Follows a symbolic link, because the folder of the index tells its store.
    init(_ path: String) {
        self.path = FilePath(path).resolvedIfLink.string
    }

    /// Reads the index of any pack, and, unless `findsCompanions` is `false`, its deltas, delta sets and
    /// archive.
    func read(findsCompanions: Bool = true) throws(CommandFailure) -> StoredIndex {
        do throws(StoredIndex.Fault) {
            return try stored(findsCompanions: findsCompanions)
        } catch {
            throw Self.failure(error)
        }
    }

    private func stored(findsCompanions: Bool = true) throws(StoredIndex.Fault) -> StoredIndex {
        try StoredIndex(at: FilePath(path), findsCompanions: findsCompanions)
    }

    /// Keeps garbage collections away from the index's store until the lock ends; `nil` outside of a store.
    ///
    /// Hold it from before ``readForOffer(canBeArchive:)`` until the manifest is written.
    func lockStoreAgainstCollection() async throws(CommandFailure) -> StoreLock? {
        do throws(FileError) {
            guard let store = try store() else { return nil }
            return try await StoreLock(store, canBeReadOnly: true)
        } catch  where error.errno == .noSuchFileOrDirectory {
            // The error of reading the index names the missing file.
            return nil
        } catch {
            throw Task.isCancelled
                ? CommandFailure(StageError.cancelled) : CommandFailure(output: error)
        }
    }

    /// Reads an index that a manifest is about to offer, and marks its objects in the store, so that they are
    /// kept until then.
    ///
    /// Checks that the bundles of the index are in the store, and reads them completely. Outside of a store, only reads the index.
    ///
    /// - Parameter canBeArchive: `true` if the command takes an archive, too, which it knows by its name.
    /// - Returns: The index.
    /// - Throws: ``CommandFailure`` if the file cannot be read, is not an index, or its bundles are missing or damaged.
    func readForOffer(canBeArchive: Bool = false) async throws(CommandFailure) -> StoredIndex {
        let stored: StoredIndex
        do throws(StoredIndex.Fault) {
            stored = try self.stored()
        } catch {
            var failure = Self.failure(error)
            if canBeArchive, case .notAnIndex = error {
                failure.message =
                    "'\(path.forDisplay())' is neither the index of a pack nor an archive by its name"
                failure.hint = "pass --format for an archive with another name, or \(Self.advice)"
            }
            throw failure
        }
        try await check(stored)
        return stored
    }

    /// Throws if the bundles of an index are missing in its store or damaged, and marks its objects otherwise.
    private func check(_ stored: StoredIndex) async throws(CommandFailure) {
        let damaged: FilePath?
        do throws(FileError) {
            guard let store = try store() else { return }
            let bundles = store.path.appending("b")
            for bundle in stored.index.bundles {
                guard try store.status(FilePath("b/\(bundle.digest)")) != nil else {
                    throw FileError(
                        "open",
                        path: bundles.appending("\(bundle.digest)"),
                        errno: .noSuchFileOrDirectory
                    )
                }
            }
            let width = ProcessInfo.processInfo.activeProcessorCount
            let positions = try await stored.index.damagedBundles(in: store, width: width)
            damaged = positions.min().map { position in
                bundles.appending("\(stored.index.bundles[position].digest)")
            }
            if damaged == nil { try Self.mark(stored, in: store) }
        } catch {
            var failure = CommandFailure(output: error)
            if error.errno == .noSuchFileOrDirectory {
                failure.hint =
                    "copy it from another copy of the store, or package the version again"
            }
            throw failure
        }
        if let damaged { throw CommandFailure(damagedObject: damaged) }
    }

    /// Marks the objects of an index, whose names are on disk then; only warns in a store that this user cannot write.
    private static func mark(_ stored: StoredIndex, in store: Directory) throws(FileError) {
        do throws(FileError) {
            try store.synchronizeObjects()
            try OfferMark.write(stored, to: store)
        } catch  where [.readOnlyFileSystem, .permissionDenied].contains(error.errno) {
            Console.note(
                "stagepack: warning: the store is read-only: 'stagepack store gc' may remove the objects of this version unless it is "
                    + "run with a manifest that names the version"
            )
        }
    }

    /// Opens the store that contains the index; returns `nil` for an index that is not in a folder `i`.
    func store() throws(FileError) -> Directory? {
        let folder = FilePath(path).absolute.removingLastComponent()
        guard folder.lastComponent == "i" else { return nil }
        return try Directory.open(folder.removingLastComponent())
    }

    /// Returns the file of a pack's index: this file or, for a manifest, the index that it names in a store.
    ///
    /// `pack` is `nil` if it is not known; a manifest is then refused.
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
        return IndexFile(store.pushing(FilePath(reference.storePath)).string)
    }

    /// Returns the time at which the index was written, in nanoseconds since 1970.
    func modified() throws(CommandFailure) -> Int64 {
        do throws(FileError) {
            return try File.open(readingRegular: FilePath(path)).identity().modified
        } catch {
            throw Self.failure(reading: error)
        }
    }

    /// Returns the manifest in the file; `nil` if the file is not a manifest.
    private func manifest() throws(CommandFailure) -> Manifest? {
        do throws(FileError) {
            let limit = IndexLimits.byteCount
            let bytes = try File.open(readingRegular: FilePath(path)).readAll(limit: limit)
            // Any other file is read as an index, which may be refused.
            return try? Manifest(json: bytes)
        } catch {
            throw Self.failure(reading: error)
        }
    }

    /// Returns the failure for an index, or a manifest in its place, that cannot be read.
    static func failure(reading error: FileError) -> CommandFailure {
        var failure = CommandFailure(argument: error)
        if failure.status == .usage { failure.hint = advice }
        return failure
    }

    /// Returns the failure for an index that cannot be read.
    static func failure(_ fault: StoredIndex.Fault) -> CommandFailure {
        if case .damaged(let path) = fault { return CommandFailure(damagedObject: path) }
        if case .file(let error) = fault { return CommandFailure(argument: error) }
        if case .noMemory = fault { return CommandFailure(noMemory: fault.description) }
        var failure = CommandFailure.usage(fault.description)
        if case .notAnIndex = fault { failure.hint = advice }
        if case .difference(let path) = fault { failure.hint = advice(beside: path) }
        return failure
    }

    /// The advice to name an index.
    static let advice =
        "name an index of a store: a file of its folder 'i' with a name of 64 digits"

    /// The number of indexes that a hint names.
    private static let shownIndexes = 3

    /// Returns the advice to name one of the indexes in the folder of a file.
    private static func advice(beside path: FilePath) -> String {
        let folder = path.removingLastComponent()
        // Without access to the folder, no index is named.
        let entries = (try? Directory.open(folder.isEmpty ? "." : folder).entries()) ?? []
        let names = entries.map(\.path.string)
            .filter { (try? Digest(hexadecimal: $0)) != nil }.sorted()
        guard !names.isEmpty else { return advice }
        let shown = names.prefix(shownIndexes).map { name in
            "'\(folder.appending(name).string.forDisplay())'"
        }
        let others = names.count > shownIndexes ? " (there are \(names.count))" : ""
        return "name an index: \(shown.joined(separator: " or "))\(others)"
    }
}
