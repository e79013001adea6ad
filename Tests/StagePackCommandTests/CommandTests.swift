import FoundationEssentials
import StageContainer
import StageDigest
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.server, .directory)
struct CommandTests {
    @Test func loadPrintsExactlyTheDirectory() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora, policy: .onDemand)
        try world.publish(pack)
        for _ in 0..<2 {
            let ending = try await world.run("load", "aurora", "--quiet")
            #expect(ending.status == 0)
            #expect(ending.error == "")
            let path = try #require(ending.output.split(separator: "\n").first.map(String.init))
            #expect(ending.output == path + "\n")
            #expect(try StagedFiles(FilePath(path)) == StagedFiles(pack))
        }
        #expect(world.server.counts(for: pack.path).requests == 1)
    }

    @Test func loadNeedsNoManifestServerForAPackThatTheStoredManifestHas() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora, policy: .onDemand)
        try world.publish(pack)
        try await world.succeed("prefetch", "--quiet")
        world.server.answer("/manifest.json", with: .status(503))
        let ending = try await world.run("load", "aurora", "--quiet", "--attempts", "1")
        #expect(ending.status == 0)
        #expect(ending.output.hasSuffix("/content\n"))
        #expect(try world.staged(.aurora) == StagedFiles(pack))
    }

    @Test func pathOfAnUnstagedPackPrintsNothing() async throws {
        var world = try World()
        try world.publish(try .small(.aurora, policy: .onDemand))
        try await world.succeed("prefetch", "--quiet")
        let error = """
            stagepack: error: pack 'aurora' is not staged
            hint: run 'stagepack load aurora \(world.source.joined(separator: " "))' to fetch it

            """
        let ending = try await world.run("path", "aurora")
        #expect(ending == Program.Ending(status: 2, output: "", error: error))
    }

    @Test(arguments: [["STAGEPACK_OFFLINE": "1"], [:]])
    func offlineTouchesNoNetworkAndServesWhatIsStaged(environment: [String: String]) async throws {
        var world = try World()
        let (first, other) = (try SamplePack.small(.aurora), try PackID("borealis"))
        try world.publish(first, try .small(other, policy: .onDemand))
        try await world.succeed("prefetch", "--quiet")
        let requests = world.server.requests.count
        world.program.environment = environment
        let option = environment.isEmpty ? ["--offline", "--quiet"] : ["--quiet"]
        func run(_ arguments: String...) async throws -> Program.Ending {
            try await world.program.run(arguments + option + world.source)
        }
        #expect(try await run("prefetch") == Program.Ending(status: 0, output: "", error: ""))
        let staged = try await run("load", "aurora")
        #expect(staged.status == 0)
        #expect(try await world.succeed("path", "aurora") == staged.output)
        let missing = try await run("load", "borealis")
        #expect(missing.status == 2)
        #expect(missing.output == "")
        #expect(world.server.requests.count == requests)
    }

    @Test func verifyFindsWhatChangedAndRepairMendsIt() async throws {
        var world = try World()
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        try await world.succeed("prefetch", "--quiet")
        #expect(try await world.succeed("verify") == "aurora: as it was staged\n")
        let reader = try #require(try ContainerReader.open(world.container))
        let lease = try #require(try reader.lease(.aurora))
        let content = try Directory.open(lease.content)
        try damage(content)
        let found = try await world.run("verify", "aurora")
        let differences = """
            aurora: missing: readme.txt
            aurora: mode 400, expected 755: bin/tool
            aurora: changed: images/one.png
            aurora: added: extra

            """
        #expect(found == Program.Ending(status: 3, output: differences, error: ""))
        let damaged = try StagedFiles(lease.content)

        try await world.succeed("repair", "--quiet")
        #expect(try world.staged(.aurora) == StagedFiles(pack))
        #expect(try await world.succeed("verify", "aurora") == "aurora: as it was staged\n")
        #expect(try StagedFiles(lease.content) == damaged)
        #expect(world.server.counts(for: pack.path).requests == 2)
    }

    /// Flips a byte, changes a mode, removes a file and adds one.
    private func damage(_ content: Directory) throws {
        guard let image = try content.file(updatingExisting: "images/one.png") else {
            throw NeverHappened()
        }
        var byte: [UInt8] = [0]
        _ = try image.read(into: &byte, at: 777)
        byte[0] ^= 1
        try image.write(byte.span, at: 777)
        try change(mode: [.ownerRead], of: content.path.appending("bin/tool"))
        _ = try content.remove("readme.txt")
        _ = try content.file(creating: "extra")
    }

    @Test func anUpdateLeavesTheLeasedGenerationUntilItsReaderHasEnded() async throws {
        var world = try World()
        let versions = try (1...3).map { try SamplePack.small(.aurora, version: $0) }
        try world.publish(versions[0])
        try await world.succeed("prefetch", "--quiet")
        try await hold(world, versions)
        #expect(try await world.succeed("gc", "--previous") == gone(generations: 1))
        #expect(try world.names(in: "generations/aurora").count == 1)
    }

    /// Publishes and stages two updates while a lease holds the first version.
    private func hold(_ first: World, _ versions: [SamplePack]) async throws {
        var world = first
        let reader = try #require(try ContainerReader.open(world.container))
        let lease = try #require(try reader.lease(.aurora))
        for version in versions.dropFirst() {
            try world.publish(version)
            try await world.succeed("prefetch", "--quiet")
            #expect(try world.staged(.aurora) == StagedFiles(version))
            #expect(try StagedFiles(lease.content) == StagedFiles(versions[0]))
        }
        let collected = try await world.succeed("gc", "--previous")
        #expect(collected == gone(generations: 1, after: "; 1 generation is being read"))
        #expect(try StagedFiles(lease.content) == StagedFiles(versions[0]))
    }

    private func gone(generations: Int, after rest: String = "") -> String {
        "removed \(generations == 1 ? "1 generation" : "\(generations) generations"), 0 downloads, 0 leftovers\(rest)\n"
    }

    @Test func removeDeletesAPackAndGCUnneededDownloads() async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        try await world.succeed("prefetch", "--quiet")
        #expect(try await world.succeed("remove", "aurora") == "aurora: removed\n")
        #expect(try await world.succeed("remove", "aurora") == "aurora: was not staged\n")
        #expect(try world.staged(.aurora) == nil)
        #expect(try world.names(in: "generations") == [])

        var refused = try SamplePack.small(.aurora, version: 2)
        refused.pack.fileCount += 1
        try world.publish(refused)
        #expect(try await world.run("prefetch", "--quiet").status == 30)
        #expect(try await world.succeed("gc") == gone(generations: 0))
        try world.publish(try .small(.aurora, version: 3))
        try await world.succeed("prefetch", "--quiet")
        // The run has removed the download of version 2.
        #expect(try world.names(in: "downloads") == [])
        #expect(try await world.succeed("gc") == gone(generations: 0))
    }
}

/// Changes the permission bits of a file.
private func change(mode: FilePermissions, of path: FilePath) throws {
    try FileManager.default.setAttributes(
        [.posixPermissions: Int(mode.rawValue)],
        ofItemAtPath: path.string
    )
}
