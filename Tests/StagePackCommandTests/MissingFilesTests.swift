import FoundationEssentials
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Packs whose files were deleted by hand: every command says that they are not staged, and a run stages them
/// again.
@Suite(.server, .directory)
struct MissingFilesTests {
    /// The deleted files, below the generations of the pack.
    enum Loss: String, CaseIterable, Sendable {
        case generations = "aurora"
        case content = "aurora/G/content"
        case lease = "aurora/G/lease"
        case record = "aurora/G/pack.json"
    }

    private var world: World

    init() throws { world = try World() }

    /// Stages the pack, and deletes its files.
    private mutating func lose(_ loss: Loss) async throws -> SamplePack {
        let pack = try SamplePack.small(.aurora)
        try world.publish(pack)
        try await world.succeed("prefetch", "--quiet")
        let folder = world.container.appending("generations/aurora")
        let generation = try #require(try Directory.open(folder).entries().first?.name.string)
        let name = loss.rawValue.replacing("G", with: generation)
        let removal = Program(wrapper: ["/bin/rm", "-rf", "\(world.container)/generations/\(name)"])
        try #require(try await removal.run([]).status == 0)
        return pack
    }

    @Test(
        arguments: Loss.allCases,
        [
            ["prefetch"], ["prefetch", "--event", "periodic"], ["fetch", "aurora"],
            ["load", "aurora"],
        ]
    )
    mutating func theNextRunStagesItAgain(loss: Loss, command: [String]) async throws {
        let pack = try await lose(loss)
        let ending = try await world.program.run(command + world.source)
        #expect(ending.status == 0, "\(ending)")
        #expect(try world.staged(.aurora) == StagedFiles(pack))
        try await world.succeed("verify")
        // The rest of the former generation is removed with the previous ones.
        try await world.succeed("gc", "--previous")
        try await world.succeed("doctor")
    }

    @Test(arguments: Loss.allCases)
    mutating func everyCommandSaysThatItIsNotStaged(loss: Loss) async throws {
        _ = try await lose(loss)
        #expect(try await world.succeed("plan").contains("1 pack to stage"))
        #expect(try await world.succeed("status").contains("not staged"))
        #expect(try await world.run("path", "aurora").status == 2)
        #expect(try await world.run("verify").status == 3)
    }

    /// A pack that was staged once is kept with any policy.
    @Test(arguments: [false, true])
    mutating func aPackOnDemandIsStagedAgain(isPinned: Bool) async throws {
        var pack = try SamplePack.small(.aurora)
        pack.pack.policy = .onDemand
        try world.publish(pack)
        try await world.succeed("fetch", "aurora", "--quiet")
        if isPinned { try await world.succeed("pin", "aurora") }
        let removal = Program(wrapper: [
            "/bin/rm", "-rf", world.container.appending("generations/aurora").string,
        ])
        try #require(try await removal.run([]).status == 0)
        #expect(try await world.succeed("prefetch").contains("1 staged, 0 up to date"))
        #expect(try world.staged(.aurora) == StagedFiles(pack))
    }

    @Test mutating func infoNamesTheDirectoryThatThereIs() async throws {
        try world.publish(try .small(.aurora))
        try await world.succeed("prefetch", "--quiet")
        struct Info: Decodable { var directory: String }
        let output = try await world.succeed("info", "aurora", "--json")
        let info = try JSONDecoder().decode(Info.self, from: Data(output.utf8))
        #expect(try StagedFiles(FilePath(info.directory)) == StagedFiles(.small(.aurora)))
        #expect(try await world.succeed("info", "aurora").contains(info.directory))
    }

    /// The directory of a site belongs to its publisher, so no hint suggests to remove it.
    @Test(arguments: [true, false])
    mutating func aDirectoryInsteadOfAManifestIsNotToBeRemoved(hasManifest: Bool) async throws {
        let site = try world.directory.makeDirectory("site")
        if hasManifest {
            let bytes = try world.manifest(of: [try .small(.aurora)])
            try site.write(bytes, to: "manifest.json", durably: false)
        }
        let ending = try await world.program.run(
            ["plan", "--attempts", "1"] + world.source(manifest: site.path.string)
        )
        #expect(ending.status == 10, "\(ending)")
        let hint =
            hasManifest
            ? "hint: name the manifest: DIRECTORY/site/manifest.json\n"
            : "hint: name the manifest's file\n"
        #expect(world.masked(ending.error).hasSuffix(hint), "\(ending)")
        let lint = try await world.program.run(["manifest", "lint", site.path.string])
        #expect(world.masked(lint.error).hasSuffix(hint), "\(lint)")
    }

    @Test mutating func aDirectoryInsteadOfAnArchiveIsNotToBeRemoved() async throws {
        var pack = try SamplePack.small(.aurora)
        let archive = try world.directory.makeDirectory("archive")
        pack.pack.archive?.url = "file://\(archive.path)"
        let bytes = try world.manifest(of: [pack])
        try world.directory.write(bytes, to: "manifest.json", durably: false)
        let manifest = world.directory.path.appending("manifest.json").string
        let ending = try await world.program.run(
            ["prefetch", "--attempts", "1"] + world.source(manifest: manifest)
        )
        #expect(ending.status == 21, "\(ending)")
        #expect(!ending.error.contains("remove it"), "\(ending)")
        #expect(ending.error.contains("tell the publisher"), "\(ending)")
    }

    /// A file URL is a source as a server is: the container has no fault.
    @Test mutating func aFileThatIsNotAtItsURLIsMissingAtItsSource() async throws {
        var pack = try SamplePack.small(.aurora)
        let url = "file://\(world.directory.path)"
        pack.pack.archive?.url = "\(url)/none.tar.zst"
        let manifest = "\(url)/manifest.json"
        let command = ["prefetch", "--attempts", "1"] + world.source(manifest: manifest)
        let hint =
            "hint: check the path, and that its disk is mounted; if both are right, tell the publisher that the "
            + "file is missing\n"
        var ending = try await world.program.run(command)
        #expect(ending.status == 10, "\(ending)")
        #expect(ending.error.hasSuffix(hint), "\(ending)")
        let bytes = try world.manifest(of: [pack])
        try world.directory.write(bytes, to: "manifest.json", durably: false)
        ending = try await world.program.run(command)
        #expect(ending.status == 21, "\(ending)")
        let problem =
            "pack 'aurora': cannot open 'DIRECTORY/none.tar.zst': No such file or directory\n"
        #expect(world.masked(ending.error).hasSuffix(problem + hint), "\(ending)")
    }

    /// Another container would not help.
    @Test(.otherThanRoot("root reads every file"))
    func aManifestThatTheUserMayNotReadIsNotAFaultOfTheContainer() async throws {
        let bytes = try world.manifest(of: [try SamplePack.small(.aurora)])
        try world.directory.write(bytes, to: "manifest.json", durably: false)
        let manifest = world.directory.path.appending("manifest.json").string
        let change = Program(wrapper: ["/bin/chmod", "000", manifest])
        try #require(try await change.run([]).status == 0)
        let ending = try await world.program.run(
            ["prefetch", "--attempts", "1"] + world.source(manifest: manifest)
        )
        #expect(ending.status == 10, "\(ending)")
        let hint =
            "hint: let this user read the file and enter the directories above it, or run it as a user who may\n"
        #expect(ending.error.hasSuffix(hint), "\(ending)")
    }
}
