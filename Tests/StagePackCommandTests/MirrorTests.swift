import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Several mirrors, of which some send wrong content, and servers that end connections early.
@Suite(.waiting, .server, .directory)
struct MirrorTests {
    /// Runs `prefetch` with several URLs of the manifest.
    private func prefetch(
        _ world: World,
        from paths: String...,
        json: Bool = false
    ) async throws
        -> Program.Ending
    {
        let manifests = paths.flatMap { ["--manifest", world.server.url($0)] }
        let options = ["--attempts", "1"] + (json ? ["--json"] : [])
        return try await world.program.run(
            ["prefetch", "--container", world.container.string] + manifests + options
        )
    }

    /// Faults of the manifest at a mirror.
    enum Fault: CaseIterable {
        case old
        case cut
        case otherCharacters
        case otherKind
    }

    private func content(of fault: Fault, _ world: World) throws -> [UInt8] {
        var old = world
        old.revision = 1
        let manifest = try old.manifest(of: [.small(.aurora)])
        return switch fault {
        case .old: manifest
        case .cut: Array(manifest.dropLast(40))
        case .otherCharacters: [0xFF, 0xFE] + manifest
        case .otherKind: Array("null".utf8)
        }
    }

    @Test(arguments: Fault.allCases)
    func aManifestThatIsNotAcceptedHidesNoOtherMirror(fault: Fault) async throws {
        var world = try World()
        world.revision = 2
        try world.publish(try .small(.aurora))
        try await world.succeed("prefetch")
        world.server.answer("/bad.json", with: .content(try content(of: fault, world)))
        let newest = try SamplePack.small(.aurora, version: 2)
        try world.publish(newest)
        let ending = try await prefetch(world, from: "/bad.json", "/manifest.json")
        #expect(ending.status == 0, "\(ending)")
        #expect(try world.staged(.aurora) == StagedFiles(newest))
        let refused = try await prefetch(world, from: "/bad.json", "/bad.json", json: true)
        #expect(refused.status == (fault == .old ? 12 : 11), "\(refused)")
        let retry = #""retry" : "\#(fault == .old ? "later" : "never")""#
        #expect(refused.output.contains(retry), "\(refused)")
    }

    @Test func twoMirrorsWithWrongContentHideNoOther() async throws {
        let world = try World()
        let sample = try SamplePack.small(.aurora)
        let paths = ["/a", "/b", "/c"].map { $0 + sample.path }
        let manifest = Manifest(
            application: try ApplicationID("net.example.wallpaper"),
            revision: 1,
            baseURLs: ["/a/", "/b/", "/c/"].map { world.server.url($0) },
            packs: [sample.pack]
        )
        world.server.answer("/manifest.json", with: .content(manifest.json()))
        let wrong = noise(sample.archive.count, seed: 7)
        for path in paths.dropLast() { world.server.answer(path, with: .content(wrong)) }
        world.server.answer(paths[2], with: .content(sample.archive))
        let ending = try await world.run("prefetch")
        #expect(ending.status == 0, "\(ending)")
        #expect(try world.staged(.aurora) == StagedFiles(sample))
        #expect(paths.map { world.server.requests(for: $0).count } == [1, 1, 1])
    }

    /// A server without an entity tag; each request gets fewer bytes than an earlier one, or more.
    @Test func bytesThatWereLostAreNoProgress() async throws {
        var world = try World()
        let sample = try SamplePack.large(.aurora, version: 1, mebibytes: 4)
        try world.publish(sample)
        let content = Answer.content(sample.archive).tagged(nil)
        let cuts = [content.cut(after: 2_000_000), content.cut(after: 3_000_000)]
        world.server.answer(sample.path, with: (0..<100).map { cuts[$0 % 2] })
        let ending = try await world.run("prefetch", "--attempts", "4")
        #expect(ending.status == 20, "\(ending)")
        #expect(world.server.requests(for: sample.path).count <= 6)
    }

    @Test(arguments: [503, 429])
    func aServerThatIsBusyIsNoRefusal(status: Int) async throws {
        var world = try World()
        let sample = try SamplePack.small(.aurora)
        try world.publish(sample)
        world.server.answer(sample.path, with: .status(status))
        let ending = try await world.run("prefetch", "--attempts", "1", "--json")
        #expect(ending.status == 20, "\(ending)")
        #expect(ending.output.contains(#""retry" : "now""#), "\(ending)")
    }
}
