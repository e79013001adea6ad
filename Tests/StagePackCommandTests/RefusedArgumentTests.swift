import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Files and directories in arguments that the option does not accept.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct RefusedArgumentTests {
    @Test func aHostThatIsUnknownIsNamed() async throws {
        let world = try World()
        let words = ["serve", world.directory.path.string, "--host", "nosuch.invalid"]
        let ending = try await Program().run(words)
        let error = """
            stagepack: error: cannot listen at 'nosuch.invalid': the name has no address
            hint: pass a name or an address of this machine with --host

            """
        #expect(ending == Program.Ending(status: 64, output: "", error: error))
    }

    /// An address of another machine, from a range that is reserved for documentation (RFC 5737).
    @Test func anAddressOfAnotherMachineIsAFaultOfTheHost() async throws {
        let world = try World()
        let words = ["serve", world.directory.path.string, "--host", "192.0.2.1"]
        let ending = try await Program().run(words)
        #expect(ending.status == 64, "\(ending)")
        #expect(ending.error.hasSuffix(" with --host\n"), "\(ending)")
    }

    /// The message contains the system's reason, and not the words of the networking library.
    @Test func aPortThatIsTakenIsNamed() async throws {
        let world = try World()
        let port = try #require(world.server.baseURL.split(separator: ":").last)
        let words = ["serve", world.directory.path.string, "--port", String(port)]
        let ending = try await Program().run(words)
        #expect(ending.status == 64, "\(ending)")
        let message =
            "stagepack: error: cannot listen on port \(port) of '127.0.0.1': Address already in use\n"
        #expect(ending.error.hasPrefix(message), "\(ending)")
    }

    @Test(arguments: ["--netrc-file", "--cacert", "--token-file", "--root"])
    func aFileThatIsMissingOrNoneIsAnError(option: String) async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        func expectRefusal(_ command: String...) async throws {
            for location in ["nowhere", "."] {
                let path = world.directory.path.appending(location).string
                let value = option == "--token-file" ? "cdn.example=\(path)" : path
                let ending = try await world.program.run(command + [option, value] + world.source)
                #expect(ending.status == 64, "\(command): \(ending)")
                #expect(ending.error.contains("\(option): "), "\(command): \(ending)")
            }
        }
        try await expectRefusal("prefetch")
        #expect(world.server.requests.isEmpty)
        // Commands that need no network after this run.
        try await world.succeed("prefetch", "--quiet")
        try await expectRefusal("load", "aurora")
        try await expectRefusal("load", "aurora", "--offline")
        try await expectRefusal("repair")
    }

    @Test func aManifestThatIsTooLargeIsNamedWithItsLimit() async throws {
        let world = try World()
        let json =
            #"{"manifestVersion": 1, "application": "net.example", "revision": 1, "packs": []}"#
        let padding = [UInt8](repeating: UInt8(ascii: " "), count: ManifestLimits.byteCount)
        let large = Array(json.utf8) + padding
        try world.directory.write(large, to: "large.json", durably: false)
        let path = world.directory.path.appending("large.json").string
        let lint = try await world.program.run(["manifest", "lint", path])
        #expect(lint.status == 3, "\(lint)")
        let finding = "the document: expected at most 16777216 bytes, found \(large.count)"
        #expect(lint.output.contains(finding), "\(lint)")
        let edit = try await world.program.run(["manifest", "remove", path, "levels"])
        let error = """
            stagepack: error: \(path): expected a manifest of at most 16777216 bytes (16 MiB), found a larger file
            hint: move large 'userInfo' into the packs, or offer fewer packs

            """
        #expect(edit == Program.Ending(status: 11, output: "", error: error))
        let container = world.directory.path.appending("new").string
        let source = ["--manifest", "file://\(path)", "--container", container]
        let client = try await world.program.run(["prefetch", "--quiet"] + source)
        #expect(client.status == 10, "\(client)")
        #expect(client.error.contains("is larger than 16777216 bytes\n"), "\(client)")
        let hint = "hint: tell the publisher: a manifest has at most 16 MiB\n"
        #expect(client.error.hasSuffix(hint), "\(client)")
    }

    /// A proxy that is not valid is a fault of the variable, not of the network; the password is not printed.
    @Test(arguments: ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy"])
    func aProxyThatIsNotValidIsNamed(variable: String) async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        world.program.environment[variable] = "gopher://user:word@127.0.0.1:1"
        let ending = try await world.run("load", "aurora")
        let error = """
            stagepack: error: variable \(variable): expected a proxy such as 'http://proxy.example:8080', found \
            'gopher://…@127.0.0.1:1'
            hint: correct it, or run 'unset \(variable)'; the scheme is http, https, socks4, socks4a, socks5 or socks5h

            """
        #expect(ending == Program.Ending(status: 78, output: "", error: error))
        world.program.environment[variable] = nil
        try await world.succeed("prefetch", "--quiet")
        // A staged pack needs no network.
        world.program.environment[variable] = "gopher://127.0.0.1:1"
        try await world.succeed("load", "aurora")
        try await world.succeed("load", "aurora", "--offline")
    }

    /// Options for one application are refused together with '--all'.
    @Test(arguments: ["--app", "--manifest", "--container", "--root", "--application-version"])
    func allApplicationsExcludeTheOptionsOfOne(option: String) async throws {
        let ending = try await Program().run(["prefetch", "--all", option, "1.0"])
        #expect(ending.status == 64, "\(ending)")
        #expect(ending.error.contains("--all excludes ") && ending.error.contains(option))
    }

    /// A command for all applications would ignore these options, and its output would look as if the root had verified it.
    @Test(
        arguments: ["status", "ls", "info aurora", "du", "verify", "gc", "doctor", "why"],
        ["--root", "--application-version"]
    )
    func anOptionForOneManifestNeedsOne(command: String, option: String) async throws {
        let words = command.split(separator: " ").map(String.init)
        let ending = try await Program().run(words + [option, "1.0"])
        #expect(ending.status == 64, "\(ending)")
        let needed = option == "--root" ? "--container" : "--app or --container"
        #expect(ending.error.contains("\(option) needs \(needed)."), "\(ending)")
    }

    @Test func aHookPrintsNoJSON() async throws {
        let ending = try await Program().run(["prefetch", "--hook", "--strict", "--json"])
        #expect(ending.status == 64, "\(ending)")
        #expect((ending.output + ending.error).contains(" cannot be combined"), "\(ending)")
    }

    @Test func aDirectoryWithOtherFilesBecomesNoContainer() async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        let directory = try Directory.make(world.container)
        try directory.write([1], to: "letter.txt", durably: false)
        for command in ["prefetch", "load", "plan"] {
            let arguments = command == "load" ? [command, "aurora"] : [command]
            let ending = try await world.program.run(
                arguments + [
                    "--manifest", world.manifestURL, "--container", world.container.string,
                ]
            )
            #expect(ending.status == 41, "\(ending)")
            #expect(ending.error.contains("is not a container and not empty: it has 'letter.txt'"))
            #expect(ending.error.contains("hint: name an empty directory with --container"))
        }
        #expect(try directory.entries().map(\.path.string) == ["letter.txt"])
    }

    @Test(arguments: ["prefetch", "plan", "status"], ["letter.txt", "letter.txt/below"])
    func aFileInsteadOfAContainerIsNamedWithAdvice(
        command: String,
        name: String
    ) async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        try world.directory.write([1], to: "letter.txt", durably: false)
        let path = world.directory.path.pushing(FilePath(name)).string
        let source = command == "status" ? [] : ["--manifest", world.manifestURL]
        let ending = try await world.program.run([command] + source + ["--container", path])
        #expect(ending.status == 41, "\(ending)")
        #expect(ending.error.contains("letter.txt"), "\(ending)")
        let hint =
            "move the file that is at this path or above it, or name a directory with --container"
        #expect(ending.error.contains("': Not a directory\nhint: \(hint)\n"), "\(ending)")
    }

    @Test func aContainerIsCreatedBesideLeftoversOfACrashAndAMount() async throws {
        var world = try World()
        try world.publish(try SamplePack.small(.aurora))
        let directory = try Directory.make(world.container)
        // The state after a run was killed while it created the container, in a separate file system.
        try directory.write([1], to: ".container.json.3mxh1urkd3nsa.tmp", durably: false)
        _ = try directory.makeDirectory("lost+found")
        _ = try directory.makeDirectory("packs")
        try await world.succeed("prefetch")
        // A file that is added later is kept.
        try directory.write([1], to: "letter.txt", durably: false)
        try await world.succeed("prefetch")
        try await world.succeed("gc")
        #expect(try directory.status("letter.txt") != nil)
    }
}
