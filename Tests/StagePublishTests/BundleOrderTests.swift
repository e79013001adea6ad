import StageDigest
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// The locations of the frames of a new version.
@Suite(.largeDirectory)
struct BundleOrderTests {
    private let store: IndexedStore
    private let old = Self.trees.old
    private let new = Self.trees.new

    init() throws { store = try IndexedStore() }

    /// Two trees: every other file of the second is new, and the others have changed a little.
    private static let trees = {
        // Most of the old bundle stays in use, so that it is not repacked.
        var old: [String: [UInt8]] = ["same": noise(1_200_000), "gone": noise(90_000, seed: 2)]
        for number in 0..<5 {
            old["\(number)/changed"] = noise(150_000, seed: UInt64(number + 10))
        }
        for number in 0..<60 {
            old["small/\(number)"] = noise(2000 + number, seed: UInt64(number + 20))
        }
        var new = old
        new["gone"] = nil
        for number in 0..<5 {
            new["\(number)/changed"]?[75_000] ^= 1
            new["\(number)/fresh"] = noise(120_000, seed: UInt64(number + 100))
        }
        for number in 0..<60 { new["small/\(number)"]?[1000] ^= 1 }
        new["large new one"] = noise(70_000, seed: 3)
        return (old: old, new: new)
    }()

    /// Returns the frames that a version does not share with an older one, in order.
    private func fresh(_ new: ContentIndex, after old: ContentIndex) -> [Int] {
        let known = Set(old.frames.map(\.digest))
        return new.frames.indices.filter { !known.contains(new.frames[$0].digest) }
    }

    /// Returns the same frames, with the ones that have delta frames at the end.
    private func arranged(_ new: IndexedPack, after old: IndexedPack) throws -> [Int] {
        let made = Set(try store.deltaSet(of: new).frames.map(\.position))
        let fresh = fresh(new.index, after: old.index)
        return fresh.filter { !made.contains($0) } + fresh.filter { made.contains($0) }
    }

    /// Checks that the bundles after `count` contain exactly these frames, one after the other.
    private func expect(_ positions: [Int], in index: ContentIndex, after count: Int) {
        var (bundle, offset) = (count, Int64(0))
        let wrong = positions.first { position in
            let frame = index.frames[position]
            if offset == index.bundles[bundle].size { (bundle, offset) = (bundle + 1, 0) }
            defer { offset += Int64(frame.storedLength) }
            return frame.bundle != bundle || frame.offset != offset
        }
        #expect(wrong == nil)
        #expect(bundle == index.bundles.count - 1 && offset == index.bundles.last?.size)
    }

    /// Checks that the store contains exactly the bundles of these versions.
    private func expectBundles(of packs: [IndexedPack]) throws {
        let digests = Set(packs.flatMap(\.index.bundles).map(\.digest.description))
        #expect(try store.names(in: "b") == digests.sorted())
        for pack in packs { _ = try store.files(of: pack.index) }
    }

    @Test func framesWithDeltasComeLast() async throws {
        let first = try await store.package(old, "old")
        let identity = try identity(of: first)
        let second = try await store.package(new, "new", after: first.index)
        let order = try arranged(second, after: first)
        // In input order, the frames with and without delta frames alternate.
        let switches = zip(order, order.dropFirst()).filter { $1 != $0 + 1 }
        #expect(switches.count >= 8)
        expect(order, in: second.index, after: 1)
        #expect(try store.files(of: second.index) == new)
        #expect(second.newBytes == ByteCount(second.index.bundles[1].size))
        try expectBundles(of: [first, second])
        #expect(try self.identity(of: first) == identity)
        // An update requests nothing else, in one range.
        let made = Set(try store.deltaSet(of: second).frames.map(\.position))
        let others = order.filter { !made.contains($0) }
        let plan = RangePlan(others, of: second.index)
        let length = others.reduce(Int64(0)) { $0 + Int64(second.index.frames[$1].storedLength) }
        #expect(plan.requests.map(\.range) == [0..<length])
    }

    /// Returns the identity of the file of a version's first bundle.
    private func identity(of pack: IndexedPack) throws -> FileIdentity {
        let bundle = FilePath("b/\(pack.index.bundles[0].digest)")
        return try File.open(reading: store.directory().path.pushing(bundle)).identity()
    }

    @Test func theSameFilesGiveTheSameObjects() async throws {
        let first = try await store.package(old, "old")
        let second = try await store.package(new, "new", after: first.index)
        for width in [1, 3] {
            let other = try IndexedStore("store \(width)")
            #expect(try await other.package(old, "old") { $0.width = width } == first)
            let again = try await other.package(new, "new", after: first.index) {
                $0.width = width
            }
            #expect(again == second)
            for folder: FilePath in ["b", "d", "i"] {
                #expect(try other.names(in: folder) == store.names(in: folder))
            }
        }
    }

    @Test func withoutDifferencesFramesLieAsTheyCome() async throws {
        let first = try await store.package(old, "old")
        expect(Array(first.index.frames.indices), in: first.index, after: 0)
        let second = try await store.package(new, "new", after: first.index) {
            $0.makesDeltas = false
        }
        expect(fresh(second.index, after: first.index), in: second.index, after: 1)
        #expect(try store.files(of: second.index) == new)
        try expectBundles(of: [first, second])
    }

    /// Frames that are in order already are not rewritten.
    @Test(arguments: [true, false])
    func anOrderThatIsRightIsKept(isRight: Bool) async throws {
        let (changed, fresh) = isRight ? ("z", "a") : ("a", "z")
        let old = [changed: noise(100_000), "same": noise(150_000, seed: 9)]
        var new = old
        new[changed]?[500] ^= 1
        new[fresh] = noise(100_000, seed: 2)
        let first = try await store.package(old, "old")
        let bundles = try store.directory("b")
        let found = Mutex<[UInt64]>([])
        let second = try await store.package(new, "new", after: first.index) {
            $0.reportComparison = { _, _ in
                let inodes = drafts(in: bundles).compactMap { try? bundles.status($0)?.inode }
                found.withLock { $0 = inodes }
            }
        }
        expect(try arranged(second, after: first), in: second.index, after: 1)
        let status = try bundles.status(FilePath("\(second.index.bundles[1].digest)"))
        let inode = try #require(status).inode
        #expect(found.withLock { $0.count } == 1)
        #expect(found.withLock { $0 == [inode] } == isRight)
        #expect(drafts(in: bundles).isEmpty)
    }

    @Test func framesOfSeveralBundlesAreArranged() async throws {
        let old = [
            "a": noise(100_000), "same": noise(300_000, seed: 9), "y": noise(100_000, seed: 2),
        ]
        var new = manyFiles(70 << 20)
        for (name, bytes) in old {
            new[name] = bytes
            if name != "same" { new[name]?[60_000] ^= 1 }
        }
        let first = try await store.package(old, "old")
        // The archive would be smaller than the new frames, even with the set.
        let second = try await store.package(new, "new", after: first.index) {
            $0.makesArchive = false
        }
        let bundles = second.index.bundles.dropFirst()
        #expect(bundles.count == 2 && bundles.allSatisfy { $0.size <= 64 << 20 })
        let order = try arranged(second, after: first)
        #expect(order != order.sorted())
        expect(order, in: second.index, after: 1)
        #expect(try store.files(of: second.index) == new)
        try expectBundles(of: [first, second])
    }
}

/// The content of a store after a failed run.
@Suite(.directory)
struct UnfinishedVersionTests {
    private let store: IndexedStore

    init() throws { store = try IndexedStore() }

    /// The moment at which a run fails.
    enum Moment: CaseIterable { case firstBundles, beforeComparing, afterComparing }

    @Test(arguments: Moment.allCases)
    func aCancelledVersionLeavesNothing(moment: Moment) async throws {
        let (old, new) = versions(large: moment == .firstBundles)
        let first = try await store.package(old, "old")
        let before = try objects()
        let bundles = try store.directory("b")
        let found = Mutex(0)
        let cancel: @Sendable () -> Void = {
            found.withLock { $0 = drafts(in: bundles).count }
            if found.withLock({ $0 }) > 0 { unsafe withUnsafeCurrentTask { unsafe $0?.cancel() } }
        }
        let ending = await ending(of: new, after: first) { writer in
            if moment == .firstBundles { writer.report = { _ in cancel() } }
            writer.reportComparison = { done, total in
                if done == (moment == .afterComparing ? total : .zero) { cancel() }
            }
        }
        #expect(ending == .cancelled)
        #expect(found.withLock { $0 } == 1)
        #expect(try objects() == before)
        // The failed run does not affect the next one.
        let second = try await store.package(new, "new", after: first.index)
        #expect(try store.files(of: second.index) == new)
    }

    /// Temporary files of killed runs, and of running ones.
    @Test(arguments: [true, false])
    func aRunThatIsAloneRemovesFilesOfKilledRuns(isAlone: Bool) async throws {
        _ = try await store.package(["a": noise(1000)], "old")
        let root = try store.directory()
        _ = try root.makeDirectory("d")
        let (left, others) = (["b/.bundle.1x", "d/.deltas.1x"], ["b/.htaccess", "d/x.bundle."])
        for path in left + others { _ = try root.file(creating: FilePath(path)) }
        let lock = isAlone ? nil : try LockFile.attempt(".lock", in: root, mode: .shared)
        _ = try await store.package(["a": noise(2000)], "new")
        for path in left { #expect(try (root.status(FilePath(path)) == nil) == isAlone) }
        for path in others { #expect(try root.status(FilePath(path)) != nil) }
        _ = consume lock
    }

    /// A running process keeps other processes from removing its files.
    @Test func temporaryFilesOfARunningProcessAreNotRemoved() async throws {
        let bundles = Mutex<[Bool]>([])
        let root = try store.directory()
        _ = try await store.package(["a": noise(1000)], "old") { writer in
            writer.report = { _ in
                let lock = try? LockFile.attempt(
                    ".lock",
                    in: root,
                    mode: .exclusive
                )
                bundles.withLock { $0.append(lock == nil) }
            }
        }
        #expect(bundles.withLock { $0 } == [true])
    }

    /// A temporary bundle that became shorter is detected when its frames are copied.
    @Test(arguments: [0, 100_000])
    func aVersionThatCannotBeArrangedLeavesNothing(size: Int64) async throws {
        let (old, new) = versions()
        let first = try await store.package(old, "old")
        let before = try objects()
        let bundles = try store.directory("b")
        let ending = await ending(of: new, after: first) { writer in
            writer.reportComparison = { done, total in
                guard done == total else { return }
                for name in drafts(in: bundles) {
                    try? bundles.file(updatingExisting: name)?.truncate(to: size)
                }
            }
        }
        #expect(ending == .file(FileError("read", path: bundles.path, errno: .ioError)))
        #expect(try objects() == before)
    }

    @Test(arguments: ["d", "i"])
    func aStoreThatTakesNoMoreHasWholeBundles(folder: String) async throws {
        let (old, new) = versions()
        let first = try await store.package(old, "old")
        let path = FilePath(folder)
        let directory = try store.directory()
        if folder == "i" { try directory.removeTree("i") }
        _ = try directory.file(creating: path)
        let ending = await ending(of: new, after: first) { _ in }
        #expect(
            ending
                == .file(
                    FileError("open", path: directory.path.pushing(path), errno: .notDirectory)
                )
        )
        let names = try store.names(in: "b")
        #expect(names.count == 2)
        for name in names { #expect(Digest(of: try store.bytes("b/\(name)")).description == name) }
    }

    /// A version whose first frames have changed a little, and its predecessor.
    private func versions(
        large: Bool = false
    ) -> (old: [String: [UInt8]], new: [String: [UInt8]]) {
        let old = ["a": noise(100_000), "same": noise(150_000, seed: 9)]
        var new = large ? manyFiles(20 << 20) : ["b": noise(200_000, seed: 2)]
        new.merge(old) { $1 }
        new["a"]?[500] ^= 1
        return (old, new)
    }

    /// Returns the error of a run in a separate task, which must fail.
    private func ending(
        of files: [String: [UInt8]],
        after first: IndexedPack,
        change: @escaping @Sendable (inout IndexedPackWriter) -> Void
    ) async -> PackagingError? {
        await withTaskGroup(of: PackagingError?.self) { group in
            group.addTask {
                do {
                    _ = try await store.package(files, "new", after: first.index, change: change)
                    return nil
                } catch {
                    return error as? PackagingError
                }
            }
            return await group.next() ?? nil
        }
    }

    /// Returns all files of the store, including hidden ones, with their digests.
    private func objects() throws -> [String: Digest] {
        var objects: [String: Digest] = [:]
        for folder in try store.names(in: ".") {
            for name in try store.names(in: FilePath(folder)) {
                objects["\(folder)/\(name)"] = Digest(of: try store.bytes("\(folder)/\(name)"))
            }
        }
        return objects
    }
}

/// Returns the files of temporary bundles.
private func drafts(in bundles: Directory) -> [FilePath] {
    // A test without bundles finds none.
    let entries = (try? bundles.entries()) ?? []
    return entries.filter { $0.path.string.hasPrefix(".") }.map(\.path)
}

/// Returns small files of about this size without common content.
private func manyFiles(_ count: Int) -> [String: [UInt8]] {
    // More pieces than fit into a frame, so that frames have no common content.
    let pieces = (0..<8).map { noise(60_000, seed: UInt64($0 + 50)) }
    var files: [String: [UInt8]] = [:]
    for number in 0..<count / 60_000 {
        let name = String(number + 10_000)
        files["many/\(name)"] = Array(name.utf8) + pieces[number % pieces.count]
    }
    return files
}
