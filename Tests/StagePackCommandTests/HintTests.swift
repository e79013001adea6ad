import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Commands that hints name are run as they are printed.
@Suite(.server, .directory)
struct HintTests {
    /// A command that fails or reports a fault, and the command that its hint names.
    struct Case: Sendable, CustomTestStringConvertible {
        var testDescription: String { failing.joined(separator: " ") }
        /// The command, before the options of the source.
        var failing: [String]
        /// The command of the hint, before the options of the source.
        var hinted: String
        /// The status that the command of the hint ends with.
        var status: Int32 = 0
        /// `true` if the hint belongs to a command that reads the manifest.
        var readsManifest = true
        /// Changes the container, in which version 1 of `aurora` is staged.
        var arrange: @Sendable (World) async throws -> Void = { _ in }
    }

    private static let cases: [Case] = [
        Case(failing: ["path", "extra"], hinted: "load extra"),
        Case(failing: ["load", "extra", "--offline"], hinted: "load extra"),
        Case(failing: ["prefetch", "--offline"], hinted: "prefetch") { world in
            try world.directory.removeTree(try #require(world.container.lastComponent))
        },
        Case(failing: ["load", "extra", "--file", "readme.txt"], hinted: "load extra"),
        Case(failing: ["load", "aurora", "--file", "none"], hinted: "load aurora"),
        Case(failing: ["fetch", "borealis"], hinted: "plan"),
        Case(failing: ["why", "extra2"], hinted: "prefetch"),
        Case(failing: ["rollback", "aurora"], hinted: "status", readsManifest: false),
        Case(failing: ["gc", "--quota", "0"], hinted: "status", readsManifest: false),
        Case(failing: ["remove", "aurora"], hinted: "pin --release aurora", readsManifest: false) {
            try await $0.succeed("pin", "aurora")
        },
        Case(failing: ["pin", "aurora", "9"], hinted: "fetch aurora"),
        Case(failing: ["status"], hinted: "prefetch") { world in
            try world.directory.removeTree(try #require(world.container.lastComponent))
        },
        Case(failing: ["doctor"], hinted: "prefetch") { world in
            try world.directory.removeTree(try #require(world.container.lastComponent))
        },
        Case(failing: ["doctor"], hinted: "repair") { try remove("pack.json", in: $0) },
        Case(failing: ["status"], hinted: "prefetch") { world in
            guard
                let record = try Directory.open(world.container)
                    .file(updatingExisting: "container.json")
            else { throw NeverHappened() }
            try record.truncate(to: 0)
        },
    ]

    /// Removes a file of the generation of `aurora`.
    private static func remove(_ name: FilePath.Component, in world: World) throws {
        let generation = try #require(try world.names(in: "generations/aurora").first)
        let path = world.container.appending("generations/aurora/\(generation)")
        _ = try Directory.open(path).remove(name)
    }

    @Test(arguments: cases)
    func theCommandOfAHintRunsAsItIsPrinted(row: Case) async throws {
        var world = try World()
        let extra = try SamplePack.small(try PackID("extra"), policy: .onDemand)
        try world.publish(try .small(.aurora), extra)
        try await world.succeed("prefetch", "--quiet")
        try await row.arrange(world)
        let ending = try await world.program.run(row.failing + world.source)
        let text = ending.output + ending.error
        let words = try await HintedCommand.words(in: text)
        let source = row.readsManifest ? world.source : ["--container", world.container.string]
        #expect(words == row.hinted.split(separator: " ").map(String.init) + source, "\(text)")
        if text.contains("remove it, then") {
            _ = try Directory.open(world.container).remove("container.json")
        }
        let hinted = try await world.program.run(words)
        #expect(hinted.status == row.status, "\(words): \(hinted)")
    }

    /// '--app' excludes '--manifest', so a hint with both would name a command that is refused.
    @Test(
        .mountNamespaceIfRoot,
        arguments: [
            "status", "ls", "info aurora", "du", "verify", "gc", "doctor", "why", "pin",
            "rollback aurora", "remove aurora",
        ]
    )
    func noHintAddsAnApplicationToAManifest(command: String) async throws {
        let installed = try await Installed()
        let words = command.split(separator: " ").map(String.init)
        let source = ["--manifest", installed.world.manifestURL]
        let ending = try await installed.world.program.run(words + source)
        let error = """
            stagepack: error: no container is named: pass --container DIR, or --app ID in place of --manifest and --root

            """
        #expect(ending == Program.Ending(status: 64, output: "", error: error))
    }

    /// Paths with spaces and quotes reach the command of the hint unchanged.
    @Test func pathsAreQuoted() async throws {
        var world = try World()
        try world.publish(try .small(.aurora, policy: .onDemand))
        let container = world.directory.path.appending("one's container").string
        let source = ["--manifest", world.manifestURL, "--container", container]
        let ending = try await world.program.run(["fetch", "borealis"] + source)
        let words = try await HintedCommand.words(in: ending.error)
        #expect(words == ["plan"] + source)
        #expect(try await world.program.run(words).status == 0)
    }

    /// A server that asks for credentials, or has an authority of its own, refuses a command without them.
    @Test(arguments: [
        ("--cacert", "", "authority"), ("--netrc-file", "", "machine cdn.example login a"),
        ("--token-file", "cdn.example=", "secret"),
    ])
    func theCommandOfAHintReachesTheSameServers(
        option: String,
        prefix: String,
        content: String
    ) async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        try world.directory.write(Array("\(content)\n".utf8), to: "a file", durably: false)
        let access = [option, "\(prefix)\(world.directory.path.appending("a file"))"]
        let ending = try await world.program.run(["fetch", "borealis"] + access + world.source)
        let words = try await HintedCommand.words(in: ending.error)
        #expect(words == ["plan"] + world.source + access)
        #expect(try await world.program.run(words).status == 0)
    }

    /// An apostrophe and a combining character are one character to Swift, but two to a shell; a long path is whole.
    @Test(arguments: [
        "'\u{301};touch made;echo '\u{301}", "$(touch made)", "`touch made`", "a\" 'b'",
        String(repeating: "long path ", count: 23),
    ])
    func noNameOfAFileEndsTheQuotation(name: String) async throws {
        let world = try World()
        try world.directory.write(
            Array("-----BEGIN PRIVATE KEY-----\n".utf8),
            to: try #require(FilePath.Component(name)),
            durably: false,
            exactly: [.ownerReadWrite, .groupRead]
        )
        let path = world.directory.path.appending(name)
        let ending = try await world.program.run(["keys", "show", path.string])
        let hint = try #require(ending.error.firstMatch(of: #/hint: (chmod 600 .*)/#)).1
        let shell = Program(wrapper: ["/bin/sh", "-c", "cd \(world.directory.path) && \(hint)"])
        #expect(try await shell.run([]).status == 0)
        #expect(try world.directory.status(FilePath(name))?.mode == 0o600)
        #expect(try world.directory.status("made") == nil)
    }

    @Test func aManifestThatIsAFileIsLinted() async throws {
        let world = try World()
        try world.directory.write(Array("{".utf8), to: "m 1.json", durably: false)
        let file = world.directory.path.appending("m 1.json").string
        let ending = try await world.program.run(
            ["plan"] + world.source(manifest: file)
        )
        let words = try await HintedCommand.words(in: ending.error)
        #expect(words == ["manifest", "lint", file])
        #expect(try await world.program.run(words).status == 3)
    }

    /// Without a container, an application or a manifest there is no command that could run.
    @Test func aHintWithoutASourceNamesNoCommandOnIt() async throws {
        let world = try World()
        let container = world.container.string
        let ending = try await world.program.run(["status", "--container", container])
        #expect(ending.status == 41)
        #expect(!ending.error.contains("stagepack prefetch"))
        #expect(ending.error.contains("\nhint: "))
    }
}

/// Hints of commands that name an application, or mean all of them.
@Suite(.server, .directory, .mountNamespace)
struct ApplicationHintTests {
    @Test(arguments: [["prefetch", "--all"], ["prefetch", "--app", "net.example.wallpaper"]])
    func theCommandOfAHintNamesTheApplication(failing: [String]) async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        installed.registration.quota = ByteCount(1)
        try installed.install()
        let ending = try await installed.world.program.run(failing + ["--quiet"])
        #expect(ending.status == 40, "\(ending)")
        try await check(ending.error, "status", installed)
        let why = try await installed.run("why")
        try await check(why.output, "status", installed)
    }

    /// Arguments after `--` are packs, even those that look like options.
    @Test func anOptionIsAddedBeforeTheEndOfOptions() async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        let ending = try await installed.run("fetch", "--quiet", "--", "aurora")
        let words = try await HintedCommand.words(in: ending.error)
        let application = ["--app", "net.example.wallpaper"]
        #expect(words == ["fetch", "--quiet"] + application + ["--", "aurora"], "\(ending)")
        #expect(try await installed.world.program.run(words).status == 0)
    }

    private func check(_ text: String, _ command: String, _ installed: Installed) async throws {
        let words = try await HintedCommand.words(in: text)
        #expect(words == [command, "--app", "net.example.wallpaper"], "\(text)")
        let hinted = try await installed.world.program.run(words)
        #expect(hinted.status == 0, "\(hinted)")
    }
}

/// The command between the quotation marks of a hint.
enum HintedCommand {
    /// Returns the words of the first command of the text after the program's name, as a shell splits it.
    static func words(in text: String) async throws -> [String] {
        let hints = text.split(separator: "\n")
            .filter { $0.contains("hint: ") || $0.contains("to do: ") }
        let match = hints.lazy.compactMap {
            $0.firstMatch(of: #/(['"])stagepack (.*?)\1(?=$|[ ,;:])/#)
        }
        .first
        let command = try #require(match, "\(text)").2
        let shell = Program(wrapper: ["/bin/sh", "-c", "printf '%s\\n' \(command)"])
        return try await shell.run([]).output.split(separator: "\n").map(String.init)
    }
}
