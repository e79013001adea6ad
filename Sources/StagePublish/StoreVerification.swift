import StageDigest
import StageFrame
import StageIndex
package import StageModel
package import StageSystem
import SystemPackage

/// A comparison of all objects of a store with their names, and with the sizes and digests in published manifests.
///
/// Changes nothing.
package struct StoreVerification: Equatable, Sendable {
    /// A reason why clients cannot use an object.
    package enum Fault: Equatable, Sendable {
        /// A manifest or an index names the object, and the store does not have it.
        case missing
        /// The object has other bytes than its name, an index or a manifest says.
        case damaged
        /// The object cannot be read.
        case unreadable(FileError)
    }

    /// An object with a fault.
    package struct Finding: Equatable, Sendable {
        /// The path in the store.
        package var path: String
        /// The reason.
        package var fault: Fault
        /// The packs of the manifests that need the object, sorted.
        package var packs: [PackID]

        /// Creates a finding from its parts.
        package init(path: String, fault: Fault, packs: [PackID]) {
            (self.path, self.fault, self.packs) = (path, fault, packs)
        }
    }

    /// The objects without a fault.
    package private(set) var intact = StoreGarbageCollection.Count()
    /// The objects with a fault, sorted by path.
    package private(set) var findings: [Finding] = []
    /// `false` if manifests name objects, and the store has none of them: they were published from another store.
    package private(set) var hasNamedObjects = true
    /// The number of versions of packs that the manifests name and that other stores have, which are not verified.
    package private(set) var packsOfOtherStores = 0
    /// The error of the first index that does not fit in memory, so that its missing bundles, and damage of the deltas
    /// from it, are not found; `nil` if there is none.
    package private(set) var shortage: StoredIndex.Fault?

    /// Reads and compares all objects of a store.
    ///
    /// Objects are read to their ends, one on each processor at a time, and an index is decoded. The delta of an index, whose name is not
    /// the digest of its bytes, is applied to the older index if the store has that.
    ///
    /// - Parameters:
    ///   - store: The store.
    ///   - lock: The lock of the store, which keeps garbage collections away.
    ///   - manifests: Published manifests with packs in the store; may be empty.
    ///   - width: The number of processors to use.
    ///   - report: Called with the bytes of the objects that were read, and those of all.
    /// - Returns: The findings; incomplete if the task was cancelled, or with ``shortage``.
    /// - Throws: ``FileError`` if a directory of the store cannot be read.
    package static func verify(
        _ store: Directory,
        holding lock: borrowing StoreLock,
        offeredBy manifests: [PublishedManifest],
        width: Int,
        report: @Sendable (_ done: ByteCount, _ total: ByteCount) -> Void = { _, _ in }
    ) async throws(FileError) -> StoreVerification {
        let objects = try StoredObject.all(in: store)
        let packs = try PublishedPacks(of: manifests, in: store)
        var named = OfferedObjects()
        for element in packs.own { named.add(element.pack.offeredObjects, for: element.pack.id) }
        let total = objects.reduce(ByteCount.zero) { $0 + $1.size }
        var done = ByteCount.zero
        var verification = StoreVerification()
        var outcomes: [String: ObjectOutcome] = [:]
        // The deltas of indexes need the older ones, which are found first.
        for part in [objects.filter { !$0.isDelta }, objects.filter(\.isDelta)] {
            let indexes = IndexNames(of: outcomes)
            var next = 0
            while next < part.count, !Task.isCancelled {
                let batch = Array(part[next..<min(next + width, part.count)])
                let found = await mapInParallel(batch, width: width) { objects in
                    objects.map { $0.outcome(in: store, after: indexes) }
                }
                for (object, outcome) in zip(batch, found) {
                    outcomes[object.path] = outcome
                    verification.shortage = verification.shortage ?? outcome.shortage
                    done = done + object.size
                }
                report(done, total)
                next += batch.count
            }
        }
        let shortage = named.addBundles(of: packs.own, in: store, outcomes)
        verification.shortage = verification.shortage ?? shortage
        verification.packsOfOtherStores = packs.otherCount
        verification.conclude(from: objects, outcomes, named: named)
        return verification
    }

    /// Compares the objects with the sizes and digests that manifests and indexes give for them.
    private mutating func conclude(
        from objects: [StoredObject],
        _ outcomes: [String: ObjectOutcome],
        named: OfferedObjects
    ) {
        for object in objects {
            guard let outcome = outcomes[object.path] else { continue }
            let expected = named.objects[object.path]
            let fault =
                outcome.fault
                ?? (expected?.accepts(digest: outcome.digest, size: object.size) ?? true
                    ? nil : .damaged)
            if let fault {
                let packs = expected?.packs.sorted() ?? []
                findings.append(Finding(path: object.path, fault: fault, packs: packs))
            } else {
                intact.add(object.size.rawValue)
            }
        }
        let present = Set(objects.map(\.path))
        hasNamedObjects =
            named.objects.isEmpty || named.objects.keys.contains { present.contains($0) }
        for (path, expected) in named.objects where !present.contains(path) {
            findings.append(
                Finding(path: path, fault: .missing, packs: expected.packs.sorted())
            )
        }
        findings.sort { $0.path < $1.path }
    }
}

/// The sizes and digests that manifests and indexes give for the objects of a store, by path.
private struct OfferedObjects {
    struct Expectation {
        /// The sizes and digests, which are equal unless two manifests contradict each other.
        var forms: Set<OfferedObject> = []
        var packs: Set<PackID> = []

        func accepts(digest: Digest?, size: ByteCount) -> Bool {
            forms.allSatisfy { $0.digest == digest && $0.size == size }
        }
    }

    private(set) var objects: [String: Expectation] = [:]

    mutating func add(_ offered: [OfferedObject], for pack: PackID) {
        for object in offered {
            objects[object.path, default: Expectation()].forms.insert(object)
            objects[object.path, default: Expectation()].packs.insert(pack)
        }
    }

    /// Adds the bundles of the intact indexes that the manifests name; returns the error of the first one that does not fit
    /// in memory.
    mutating func addBundles(
        of packs: [PublishedPacks.Element],
        in store: Directory,
        _ outcomes: [String: ObjectOutcome]
    ) -> StoredIndex.Fault? {
        var shortage: StoredIndex.Fault?
        for element in packs {
            let path = element.index.storePath
            guard outcomes[path]?.fault == nil else { continue }
            let stored: StoredIndex
            do throws(StoredIndex.Fault) {
                stored = try StoredIndex(
                    at: store.path.pushing(FilePath(path)),
                    findsCompanions: false
                )
            } catch {
                if case .noMemory = error { shortage = shortage ?? error }
                // Another finding names an index that is missing or damaged.
                continue
            }
            add(stored.index.offeredBundles, for: element.pack.id)
        }
        return shortage
    }
}

/// The paths of the intact indexes of a store, by the digests of their decompressed bytes.
private struct IndexNames: Sendable {
    private var paths: [Digest: String] = [:]

    init(of outcomes: [String: ObjectOutcome]) {
        for (path, outcome) in outcomes where outcome.fault == nil {
            if let content = outcome.content { paths[content] = path }
        }
    }

    /// Returns the decompressed bytes of an index; `nil` if the store does not have it.
    func content(of digest: Digest, in store: Directory) throws(FileError) -> [UInt8]? {
        guard let path = paths[digest], let file = try store.file(reading: FilePath(path)) else {
            return nil
        }
        return try? StoredIndex.content(of: file.readAll(limit: IndexLimits.byteCount))
    }
}

/// The result of reading an object.
private struct ObjectOutcome: Sendable {
    var fault: StoreVerification.Fault?
    /// The digest of its bytes; `nil` if they cannot be read.
    var digest: Digest?
    /// The digest of the decompressed bytes of an index; `nil` for any other object.
    var content: Digest?
    /// The error of an index that does not fit in memory; `nil` for any other object.
    var shortage: StoredIndex.Fault?
}

/// An object that is in a store.
private struct StoredObject: Sendable {
    let path: String
    let size: ByteCount
    private let kind: StoreObjectKind
    private let name: StoreObjectName

    /// `true` if the object is the delta of an index from an older one.
    var isDelta: Bool { kind == .index && name.digest == nil }

    /// Returns the objects of a store, in the order of their paths.
    static func all(in store: Directory) throws(FileError) -> [StoredObject] {
        var objects: [StoredObject] = []
        for kind in StoreObjectKind.allCases {
            guard let directory = try store.directory(FilePath(kind.folder)) else { continue }
            for entry in try directory.entries() where entry.kind == .file {
                guard let name = StoreObjectName(entry.path.string) else { continue }
                objects.append(
                    StoredObject(
                        path: "\(kind.folder)/\(entry.path.string)",
                        size: ByteCount(try directory.status(entry.path)?.size ?? 0),
                        kind: kind,
                        name: name
                    )
                )
            }
        }
        return objects.sorted { $0.path < $1.path }
    }

    private init(path: String, size: ByteCount, kind: StoreObjectKind, name: StoreObjectName) {
        (self.path, self.size, self.kind, self.name) = (path, size, kind, name)
    }

    /// Reads the object, and compares it with its name.
    func outcome(in store: Directory, after indexes: IndexNames) -> ObjectOutcome {
        do throws(FileError) {
            guard let file = try store.file(reading: FilePath(path)) else {
                return ObjectOutcome(fault: .missing)
            }
            guard kind == .index else {
                let digest = try Digest(of: file)
                return ObjectOutcome(
                    fault: name.digest == digest ? nil : .damaged,
                    digest: digest
                )
            }
            guard size.rawValue <= Int64(IndexLimits.byteCount) else {
                return ObjectOutcome(fault: .damaged)
            }
            return try outcome(
                ofIndex: file.readAll(limit: IndexLimits.byteCount),
                in: store,
                after: indexes
            )
        } catch {
            return ObjectOutcome(fault: .unreadable(error))
        }
    }

    /// Compares an index, or a delta of one, with its name.
    private func outcome(
        ofIndex bytes: [UInt8],
        in store: Directory,
        after indexes: IndexNames
    ) throws(FileError) -> ObjectOutcome {
        var outcome = ObjectOutcome(digest: Digest(of: bytes))
        if let digest = name.digest {
            guard digest == outcome.digest else {
                outcome.fault = .damaged
                return outcome
            }
            // A delta for clients of the archive or a patch: its content cannot be compared without that.
            guard name.content == nil else { return outcome }
            do throws(StoredIndex.Fault) {
                let location = store.path.pushing(FilePath(path))
                let decoded = try StoredIndex.decode(bytes, at: location)
                outcome.content = Digest(of: decoded.content)
            } catch {
                if case .noMemory = error {
                    outcome.shortage = error
                } else {
                    outcome.fault = .damaged
                }
            }
            return outcome
        }
        guard let base = name.base, let old = try indexes.content(of: base, in: store) else {
            return outcome
        }
        var decompressor = FrameDecompressor()
        let made = try? decompressor.decompress(
            bytes.span,
            after: old.span,
            to: min(FrameDecompressor.contentSize(of: bytes.span), IndexLimits.byteCount)
        )
        if made.map({ Digest(of: $0) }) != name.content { outcome.fault = .damaged }
        return outcome
    }
}
