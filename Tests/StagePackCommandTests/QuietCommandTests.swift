import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Commands that print a summary of their change, which `--quiet` leaves out.
@Suite(.server, .directory, .timeLimit(.minutes(10)))
struct QuietCommandTests {
    private static let silence = Program.Ending(status: 0, output: "", error: "")

    @Test func commandsThatChangeAContainerPrintNothing() async throws {
        var world = try World()
        for version in 1...2 {
            try world.publish(try .small(.aurora, version: version))
            try await world.succeed("prefetch", "--quiet")
        }
        for command in [
            ["pin", "aurora"], ["pin", "--release", "aurora"], ["gc"], ["rollback", "aurora"],
            ["pin", "--release", "aurora"], ["gc", "--previous"], ["remove", "aurora"],
        ] {
            let words = command + ["--quiet"] + world.source
            #expect(try await world.program.run(words) == Self.silence, "\(command)")
        }
        #expect(try world.staged(.aurora) == nil)
        // JSON and the result of a dry run are the purpose of the command, so they are printed.
        let json = try await world.succeed("remove", "aurora", "--quiet", "--json")
        #expect(json.contains("stagepack/remove/1"))
        let dry = try await world.succeed("gc", "--quiet", "--dry-run")
        #expect(dry.hasPrefix("would remove "), "\(dry)")
        #expect(try await world.run("rollback", "aurora", "--quiet").error.contains("error: "))
    }

    @Test func onlyPacksThatDifferAreNamed() async throws {
        var world = try World()
        try world.publish(try .small(.aurora), try .small(try PackID("borealis")))
        try await world.succeed("prefetch", "--quiet")
        #expect(try await world.run("verify", "--quiet") == Self.silence)
        try Directory.open(world.container.appending("packs/aurora"))
            .write([1], to: "added.txt", durably: false)
        let ending = try await world.run("verify", "--quiet")
        #expect(ending.status == 3)
        #expect(ending.output == "aurora: added: added.txt\n" && ending.error == "", "\(ending)")
        let json = try await world.run("verify", "--quiet", "--json")
        #expect(json.output.contains("borealis"), "\(json)")
    }

    @Test func commandsThatChangeRegistrationsPrintNothing() async throws {
        var installed = try await Installed()
        try installed.uninstall()
        let directory = installed.world.directory
        let copy: FilePath.Component = "net.example.wallpaper.json"
        try directory.write(installed.registration.json(), to: copy, durably: false)
        let path = directory.path.appending(copy).string
        #expect(try await installed.run("app", "register", path, "--quiet") == Self.silence)
        let words = ["app", "unregister", "net.example.wallpaper", "--quiet"]
        #expect(try await installed.world.program.run(words) == Self.silence)
        let daemon = try installed.startTestDaemon()
        defer { daemon.stop() }
        let url = "http://127.0.0.1:1/file"
        for command in [
            ["tasks", "add", url], ["pause", "--all"], ["resume", "--all"], ["cancel", "--all"],
        ] {
            let ending = try await installed.world.program.run(command + ["--quiet"])
            #expect(ending == Self.silence, "\(command)")
        }
    }
}

/// The same for commands of publishers.
@Suite(.directory, .timeLimit(.minutes(10)))
struct QuietPublisherTests: PublisherSuite {
    let directory: Directory
    let program: Program

    init() throws {
        directory = try TemporaryDirectory.required()
        program = try Program(in: directory)
        _ = try directory.makeDirectory("assets")
        _ = try directory.makeDirectory("site")
        try Directory.open(directory.path.appending("assets"))
            .write(Array("one".utf8), to: "one.txt", durably: false)
        let recipe = """
            {"assetPackID": "aurora", "downloadPolicy": {"onDemand": {}}, "fileSelectors": [{"directory": "assets"}]}
            """
        try directory.write(Array(recipe.utf8), to: "recipe.json", durably: false)
    }

    @Test func commandsOfPublishersPrintNothing() async throws {
        let manifest = "site/manifest.json"
        // The key is the result of the command, so it is printed.
        let key = try await run("keys generate k.pem --unencrypted --quiet")
        #expect(key.status == 0 && key.error == "", "\(key)")
        #expect(key.output.hasPrefix("key: "), "\(key)")
        for command in [
            "package recipe.json -o site/a.tar",
            "manifest create --application net.example -o \(manifest)",
            "manifest add \(manifest) site/a.tar --recipe recipe.json --pack-version 1",
            "manifest set-policy \(manifest) aurora prefetch",
            "keys init \(manifest) --key k.pem", "sign \(manifest) --key k.pem",
            "refresh \(manifest) --key k.pem --force", "rotate \(manifest) --key k.pem",
            "manifest remove \(manifest) aurora --key k.pem",
        ] {
            let ending = try await run("\(command) --quiet")
            #expect(ending == Program.Ending(status: 0, output: "", error: ""), "\(command)")
        }
        let json = try await run("refresh \(manifest) --key k.pem --force --quiet --json")
        #expect(json.status == 0 && json.output.contains("stagepack/refresh/1"), "\(json)")
    }

    /// If a manifest was changed and cannot be signed, one JSON object reports both.
    @Test func aChangeThatCannotBeSignedIsOneObject() async throws {
        let manifest = "site/manifest.json"
        for command in [
            "package recipe.json -o site/a.tar",
            "manifest create --application net.example -o \(manifest)",
            "manifest add \(manifest) site/a.tar --recipe recipe.json --pack-version 1",
            "keys generate k.pem --unencrypted", "keys generate stranger.pem --unencrypted",
            "keys init \(manifest) --key k.pem",
        ] {
            #expect(try await run("\(command) --quiet").status == 0, "\(command)")
        }
        let change = "manifest set-policy \(manifest) aurora prefetch --key stranger.pem --json"
        let ending = try await run(change)
        #expect(ending.status == 31, "\(ending)")
        let value = try JSONNode(json: Array(ending.output.utf8)).value
        #expect(value["schema"]?.string == "stagepack/manifest-set-policy/1", "\(ending)")
        #expect(value["error"]?["status"]?.integer == 31, "\(ending)")
        #expect(try OutputSchemas().faults(of: value, as: "manifest-set-policy") == [])
    }
}
