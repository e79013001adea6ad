import StageDigest
import StageIndex
package import StageModel
package import StageSystem
package import SystemPackage

/// Garbage collection of a store: removes objects that no published manifest names any more.
///
/// Clients with an older manifest may still download such objects, so an object is kept for some time after
/// it was first found unused. The store records that time in its file `.unused`, and deletes the record when
/// a manifest names the object again, or a version that contains it is packaged or offered (``OfferMark``).
/// Only objects in the directories `a`, `b`, `d`, `i` and `p` are considered.
package struct StoreGarbageCollection: Equatable, Sendable {
    /// The number and total size of objects.
    package struct Count: Equatable, Sendable {
        /// The number of objects.
        package var objects = 0
        /// The total size of the objects.
        package var size = ByteCount.zero

        mutating func add(_ size: Int64) {
            objects += 1
            self.size = self.size + ByteCount(size)
        }
    }

    /// The objects that were removed or, in a dry run, would be.
    package private(set) var removed = Count()
    /// The unused objects that are not old enough to be removed.
    package private(set) var waiting = Count()
    /// The objects that the manifests name.
    package private(set) var used = Count()
    /// The number of versions of packs that the manifests name and that other stores have.
    package private(set) var packsOfOtherStores = 0

    /// The file that records since when objects are unused.
    static let recordName: FilePath.Component = ".unused"

    /// The earliest time that a right clock can show, in seconds since 1970: the start of 2026.
    private static let earliestTime = Int64(1_767_225_600)

    /// Returns whether a temporary file belongs to the record or to a mark.
    static func isOwnFile(_ name: String) -> Bool {
        name.hasPrefix(".\(recordName.string).") || name.hasPrefix(".\(OfferMark.prefix)")
    }

    /// Removes objects that have been unused for a time, and records objects that are unused now.
    ///
    /// Reads and verifies all indexes that the manifests name, also those in other stores, before it removes an object. When
    /// killed, it leaves objects that the next call removes.
    ///
    /// - Parameters:
    ///   - store: The store.
    ///   - lock: The lock of the store, taken before the manifests were read: none is offered meanwhile.
    ///   - manifests: The published manifests of all applications whose packs are in the store.
    ///   - seconds: The time for which an unused object is kept; 0 removes it at once.
    ///   - now: The current time, in seconds since 1970.
    ///   - isDryRun: Indicates whether the store is left unchanged.
    /// - Returns: The objects that were removed, are kept for a time, or are in use.
    /// - Throws: ``StoreGarbageCollectionError``; all objects that the manifests name are still in the store then.
    package static func collect(
        _ store: Directory,
        holding lock: borrowing StoreLock,
        keeping manifests: [PublishedManifest],
        for seconds: Int64,
        now: Int64,
        isDryRun: Bool = false
    ) throws(StoreGarbageCollectionError) -> StoreGarbageCollection {
        // The times of a wrong clock would be recorded, and the next collection would remove all unused objects as old ones.
        guard now >= earliestTime else { throw .clockIsBehind }
        let packs: PublishedPacks
        do throws(FileError) {
            packs = try PublishedPacks(of: manifests, in: store)
        } catch {
            throw .file(error)
        }
        let live = try Self.objects(of: packs)
        do throws(FileError) {
            var collection = StoreGarbageCollection()
            collection.packsOfOtherStores = packs.otherCount
            try collection.countAndRemove(
                store,
                live: live,
                seconds: seconds,
                now: now,
                isDryRun: isDryRun
            )
            return collection
        } catch {
            throw .file(error)
        }
    }

    /// Counts the objects of the store, and removes the expired ones.
    private mutating func countAndRemove(
        _ store: Directory,
        live: Set<String>,
        seconds: Int64,
        now: Int64,
        isDryRun: Bool
    ) throws(FileError) {
        let record = try UnusedObjects(of: store)
        let known = record ?? UnusedObjects()
        let marks = try OfferMark.all(in: store)
        var unused = UnusedObjects()
        var expired: [(folder: Directory, name: FilePath.Component)] = []
        for folder in StoreObjectKind.allCases.map(\.folder) {
            guard let directory = try store.directory(FilePath(folder)) else { continue }
            for entry in try directory.entries()
            where entry.kind == .file && StoreObjectName(entry.path.string) != nil {
                let path = "\(folder)/\(entry.name)"
                let size = try directory.status(entry.path)?.size ?? 0
                guard !live.contains(path) else {
                    used.add(size)
                    continue
                }
                // A clock that was ahead does not extend the time. For a marked object, the time when it
                // became unused is unknown.
                let isMarked = marks.paths.contains(path)
                let since = isMarked ? now : min(known.times[path] ?? now, now)
                unused.times[path] = since
                if !isMarked, now - since >= seconds {
                    removed.add(size)
                    expired.append((directory, entry.name))
                } else {
                    waiting.add(size)
                }
            }
        }
        guard !isDryRun else { return }
        // Synced before the first removal: after a crash, the remaining objects keep their times.
        // An empty record, too: packaging marks objects only in stores with a record.
        var isRecorded = unused == record
        if !isRecorded {
            do throws(FileError) {
                try unused.write(to: store)
                isRecorded = true
            } catch {
                // The removal makes the space for the record.
                guard error.isOutOfSpace, !expired.isEmpty else { throw error }
            }
        }
        try Self.remove(expired)
        if !isRecorded { try unused.write(to: store) }
        for name in marks.names { try store.remove(name) }
    }

    /// Removes objects by their directories and names.
    private static func remove(
        _ expired: [(folder: Directory, name: FilePath.Component)]
    ) throws(FileError) {
        for (folder, name) in expired {
            // Does nothing for objects other than indexes, which have no record.
            try PackRecord.remove(beside: folder.path.appending(name))
            try folder.remove(name)
        }
    }

    /// Returns the paths of the objects that manifests name; the stores must contain all their indexes.
    ///
    /// An object of this store that a pack of another store names, too, is kept, and so is an archive that a pack without an
    /// index names.
    private static func objects(
        of packs: PublishedPacks
    ) throws(StoreGarbageCollectionError) -> Set<String> {
        var paths: Set<String> = []
        for element in packs.own + packs.others {
            let content = try content(of: element)
            paths.formUnion((element.pack.offeredObjects + content.offeredBundles).map(\.path))
        }
        guard !paths.isEmpty else { throw .nothingIndexed }
        return paths.union(packs.archives.map(\.path))
    }

    /// Reads an index that a manifest names.
    private static func content(
        of element: PublishedPacks.Element
    ) throws(StoreGarbageCollectionError) -> ContentIndex {
        let (reference, pack) = (element.index, element.pack.id)
        let path = element.store.pushing(FilePath(reference.storePath))
        let stored: StoredIndex
        do throws(StoredIndex.Fault) {
            stored = try StoredIndex(at: path, findsCompanions: false)
        } catch {
            guard case .file(let error) = error, error.errno == .noSuchFileOrDirectory else {
                throw .index(pack, error)
            }
            throw .missingIndex(pack, path)
        }
        guard stored.reference.digest == reference.digest else {
            throw .index(pack, .damaged(path))
        }
        return stored.index
    }
}

/// The objects of a store that were unused at the last collection.
private struct UnusedObjects: Equatable {
    /// The times when objects were first found unused, in seconds since 1970, by path in the store.
    var times: [String: Int64] = [:]

    /// The maximum number of bytes to read: half a million objects.
    private static let limit = 64 << 20

    init() {}

    /// Reads the record of a store; `nil` if the store was never collected.
    ///
    /// Ignores invalid lines.
    init?(of store: Directory) throws(FileError) {
        guard let file = try store.file(reading: FilePath(StoreGarbageCollection.recordName)) else {
            return nil
        }
        let text = String(decoding: try file.readAll(limit: Self.limit), as: UTF8.self)
        for line in text.split(separator: "\n") {
            let fields = line.split(separator: " ")
            guard fields.count == 2, let time = Int64(fields[0]) else { continue }
            times[String(fields[1])] = time
        }
    }

    /// Replaces the record.
    func write(to store: Directory) throws(FileError) {
        let lines = times.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)\n" }
        try store.write(
            Array(lines.joined().utf8),
            to: StoreGarbageCollection.recordName,
            durably: true
        )
    }
}

/// The reason why nothing was removed from a store.
@nonexhaustive
package indirect enum StoreGarbageCollectionError: Error, Equatable, Sendable {
    /// A file cannot be read, written or removed.
    case file(FileError)
    /// The clock shows a time before 2026.
    case clockIsBehind
    /// The file system of this store has no locks, which keep other commands away.
    case withoutLocks(FilePath)
    /// No manifest names an index, so all objects would be removed.
    case nothingIndexed
    /// The store lacks the index of an offered pack.
    case missingIndex(PackID, FilePath)
    /// The index of an offered pack cannot be read.
    case index(PackID, StoredIndex.Fault)
}

extension StoreGarbageCollectionError: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    package var description: String {
        switch self {
        case .file(let error): error.description
        case .clockIsBehind: "the clock of this machine is wrong: it shows a time before 2026"
        case .withoutLocks(let store):
            "the file system of '\(store)' has no locks, so objects that another command is about to publish could be removed"
        case .nothingIndexed: "no manifest offers an indexed pack"
        case .missingIndex(let pack, let path): "pack '\(pack)': there is no '\(path)'"
        case .index(let pack, let fault): "pack '\(pack)': \(fault)"
        }
    }
}
