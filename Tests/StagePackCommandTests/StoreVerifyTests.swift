import FoundationEssentials
import StageIndex
import StageModel
import StagePublish
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// `store verify`, and `manifest add` of a damaged version.
@Suite(.server, .directory)
struct StoreVerifyTests {
    private struct Report: Decodable, Equatable {
        struct Finding: Decodable, Equatable {
            var object, kind: String
            var packs: [String]
        }
        var objects: Int
        var findings: [Finding]
    }

    private func verify(_ world: World, _ arguments: [String]) async throws -> (Int32, Report) {
        let ending = try await world.program.run(["store", "verify"] + arguments + ["--json"])
        #expect(ending.error.isEmpty)
        return (
            ending.status,
            try JSONDecoder().decode(Report.self, from: Data(ending.output.utf8))
        )
    }

    @Test func damagedAndMissingObjectsAreNamed() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": noise(100_000)])
        let first = try await publisher.package(version: 1)
        let manifest = publisher.store.appending("manifest.json").string
        let recipe = world.directory.path.appending("recipe.json").string
        let create = ["manifest", "create", "--application", "net.example.app", "-o", manifest]
        #expect(try await world.program.run(create).status == 0)
        let add = ["manifest", "add", manifest, first, "--recipe", recipe, "--pack-version"]
        #expect(try await world.program.run(add + ["1"]).status == 0)
        let arguments = [publisher.store.string, "--manifest", manifest]
        let (status, intact) = try await verify(world, arguments)
        #expect(status == 0 && intact.findings == [] && intact.objects > 1)
        let quiet = ["store", "verify", "--quiet"] + arguments
        let silence = Program.Ending(status: 0, output: "", error: "")
        #expect(try await world.program.run(quiet) == silence)
        let stored = try StoredIndex(at: FilePath(first))
        let bundle = "b/\(stored.index.bundles[0].digest)"
        let bundles = try Directory.open(publisher.store.appending("b"))
        let name = try #require(FilePath(bundle).lastComponent)
        try bundles.write([1], to: name, durably: false)
        let damaged = Report.Finding(object: bundle, kind: "damaged", packs: ["levels"])
        #expect(
            try await verify(world, arguments)
                == (3, Report(objects: intact.objects - 1, findings: [damaged]))
        )
        let added = try await world.program.run(add + ["2"])
        #expect(added.status == 31)
        #expect(added.error.contains("is damaged: its bytes have another digest than its name"))
        try bundles.remove(name)
        let text = try await world.program.run(["store", "verify"] + arguments)
        #expect(text.status == 3)
        #expect(text.output.hasPrefix("\(bundle): missing, needed by levels\nundamaged: "))
        let finding = try await world.program.run(quiet)
        #expect(finding.output == "\(bundle): missing, needed by levels\n", "\(finding)")
        // A version that is packaged with the damaged one as its base would name the missing bundle.
        #expect(text.output.hasSuffix("package the next version without '--base'.\n"), "\(text)")
        let next = try await publisher.package(version: 2)
        let offered = try await world.program.run(
            ["manifest", "add", manifest, next, "--recipe", recipe, "--pack-version", "2"]
        )
        #expect(offered.status == 0, "\(offered)")
    }

    /// Most of an index is digests, so one with a changed bit can usually still be decoded.
    @Test func aDamagedIndexIsNeitherOfferedNorABase() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": noise(100_000), "b": noise(70_000, seed: 2)])
        let first = try await publisher.package(version: 1)
        let path = FilePath(first)
        let whole = try File.open(readingRegular: path).readAll(limit: 1 << 20)
        let folder = try Directory.open(path.removingLastComponent())
        let name = try #require(path.lastComponent)
        let recipe = world.directory.path.appending("recipe.json").string
        let manifest = publisher.store.appending("manifest.json").string
        let create = ["manifest", "create", "--application", "net.example.app", "-o", manifest]
        #expect(try await world.program.run(create).status == 0)
        let commands = [
            ["manifest", "add", manifest, first, "--recipe", recipe, "--pack-version", "1"],
            ["package", recipe, "--indexed", "-o", publisher.store.string, "--base", first],
        ]
        for position in stride(from: whole.count / 2, to: whole.count, by: whole.count / 7) {
            var bytes = whole
            bytes[position] ^= 4
            try folder.write(bytes, to: name, durably: false)
            for command in commands {
                let ending = try await world.program.run(command)
                #expect(ending.status == 31)
                #expect(ending.error.contains("\(name)' is damaged: its bytes have another digest"))
            }
        }
        try folder.write(whole, to: name, durably: false)
        // The folder of the bundles is on a disk that is not mounted.
        let store = try Directory.open(publisher.store)
        try store.rename("b", to: "away", in: store)
        let unmounted = try await world.program.run(commands[0])
        #expect(unmounted.status == 31)
        #expect(unmounted.error.contains("No such file or directory"))
        try store.rename("away", to: "b", in: store)
        #expect(try await world.program.run(commands[0]).status == 0)
    }

    @Test func aDamagedDeltaOfAnIndexIsNotOffered() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": noise(300_000)])
        let first = try await publisher.package(version: 1)
        try publisher.write(["a": noise(300_000) + [1]])
        let second = try await publisher.package(version: 2, base: first)
        func deltas() throws -> Int { try StoredIndex(at: FilePath(second)).reference.deltas.count }
        #expect(try deltas() == 1)
        let folder = try Directory.open(FilePath(second).removingLastComponent())
        let entry = try #require(try folder.entries().first { $0.path.string.contains(".from.") })
        let whole = try #require(try folder.bytes(of: entry.path, limit: 1 << 20))
        var bent = whole
        bent[whole.count - 3] ^= 1
        for bytes in [[], bent, Array(whole.prefix(whole.count / 2)), noise(300)] {
            try folder.write(bytes, to: entry.name, durably: false)
            #expect(try deltas() == 0)
        }
        try folder.write(whole, to: entry.name, durably: false)
        #expect(try deltas() == 1)
    }

    @Test func aDirectoryThatIsNoStoreIsRefused() async throws {
        let world = try World()
        let ending = try await world.program.run(["store", "verify", world.directory.path.string])
        #expect(ending.status == 64)
        let message =
            "is not a store: it has no folder 'i'\nhint: name the directory with the folders"
        #expect(ending.error.contains(message), "\(ending)")
        _ = try world.directory.makeDirectory("i")
        let empty = try await world.program.run(["store", "verify", world.directory.path.string])
        #expect(empty.status == 64)
        #expect(empty.error.contains("has no objects of a store"))
    }

    @Test func anotherDirectoryThanTheStoreOfAManifestIsNoDamage() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": [1]])
        let index = try await publisher.package(version: 1)
        let manifest = publisher.store.appending("manifest.json").string
        let recipe = world.directory.path.appending("recipe.json").string
        let create = ["manifest", "create", "--application", "net.example.app", "-o", manifest]
        #expect(try await world.program.run(create).status == 0)
        let add = ["manifest", "add", manifest, index, "--recipe", recipe, "--pack-version", "1"]
        #expect(try await world.program.run(add).status == 0)
        func verify(_ store: FilePath) async throws -> Program.Ending {
            try await world.program.run(
                ["store", "verify", store.string, "--manifest", manifest]
            )
        }
        let above = try await verify(world.directory.path)
        #expect(above.status == 64, "\(above)")
        #expect(above.error.contains("hint: name the store: '\(publisher.store)'\n"), "\(above)")
        let other = try world.directory.makeDirectory("other")
        _ = try other.makeDirectory("i")
        let missing = try await verify(other.path)
        #expect(missing.status == 3, "\(missing)")
        let advice = "Name the store and the manifests that were published from it.\n"
        #expect(missing.output.hasSuffix(advice), "\(missing)")
    }

    @Test func aManifestWithoutIndexedPacksComparesNothing() async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": [1]])
        _ = try await publisher.package(version: 1)
        let manifest = world.directory.path.appending("other.json").string
        let create = ["manifest", "create", "--application", "net.example.app", "-o", manifest]
        #expect(try await world.program.run(create).status == 0)
        let store = publisher.store.string
        let ending = try await world.program.run(["store", "verify", store, "--manifest", manifest])
        #expect(ending.status == 31 && ending.output.isEmpty, "\(ending)")
        #expect(ending.error.contains("no manifest offers an indexed pack"), "\(ending)")
    }
}
