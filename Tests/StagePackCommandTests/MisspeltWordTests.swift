import FoundationEssentials
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Suggestions for misspelt words, and command lines that cannot be parsed.
@Suite(.server, .directory)
struct MisspeltWordTests {
    private struct Failure: Decodable, Equatable {
        struct Body: Decodable, Equatable {
            var message, retry: String
            var hint: String?
            var status: Int
        }

        var error: Body
    }

    @Test(arguments: [
        (
            ["prefech", "--app", "x"], "stagepack has no command 'prefech'",
            "did you mean 'stagepack prefetch'?"
        ),
        (
            ["manifest", "ad"], "stagepack manifest has no command 'ad'",
            "did you mean 'stagepack manifest add'?"
        ),
        (
            ["volcano"], "stagepack has no command 'volcano'",
            "run 'stagepack --help' to see its commands"
        ),
        (
            ["help", "prefech"], "stagepack has no command 'prefech'",
            "did you mean 'stagepack prefetch'?"
        ),
        (
            ["help", "manifest", "lnt"], "stagepack manifest has no command 'lnt'",
            "did you mean 'stagepack manifest lint'?"
        ),
    ])
    func aMisspeltCommandIsAskedFor(arguments: [String], message: String, hint: String) async throws
    {
        let ending = try await Program().run(arguments)
        let text = "stagepack: error: \(message)\nhint: \(hint)\n"
        #expect(ending == Program.Ending(status: 64, output: "", error: text))
        guard arguments.first != "help" else { return }
        let json = try await Program().run(arguments + ["--json"])
        #expect(json.error == "")
        let failure = Failure.Body(message: message, retry: "never", hint: hint, status: 64)
        #expect(try decode(json.output) == failure)
    }

    @Test func helpAboutACommandIsPrinted() async throws {
        let help = try await Program().run(["help", "manifest", "lint"])
        #expect(help.status == 0)
        #expect(help == (try await Program().run(["manifest", "lint", "--help"])))
        #expect(try await Program().run(["help"]).output.contains("prefetch"))
    }

    @Test(arguments: [
        ("manifest add m.json a.tar --recipe r.json --version 1", "did you mean '--pack-version'?"),
        (
            "pin aurora --version 1 --app x",
            "name the version after the pack, without an option"
        ),
        ("fetch oceans --version 7", "run 'stagepack fetch --help' to see its options"),
        ("package r.json -o a.tar --version", "run 'stagepack package --help' to see its options"),
    ])
    func theVersionIsNotPrintedInPlaceOfACommand(line: String, hint: String) async throws {
        let ending = try await Program().run(line.split(separator: " ").map(String.init))
        let text =
            "stagepack: error: '--version' prints the version of stagepack, and takes no other arguments\n"
            + "hint: \(hint)\n"
        #expect(ending == Program.Ending(status: 64, output: "", error: text))
    }

    @Test func theVersionOfTheProgramIsPrinted() async throws {
        let version = try await Program().run(["--version"])
        #expect(version.status == 0 && version.output.hasSuffix("\n"))
        for command in [["load"], ["manifest", "add"]] {
            #expect(try await Program().run(command + ["--version"]) == version)
        }
    }

    @Test(arguments: ["--help", "--version", "load --help", "--generate-completion-script bash"])
    func textThatCannotBePrintedIsAnError(line: String) async throws {
        let shell = ["/bin/sh", "-c", "exec \"$@\" >/dev/full", "sh", try Program.path.string]
        let ending = try await Program(wrapper: shell)
            .run(line.split(separator: " ").map(String.init))
        #expect(ending.status == 74)
        #expect(ending.error.contains("cannot write standard output"), "\(ending.error)")
    }

    @Test(arguments: [
        ("htp://h.example/m.json", "expected an http, https or file URL"),
        ("file://site/m.json", "expected a file URL such as 'file:///path'"),
        ("http://127.0.0.1:808O/m.json", "808O"),
        ("http://h.example/m.json ", "expected a URL without spaces"),
    ])
    func aMisspeltURLIsAnInvalidCommandLine(url: String, message: String) async throws {
        let ending = try await Program().run(["prefetch", "--manifest", url, "--container", "c"])
        #expect(ending.status == 64)
        #expect(ending.error.contains(message), "\(ending.error)")
    }

    @Test func aContainerThatIsNotThereIsAProblem() async throws {
        let path = try TemporaryDirectory.required().path.appending("nosuchdir").string
        let ending = try await Program().run(["doctor", "--container", path])
        #expect(ending.status == 3)
        #expect(ending.output.contains("there is none at '\(path)'"), "\(ending)")
    }

    @Test func aDirectoryIsRefusedAsTheOutputOfADownload() async throws {
        let path = try TemporaryDirectory.required().path.string
        for output in [path, path + "/", path + "/missing/file"] {
            let ending = try await Program()
                .run(["tasks", "add", "http://127.0.0.1:9/x", "-o", output])
            #expect(ending.status == 64)
            #expect(ending.error.contains("'\(path)"), "\(ending.error)")
        }
    }

    @Test func packsOfPrefetchAreForFetch() async throws {
        let ending = try await Program().run(["prefetch", "aurora", "--app", "x"])
        #expect(ending.status == 64)
        #expect(ending.error.contains("'aurora'"), "\(ending)")
        #expect(ending.error.contains("'fetch' stages packs by name"), "\(ending)")
    }

    @Test func aPackThatIsNotStagedIsRemovedWithoutAQuestion() async throws {
        var world = try World()
        try world.publish(try .small(.aurora))
        try await world.succeed("prefetch", "--quiet")
        try await world.succeed("remove", "aurora")
        #expect(try await world.succeed("remove", "aurora") == "aurora: was not staged\n")
        #expect(try await world.succeed("remove", "volcano") == "volcano: was not staged\n")
        // The status does not depend on the names of other packs.
        let similar = try await world.run("remove", "aurorra")
        let warning = "stagepack: warning: pack 'aurorra' is not known: did you mean 'aurora'?\n"
        #expect(
            similar
                == Program.Ending(status: 0, output: "aurorra: was not staged\n", error: warning)
        )
        let json = try await world.run("remove", "aurorra", "--json")
        #expect(json.status == 0 && json.error == "", "\(json)")
        let value = try JSONNode(json: Array(json.output.utf8)).value
        #expect(try OutputSchemas().faults(of: value, as: "remove") == [])
        #expect(json.output.contains("\"similarPack\" : \"aurora\""), "\(json)")
    }

    /// Faults that the parser reports itself, such as options that cannot be combined.
    @Test(arguments: [
        (["plan", "--jsn"], "Unknown option '--jsn'. Did you mean '--json'?"),
        (["fetch"], "expected the packs, or --manifest-only."),
        (["plan", "--event", "launch"], "'launch' is invalid for '--event <event>'"),
    ])
    func aCommandLineThatIsWrongIsAFailureInJSONToo(
        arguments: [String],
        message: String
    ) async throws {
        let text = try await Program().run(arguments)
        #expect(text.status == 64)
        #expect(text.output == "")
        #expect(text.error.contains("Usage: stagepack \(arguments[0])"), "\(text)")
        let json = try await Program().run(arguments + ["--json"])
        #expect(json.status == 64)
        #expect(json.error == "")
        let failure = try decode(json.output)
        #expect(failure.message.contains(message), "\(failure)")
        #expect(failure.hint == "run 'stagepack \(arguments[0]) --help' to see its options")
    }

    @Test(
        arguments: [
            (["fetch", "oceanz"], 13), (["path", "oceanz"], 2), (["verify", "oceanz"], 2),
            (["pin", "oceanz"], 2), (["why", "oceanz"], 13),
        ] as [([String], Int32)]
    )
    func aMisspeltPackIsAskedFor(arguments: [String], status: Int32) async throws {
        var world = try World()
        try world.publish(try .small(.aurora), try .small(try PackID("oceans")))
        try await world.succeed("prefetch", "--quiet")
        let ending = try await world.program.run(arguments + world.source)
        #expect(ending.status == status)
        #expect(ending.error.contains("hint: did you mean 'oceans'?"), "\(ending)")
        let other = try await world.program.run(arguments.dropLast() + ["volcanoes"] + world.source)
        #expect(!other.error.contains("did you mean"), "\(other)")
        guard status == 2 else { return }
        // To load a pack that no manifest has would fail.
        let plan = "stagepack plan \(world.source.joined(separator: " "))"
        let hint = "hint: run '\(plan)' to see all packs\n"
        #expect(other.error.hasSuffix(hint), "\(other)")
    }

    private func decode(_ text: String) throws -> Failure.Body {
        try JSONDecoder().decode(Failure.self, from: Data(text.utf8)).error
    }
}
