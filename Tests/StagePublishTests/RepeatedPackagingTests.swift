import StageDigest
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Stores into which the same content is packaged again.
@Suite(.directory)
struct RepeatedPackagingTests {
    private let versions: [[String: [UInt8]]] = [
        ["a": noise(100_000, seed: 1), "b": noise(300, seed: 2), "c": noise(200, seed: 3)],
        ["a": noise(100_000, seed: 1) + [1], "c": noise(200, seed: 3), "d": noise(700, seed: 4)],
    ]

    /// An object as servers and synchronization tools see it.
    private struct Object: Equatable {
        var inode: UInt64
        var modified: Int64
    }

    private func objects(of store: IndexedStore) throws -> [String: Object] {
        var objects: [String: Object] = [:]
        for folder in ["b", "i", "d"] {
            guard let directory = try store.directory().directory(FilePath(folder)) else {
                continue
            }
            for entry in try directory.entries() {
                let name = entry.path
                // A replacement has another inode, even within the same second.
                let status = try #require(try directory.status(name))
                objects["\(folder)/\(name)"] = Object(
                    inode: status.inode,
                    modified: status.modified
                )
            }
        }
        return objects
    }

    @Test func existingObjectsAreNotRewritten() async throws {
        let store = try IndexedStore()
        let first = try await store.package(versions[0], "one")
        let second = try await store.package(versions[1], "two", after: first.index)
        let before = try objects(of: store)
        #expect(second.reference.deltas.count == 1)
        #expect(try await store.package(versions[0], "one again") == first)
        #expect(try await store.package(versions[1], "two again", after: first.index) == second)
        #expect(try objects(of: store) == before)
    }

    /// The file changes continuously: in most runs, between the computation of its digest and that of its frames.
    @Test func aLargeFileThatChangesHasTheContentOfItsDigestOrNone() async throws {
        let store = try IndexedStore()
        let path = try TemporaryDirectory.required().path.appending("tree").appending("log")
        let cancellation = Cancellation()
        startBlockingThread {
            var number: UInt8 = 0
            while !cancellation.isRequested {
                number &+= 1
                // The file is missing until the first run, and each run replaces it.
                guard let file = try? FileDescriptor.open(path, .writeOnly) else { continue }
                _ = try? file.writeAll(toAbsoluteOffset: 1_000_000, [number])
                try? file.close()
            }
        }
        defer { cancellation.request() }
        for _ in 0..<8 {
            do {
                let pack = try await store.package(["log": noise(2_000_000)], "tree") {
                    $0.makesArchive = false
                }
                let file = try #require(pack.index.entries.file(at: 0))
                let bytes = try #require(try store.files(of: pack.index)["log"])
                #expect(Digest(of: bytes) == file.digest)
            } catch PackagingError.changed {
                continue
            }
        }
    }

    @Test func aDamagedObjectIsReplaced() async throws {
        let store = try IndexedStore()
        let first = try await store.package(versions[0], "one")
        _ = try await store.package(versions[1], "two", after: first.index)
        var whole: [String: [UInt8]] = [:]
        for name in try objects(of: store).keys {
            whole[name] = try store.bytes(name)
            let path = FilePath(name)
            let folder = try store.directory(path.removingLastComponent())
            let component = try #require(path.lastComponent)
            try folder.write([1, 2, 3], to: component, durably: false)
        }
        _ = try await store.package(versions[0], "one again")
        _ = try await store.package(versions[1], "two again", after: first.index)
        for (name, bytes) in whole {
            #expect(try store.bytes(name) == bytes, "\(name)")
        }
    }

    @Test func unchangedFilesHaveTheIndexOfTheVersionBefore() async throws {
        let store = try IndexedStore()
        let first = try await store.package(versions[0], "one")
        let second = try await store.package(versions[1], "two", after: first.index)
        let before = try objects(of: store)
        for previous in [first, second] {
            let files = previous == first ? versions[0] : versions[1]
            let again = try await store.package(
                files,
                "again \(previous.newBytes)",
                after: previous.index
            )
            #expect(again.index == previous.index)
            #expect(again.reference.digest == previous.reference.digest)
            #expect(again.newBytes == .zero)
        }
        #expect(try objects(of: store) == before)
    }

    /// The directory of delta sets cannot be created, as on a full disk.
    @Test func aVersionIsCompleteIfOnlyItsUpdatesCannotBeWritten() async throws {
        let store = try IndexedStore()
        let files = ["a": noise(100_000, seed: 1) + [7], "b": [2]]
        let first = try await store.package(["a": noise(100_000, seed: 1), "b": [1]], "one")
        try store.directory().createLink("d", to: "nowhere")
        let error = await #expect(throws: PackagingError.self) {
            try await store.package(files, "two", after: first.index)
        }
        guard case .incompleteUpdates(let index, _)? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        let stored = try StoredIndex(at: index)
        #expect(try store.files(of: stored.index) == files)
        _ = try store.directory().remove("d")
        let again = try await store.package(files, "two", after: first.index)
        #expect(again.reference.digest == stored.reference.digest)
        #expect(again.reference.deltas.first?.frames != nil)
    }

    @Test func anotherModeOrPathIsAChange() async throws {
        let store = try IndexedStore()
        let first = try await store.package(["a": [1, 2], "b": [3]], "one")
        let moved = try await store.package(["a": [1, 2], "c": [3]], "two", after: first.index)
        #expect(moved.index.entries.map(\.path.text) == ["a", "c"])
        try SourceTree("one").set(0o755, of: "a")
        let executable = try await store.package([:], "one", after: first.index)
        #expect(executable.index != first.index)
    }

    /// Both forms are equal in Swift, and different names on disk.
    @Test func anotherUnicodeFormOfALinkIsAChange() async throws {
        let store = try IndexedStore()
        let forms = ["caf\u{E9}", "cafe\u{301}"]
        try SourceTree("one").link("link", to: forms[0])
        try SourceTree("two").link("link", to: forms[1])
        let first = try await store.package(["a": [1]], "one")
        let second = try await store.package(["a": [1]], "two", after: first.index)
        for (pack, form) in zip([first, second], forms) {
            let targets = pack.index.entries.compactMap { entry -> [UInt8]? in
                guard case .link(let target) = entry.kind else { return nil }
                return Array(target.text.utf8)
            }
            #expect(targets == [Array(form.utf8)])
        }
        #expect(second.reference.digest != first.reference.digest)
    }
}
