import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Files and directories that arguments name, and that are not what the option is for.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct RefusedArgumentTests {
    @Test(arguments: ["--netrc-file", "--cacert"])
    func aFileThatIsMissingOrNoneIsAnError(option: String) async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        for place in ["nowhere", "."] {
            let path = world.directory.path.appending(place).string
            let ending = try await world.run("prefetch", option, path)
            #expect(ending.status == 64, "\(ending)")
            #expect(ending.error.contains("\(option): "), "\(ending)")
        }
        #expect(world.server.requests.isEmpty)
    }

    @Test func aDirectoryWithOtherFilesBecomesNoContainer() async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        let directory = try Directory.make(world.container)
        try directory.write([1], to: "letter.txt", durably: false)
        for command in ["prefetch", "load"] {
            let arguments = command == "load" ? [command, "aurora"] : [command]
            let ending = try await world.program.run(
                arguments + [
                    "--manifest", world.manifestURL, "--container", world.container.string,
                ]
            )
            #expect(ending.status == 41, "\(ending)")
            #expect(ending.error.contains("is no container and not empty: it has 'letter.txt'"))
            #expect(ending.error.contains("hint: name an empty directory with --container"))
        }
        #expect(try directory.entries().map(\.name.string) == ["letter.txt"])
    }

    @Test func whatACrashOrAMountLeavesIsNoFileOfOthers() async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        let directory = try Directory.make(world.container)
        // A run that was killed as it made the container, in a file system of its own.
        try directory.write([1], to: ".container.json.3mxh1urkd3nsa.tmp", durably: false)
        _ = try directory.makeDirectory("lost+found")
        _ = try directory.makeDirectory("packs")
        try await world.succeed("prefetch")
        // A file that comes later is left alone.
        try directory.write([1], to: "letter.txt", durably: false)
        try await world.succeed("prefetch")
        try await world.succeed("gc")
        #expect(try directory.status("letter.txt") != nil)
    }
}
