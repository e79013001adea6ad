import FoundationEssentials
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A plan predicts the run: the transferred bytes, and the evicted packs.
@Suite(.server, .directory)
struct PlanTests {
    private struct Output: Decodable {
        var plans: [Run]?
        var runs: [Run]?
    }

    private struct Run: Decodable {
        struct Pack: Decodable {
            var id, outcome: String
            var transferSize, transferred: Int?
            var isTransferSizeExact: Bool?
        }

        struct Eviction: Decodable, Equatable {
            var pack, reason, generation: String
            var size: Int
        }

        var packs: [Pack]
        var evicted: [Eviction]?
        var removed: [String]?
    }

    private func run(_ program: Program, _ arguments: [String]) async throws -> Run {
        let ending = try await program.run(arguments + ["--json"])
        #expect(ending.status == 0, "\(ending)")
        let output = try JSONDecoder().decode(Output.self, from: Data(ending.output.utf8))
        return try #require((output.plans ?? output.runs)?.first)
    }

    /// The size of an update, and the objects that the publisher made for it.
    struct Update: Sendable {
        var changed: Int
        var hasDeltas = true
        var hasArchive = true
    }

    @Test(arguments: [
        Update(changed: 1), Update(changed: 1, hasDeltas: false),
        Update(changed: 1, hasDeltas: false, hasArchive: false), Update(changed: 3),
        Update(changed: 3, hasArchive: false),
    ])
    func thePlannedBytesAreThoseThatTheRunTransfers(update: Update) async throws {
        let world = try World()
        let publisher = try IndexedPublisher(world)
        var generator = SeededGenerator(seed: 5)
        func random(_ count: Int) -> [UInt8] {
            (0..<count).map { _ in .random(in: 0...255, using: &generator) }
        }
        let names = ["a", "b", "c"]
        var files = Dictionary(uniqueKeysWithValues: names.map { ($0, random(200_000)) })
        try publisher.write(files)
        let first = try await publisher.package(version: 1, archive: update.hasArchive)
        try await world.succeed("fetch", "levels", "--quiet")
        for name in names.prefix(update.changed) {
            files[name]?.replaceSubrange(1000..<150_000, with: random(149_000))
        }
        try publisher.write(files)
        _ = try await publisher.package(
            version: 2,
            base: update.hasDeltas ? first : nil,
            archive: update.hasArchive
        )
        let plan = try await run(world.program, ["plan"] + world.source)
        let planned = try #require(plan.packs.first)
        #expect(planned.isTransferSizeExact == true)
        let before = publisher.bytesSent(of: ["a", "b", "d", "i"])
        let staged = try await run(world.program, ["prefetch"] + world.source)
        #expect(staged.packs.map(\.outcome) == ["staged"])
        #expect(planned.transferSize == staged.packs.first?.transferred)
        #expect(planned.transferSize == publisher.bytesSent(of: ["a", "b", "d", "i"]) - before)
    }

    /// If a part of an archive was downloaded, only the rest is transferred.
    @Test func receivedBytesAreNotInThePlannedTransfer() async throws {
        var world = try World()
        let pack = try SamplePack.large(.aurora, version: 1, mebibytes: 4)
        try world.publish(pack)
        let plan = try await run(world.program, ["plan"] + world.source)
        let size = pack.archive.count
        #expect(plan.packs.map(\.transferSize) == [size])
        let text = try await world.succeed("plan")
        let files = StoredGeneration.size(pack.pack.installedSize, fileCount: pack.pack.fileCount)
        let total = "\(ByteCount(size)) to download, at most \(ByteCount(size) + files) on disk\n"
        #expect(text.hasSuffix("\n1 pack to stage: \(total)"), "\(text)")

        let half = size / 2
        world.server.answer(pack.path, with: Answer.content(pack.archive).cut(after: half))
        _ = try await world.run("fetch", "aurora", "--attempts", "1")
        let rest = try await run(world.program, ["plan"] + world.source)
        world.server.answer(pack.path, with: .content(pack.archive))
        let staged = try await run(world.program, ["prefetch"] + world.source)
        #expect(rest.packs.map(\.transferSize) == staged.packs.map(\.transferred))
        #expect(rest.packs.first?.transferSize ?? size < size)
    }

    @Test(.mountNamespace)
    func spaceIsCheckedBeforeThereIsAContainer() async throws {
        var world = try World()
        let pack = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
        try world.publish(pack)
        let small = world.directory.path.appending("small").string
        let script = "mkdir -p \(small) && mount -t tmpfs -o size=2m none \(small) && exec \"$@\""
        world.program.wrapper = [
            "/usr/bin/unshare", "-m", "/bin/sh", "-c", script, "sh", try Program.path.string,
        ]
        let plan = try await world.program.run(
            ["plan", "--manifest", world.manifestURL, "--container", "\(small)/a/b"]
        )
        #expect(plan.status == 40, "\(plan)")
        #expect(plan.error.contains("not enough space"), "\(plan)")
    }

    /// The simulation assumes an installation, although neither its disk nor the quota has space for it.
    @Test(.mountNamespace, arguments: ["update", "periodic"])
    func anInstallationThatDoesNotFitHereIsAssumed(event: String) async throws {
        var installed = try await Installed()
        try installed.world.publish(try .large(.aurora, version: 1, mebibytes: 4))
        installed.registration.quota = ByteCount(1)
        try installed.install()
        let small = installed.world.directory.path.appending("small").string
        let script = """
            mkdir \(small) && mount -t tmpfs -o size=2m none \(small) || exit 99
            export TMPDIR=\(small); exec "$@"
            """
        installed.world.program.wrapper =
            installed.world.program.wrapper.dropLast()
            + ["/bin/sh", "-c", script, "sh", try Program.path.string]
        let ending = try await installed.world.program.run(
            ["simulate", event, "--app", "net.example.wallpaper"]
        )
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.output.contains("staged and up to date"), "\(ending)")
    }

    /// Generations that are removed after the packs are staged are in the plan, like those that are evicted before.
    @Test(.mountNamespace)
    func aPlanContainsTheEvictionsForTheQuota() async throws {
        var installed = try await Installed()
        let ids = try ["essential", "rare"].map { try PackID($0) }
        func packs(_ version: Int) throws -> [SamplePack] {
            [
                try .small(ids[0], version: version, policy: .essential([.firstInstallation])),
                try .small(ids[1], policy: .onDemand),
            ]
        }
        try installed.world.publish(try packs(1))
        let app = ["--app", "net.example.wallpaper"]
        let program = installed.world.program
        _ = try await run(program, ["prefetch"] + app)
        _ = try await run(program, ["fetch", "rare"] + app)
        try installed.world.publish(try packs(2))
        installed.registration.quota = ByteCount(Int64(80_000))
        try installed.install()
        let plan = try await run(program, ["plan"] + app)
        let staged = try await run(program, ["prefetch"] + app)
        #expect(plan.evicted?.map(\.reason) == ["previous"])
        #expect(plan.evicted == staged.evicted)

        // Nothing is staged, and the quota became smaller.
        installed.registration.quota = ByteCount(Int64(40_000))
        try installed.install()
        let smaller = try await run(program, ["plan"] + app)
        #expect(smaller.evicted?.map(\.pack) == ["rare"])
        #expect(smaller.packs.map(\.outcome) == ["present", "evicted"])
        #expect(try await run(program, ["prefetch"] + app).evicted == smaller.evicted)
    }

    @Test func obsoletePacksArePlannedForRemoval() async throws {
        var world = try World()
        let gone = try PackID("gone")
        try world.publish(try .small(.aurora), try .small(gone))
        try await world.succeed("prefetch", "--quiet")
        try world.publish(try .small(.aurora))
        let periodic = ["--event", "periodic"] + world.source
        let plan = try await run(world.program, ["plan"] + periodic)
        #expect(plan.removed == ["gone"])
        #expect(try world.staged(gone) != nil)
        #expect(try await run(world.program, ["prefetch"] + periodic).removed == ["gone"])
        #expect(try world.staged(gone) == nil)
        let why = try await world.succeed("why", "gone")
        #expect(why.contains("gone, version 1: removed, no manifest offers it\n"), "\(why)")
    }

    /// On a metered link, packs of a periodic run that are not essential wait, unless the registration allows them.
    @Test(.mountNamespace, arguments: [nil, false, true])
    func aMeteredLinkIsSimulated(isAllowed: Bool?) async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        if let isAllowed {
            installed.registration.updateConditions.allowsExpensiveNetworkAccess = isAllowed
        }
        try installed.install()
        let options = ["--fault", "metered", "--app", "net.example.wallpaper"]
        for event in ["install", "periodic"] {
            let ending = try await installed.world.program.run(["simulate", event] + options)
            #expect(ending.status == 0, "\(ending)")
            let waits = event == "periodic" && isAllowed != true
            #expect(ending.error.contains("(waits: metered)") == waits, "\(ending)")
            #expect(ending.error.contains("changes nothing") != waits, "\(ending)")
        }
    }

    /// A packager stages the packs of a registration before its package is installed, or beside an older one.
    @Test(.mountNamespace, arguments: [true, false])
    func packsOfARegistrationThatIsNotInEffectAreStaged(isInstalled: Bool) async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        if !isInstalled { try installed.uninstall() }
        installed.registration.version = "2.0"
        let folder = installed.world.directory
        try folder.write(installed.registration.json(), to: "next.json", durably: false)
        let file = folder.path.appending("next.json").string
        for event in ["install", "update"] {
            let ending = try await installed.world.program.run([
                "simulate", event, "--registration", file, "--stage", "--progress", "none",
            ])
            #expect(ending.status == 0, "\(ending)")
        }
    }
}
