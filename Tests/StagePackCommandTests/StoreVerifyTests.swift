import FoundationEssentials
import StageIndex
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
        #expect(text.output.hasPrefix("\(bundle): missing, needed by levels\nas named: "))
    }

    @Test func aDirectoryThatIsNoStoreIsRefused() async throws {
        let world = try World()
        let ending = try await world.program.run(["store", "verify", world.directory.path.string])
        #expect(ending.status == 64)
        #expect(ending.error.contains("has no objects of a store"))
    }
}
