import FoundationEssentials
import Glibc
import StageDigest
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Delta sets from several versions, tested only through the program.
@Suite(.server, .directory)
struct DeltaTests {
    private struct Report: Decodable {
        struct Update: Decodable {
            var from, set: String
            var deltaBytes: Int?
            var downloadSize, downloadSizeWithoutSet: Int
        }

        struct Manifest: Decodable { var revision: Int }

        var updates: [Update]
        var manifest: Manifest?
    }

    private struct Published {
        var publisher: IndexedPublisher
        var indexes: [String]
    }

    /// A file that differs in each version, by a few bytes in each frame.
    private func tree(_ version: UInt8) -> [String: [UInt8]] {
        var large = noise(600_000)
        for offset in stride(from: 1000, to: large.count, by: 9000) { large[offset] = version }
        return ["large": large, "small": [version]]
    }

    /// Stages the first of three versions, and packages the others; `older` are bases of the last one.
    private func publish(_ world: World, all: Bool) async throws -> Published {
        let publisher = try IndexedPublisher(world)
        try publisher.write(tree(1))
        let first = try await publisher.package(version: 1)
        try await world.succeed("fetch", "levels")
        try publisher.write(tree(2))
        let second = try await publisher.package(version: 2, base: first)
        try publisher.write(tree(3))
        let older = all ? [first] : []
        let third = try await publisher.package(version: 3, base: second, older: older)
        return Published(publisher: publisher, indexes: [first, second, third])
    }

    private func report(_ world: World, _ arguments: String...) async throws -> Report {
        try await world.report(arguments)
    }

    @Test func anUpdateOverTwoVersionsTakesTheSetOfPackaging() async throws {
        let world = try World()
        let published = try await publish(world, all: true)
        let before = published.publisher.bytesSent(of: ["b", "d", "i"])
        try await world.succeed("fetch", "levels")
        #expect(try world.staged(try PackID("levels")) == published.publisher.files())
        let sent = published.publisher.bytesSent(of: ["b", "d", "i"]) - before
        let indexes = published.indexes
        let told = try await report(
            world,
            "delta",
            indexes[2],
            "--from",
            indexes[0],
            "--no-patches"
        )
        #expect(told.updates.map(\.set) == ["present"])
        #expect(sent == told.updates[0].downloadSize && sent < 30_000)
        #expect(told.updates[0].downloadSizeWithoutSet > 590_000)
        try await world.succeed("verify", "levels")
    }

    /// A manifest may name 16 bases.
    ///
    /// Of the 17 bases here, the last one on the command line is the newest.
    @Test func theOldestBaseAboveTheLimitIsOmitted() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        var indexes: [String] = []
        for version in 1...18 {
            try publisher.write(["small": [UInt8(version)]])
            indexes.append(try await publisher.package(version: version))
        }
        let newest = indexes.removeLast()
        for (index, path) in indexes.enumerated() {
            let date = Date(timeIntervalSince1970: index == 16 ? 2_000_000 : 1_000_000)
            try FileManager.default.setAttributes([.modificationDate: date], ofItemAtPath: path)
        }
        let bases = indexes.flatMap { ["--from", $0] }
        let ending = try await world.program.run(
            ["delta", newest, "--json", "--no-patches"] + bases
        )
        let report = try JSONDecoder().decode(Report.self, from: Data(ending.output.utf8))
        #expect(
            report.updates.map(\.from) == indexes.indices.filter { $0 != 15 }.map { indexes[$0] }
        )
    }

    @Test func setsAreMadeLaterAndNamedInTheManifest() async throws {
        let world = try World()
        let published = try await publish(world, all: false)
        let (publisher, indexes) = (published.publisher, published.indexes)
        let manifest = publisher.store.appending("manifest.json").string
        let recipe = world.directory.path.appending("recipe.json").string
        for arguments in [
            ["create", "--application", "net.example.wallpaper", "-o", manifest],
            ["add", manifest, indexes[2], "--recipe", recipe, "--pack-version", "3"],
        ] {
            #expect(try await world.program.run(["manifest"] + arguments).status == 0)
        }
        let before = try Manifest(json: bytes(of: FilePath(manifest)))
        #expect(before.packs[0].index?.deltas.count == 1)
        let made = try await report(
            world,
            "delta",
            "--no-patches",
            indexes[2],
            "--from",
            indexes[1],
            indexes[0],
            "--manifest",
            manifest
        )
        #expect(made.updates.map(\.set) == ["present", "made"])
        #expect(made.updates.map(\.from) == [indexes[1], indexes[0]])
        #expect(made.manifest?.revision == before.revision + 1)
        let after = try Manifest(json: bytes(of: FilePath(manifest)))
        let deltas = try #require(after.packs[0].index?.deltas)
        #expect(deltas.count == 2 && deltas.allSatisfy { $0.frames != nil })
        // The manifest is beside the folders of the store, and its URLs lead to the objects.
        for delta in deltas {
            let object = try bytes(of: publisher.store.pushing(FilePath(delta.url)))
            #expect(ByteCount(object.count) == delta.size)
        }
        // A repetition changes nothing.
        let again = try await report(
            world,
            "delta",
            "--no-patches",
            indexes[2],
            "--from",
            indexes[0],
            "--manifest",
            manifest
        )
        #expect(again.updates.map(\.set) == ["present"])
        #expect(try Manifest(json: bytes(of: FilePath(manifest))) == after)
        // A client with the first version uses the set.
        try publisher.publish(indexes[2], version: 3)
        world.server.answer("/manifest.json", with: .content(try bytes(of: FilePath(manifest))))
        let count = publisher.bytesSent(of: ["b", "d", "i"])
        try await world.succeed("fetch", "levels")
        #expect(try world.staged(try PackID("levels")) == publisher.files())
        let sent = publisher.bytesSent(of: ["b", "d", "i"]) - count
        #expect(sent == made.updates[1].downloadSize && sent < 30_000)
        // A garbage collection keeps the objects that the manifest names.
        let store = publisher.store.string
        let collected = try await world.program.run(
            ["store", "gc", store, "--manifest", manifest, "--keep", "0"]
        )
        #expect(collected.status == 0, "\(collected)")
        #expect(try Directory.open(publisher.store.appending("d")).entries().count == 2)
    }

    @Test(arguments: [1, 2] as [UInt64])
    func aStoreIsWholeWhereverARunIsKilled(seed: UInt64) async throws {
        let world = try World()
        let published = try await publish(world, all: false)
        let (store, indexes) = (published.publisher.store, published.indexes)
        func objects() throws -> [String: Digest] {
            var objects: [String: Digest] = [:]
            for folder in ["b", "d", "i"] {
                let path = store.pushing(FilePath(folder))
                for name in try Directory.open(path).entries().map(\.name)
                where !name.string.hasPrefix(".") {
                    objects["\(folder)/\(name)"] = Digest(of: try bytes(of: path.appending(name)))
                }
            }
            return objects
        }
        let before = try objects()
        var random = SeededGenerator(seed: seed)
        for _ in 0..<10 {
            let moment = Duration.milliseconds(Int.random(in: 0..<120, using: &random))
            let arguments = ["delta", indexes[2], "--from", indexes[0], "--no-patches"]
            _ = try await world.program.run(arguments) { running in
                try await Task.sleep(for: moment)
                running.send(SIGKILL)
            }
            let now = try objects()
            for (name, digest) in now where before[name] == nil {
                #expect(name.hasPrefix("i/") || name == "d/\(digest)")
            }
            #expect(now.filter { before[$0.key] != nil } == before)
            // Any stored index can be offered.
            _ = try StoredIndex(at: FilePath(indexes[2]))
        }
        let told = try await report(
            world,
            "delta",
            indexes[2],
            "--from",
            indexes[0],
            "--no-patches"
        )
        #expect(["made", "present"].contains(told.updates[0].set))
        #expect(try objects().count == before.count + 2)
        #expect(try StoredIndex(at: FilePath(indexes[2])).deltaSets.count == 2)
        let left = try Directory.open(store.appending("d")).entries().map(\.path.string)
        #expect(left.allSatisfy { !$0.hasPrefix(".") })
    }

    @Test func aBaseThatIsNotAnOlderVersionIsRefused() async throws {
        let world = try World()
        let published = try await publish(world, all: false)
        let (publisher, indexes) = (published.publisher, published.indexes)
        let recipe = world.directory.path.appending("recipe.json").string
        let text = String(decoding: try bytes(of: FilePath(recipe)), as: UTF8.self)
        func package(_ files: [String: [UInt8]], to store: String) async throws -> String {
            let source = world.directory.path.appending("source-\(store)")
            for (name, bytes) in files {
                let name = try #require(FilePath.Component(name))
                try Directory.make(source).write(bytes, to: name, durably: false)
            }
            let other = text.replacing("\(publisher.tree)", with: "\(source)")
            try world.directory.write(Array(other.utf8), to: "other.json", durably: false)
            let path = world.directory.path
            let target = store == "same" ? publisher.store : path.appending(store)
            let ending = try await world.program.run(
                ["package", path.appending("other.json").string, "--indexed", "-o", target.string]
            )
            let index = try #require(ending.output.split(separator: "\n").first)
            return String(index.dropFirst("levels: ".count))
        }
        let stranger = try await package(["other": [1]], to: "same")
        let foreign = try await package(["large": noise(70_000, seed: 5)], to: "elsewhere")
        let manifest = world.directory.path.appending("manifest.json")
        let offered = try publisher.manifest(of: indexes[0], version: 1)
        try world.directory.write(offered, to: "manifest.json", durably: false)
        let objects = try Directory.open(publisher.store.appending("i")).entries().count
        for (arguments, status, words) in [
            ([indexes[2], "--from", indexes[0], indexes[2]], 64, "it is the version that"),
            ([indexes[2], "--from", stranger], 64, "no file has the name or the content"),
            ([indexes[2], "--from", foreign], 64, "is not in the store"),
            ([indexes[2], "--from", recipe], 64, "is not the index of a pack"),
            ([indexes[2], "--from", manifest.string], 64, "is a manifest"),
            ([recipe, "--from", indexes[0]], 64, "is in no store"),
            ([indexes[2]], 64, "--from"),
            (
                [indexes[2], "--from", indexes[0], "--manifest", manifest.string], 13,
                "no pack of the manifest has that index"
            ),
        ] as [([String], Int32, String)] {
            let ending = try await world.program.run(["delta"] + arguments)
            #expect(
                ending.status == status && ending.error.contains(words),
                "\(arguments): \(ending)"
            )
        }
        let after = try Directory.open(publisher.store.appending("i")).entries().count
        #expect(after == objects)
        // Clients with the other store's version are refused before the files are read.
        let ending = try await world.program.run(
            [
                "package", recipe, "--indexed", "-o", publisher.store.string, "--base", indexes[2],
                "--base", foreign,
            ]
        )
        #expect(ending.status == 64 && ending.error.contains("is not in the store"), "\(ending)")
    }
}
