import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// FIFOs, devices, links and the like instead of a container's records: every command ends, and reports
/// what is wrong.
@Suite(.server, .directory)
struct OddFileTests {
    /// The kind of entry instead of an expected file.
    enum Oddity: String, CaseIterable, Sendable {
        case fifo = "mkfifo \"$1\""
        case socket = """
            /usr/bin/python3 -c "import socket, sys, os; os.chdir(os.path.dirname(sys.argv[1]))
            socket.socket(socket.AF_UNIX).bind(os.path.basename(sys.argv[1]))" "$1"
            """
        case directory = "mkdir \"$1\""
        case endlessLink = "ln -s /dev/zero \"$1\""
        case ownLink = "ln -s \"$1\" \"$1\""
        case sparse = "truncate -s 1T \"$1\""
    }

    /// The records of the container of ``make()``, from the container on; `G` is the generation.
    static let names = [
        "container.json", "G/pack.json", "G/files", "G/lease", "G/index",
        "manifest/net.example.wallpaper.json", "history/net.example.wallpaper.json",
        "pins/levels.json", "downloads/D.state", "downloads/D.part.1", "packs/levels",
    ]

    private let world: World

    init() throws { world = try World() }

    /// Stages an indexed pack, pins it, and leaves part of a download.
    private func make() async throws {
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": noise(100_000), "b": [1]])
        _ = try await publisher.package(version: 1)
        try await world.succeed("fetch", "levels", "--quiet")
        try await world.succeed("pin", "levels")
    }

    private func path(of name: String) throws -> String {
        let folder = world.container.appending("generations/levels")
        let generation = try #require(try Directory.open(folder).entries().first?.name.string)
        let digest = String(repeating: "ab", count: 32)
        return name.replacing("G/", with: "generations/levels/\(generation)/")
            .replacing("/D.", with: "/\(digest).")
    }

    /// Runs a command on the container for at most five minutes; the status is 137 if it takes longer.
    private func run(_ arguments: String...) async throws -> Program.Ending {
        var program = world.program
        program.wrapper = [
            "/bin/sh", "-c", #"ulimit -v 8000000; exec timeout -s KILL 300 "$@""#, "sh",
            try Program.path.string,
        ]
        return try await program.run(arguments + ["--container", world.container.string])
    }

    private func place(_ oddity: Oddity, at path: String) async throws {
        var program = world.program
        program.wrapper = [
            "/bin/sh", "-c", "rm -rf \"$1\"; mkdir -p \"$(dirname \"$1\")\"; \(oddity.rawValue)",
            "sh", "\(world.container)/\(path)",
        ]
        let made = try await program.run([])
        try #require(made.status == 0, "\(made.error)")
    }

    @Test(arguments: names, Oddity.allCases)
    func everyCommandEndsWithAnAnswer(name: String, oddity: Oddity) async throws {
        try await make()
        let path = try path(of: name)
        try await place(oddity, at: path)
        for command in ["status", "verify", "doctor", "gc"] {
            let ending = try await run(command)
            #expect(ending.status < 100, "\(command): \(ending)")
            let isSilent = (ending.output + ending.error).isEmpty
            #expect(!isSilent || name == "packs/levels" && command == "verify", "\(command)")
        }
        #expect(try await run("why", "levels").status < 100)
    }

    /// `doctor` reports the checked entries, with advice.
    @Test(arguments: names.filter { !$0.hasPrefix("downloads") && !$0.hasPrefix("packs") })
    func doctorNamesAFifoAndWhatToDo(name: String) async throws {
        try await make()
        let path = try path(of: name)
        try await place(.fifo, at: path)
        let ending = try await run("doctor")
        #expect(ending.status == 3)
        #expect(ending.output.contains("\(world.container)/\(path)'"), "\(ending.output)")
        #expect(ending.output.contains("is not a regular file"), "\(ending.output)")
        #expect(ending.output.contains("hint: remove it, then run 'stagepack "), "\(ending.output)")
    }

    /// Missing files of a generation are staged again.
    @Test(arguments: ["G/pack.json", "G/files", "G/lease", "G/index"], Oddity.allCases)
    func repairReplacesAGenerationWithOddFiles(name: String, oddity: Oddity) async throws {
        // A large lease is valid, and the index is compared only when it is used.
        if oddity == .sparse, name == "G/lease" || name == "G/index" { return }
        try await make()
        try await place(oddity, at: try path(of: name))
        #expect(try await run("verify").status == 3)
        try await world.succeed("repair", "--quiet")
        try await world.succeed("verify")
        try await world.succeed("gc", "--previous")
        #expect(try world.names(in: "generations/levels").count == 1)
        try await world.succeed("doctor")
    }

    /// Following the hint repairs the record of the container.
    @Test func aDamagedRecordOfTheContainerIsRecreatedAsReported() async throws {
        try await make()
        try await place(.fifo, at: "container.json")
        let ending = try await world.run("status")
        let error = """
            stagepack: error: the record 'DIRECTORY/container/container.json' is damaged: it is not a \
            regular file
            hint: remove it, then run 'stagepack prefetch --manifest SERVER/manifest.json --container DIRECTORY/container'

            """
        #expect(ending.status == 41)
        #expect(world.masked(ending.error) == error)
        try Directory.open(world.container).remove("container.json")
        try await world.succeed("prefetch", "--quiet")
        try await world.succeed("verify", "levels")
    }

    /// A copy of a container may lack the record alone.
    @Test func aMissingRecordOfTheContainerIsRecreatedAsReported() async throws {
        try await make()
        try Directory.open(world.container).remove("container.json")
        let record = "the record 'DIRECTORY/container/container.json' is damaged: it does not exist"
        let options = "--manifest SERVER/manifest.json --container DIRECTORY/container"
        let hint = "hint: run 'stagepack prefetch \(options)', which writes it again\n"
        for command in ["status", "remove levels", "doctor"] {
            let words = command.split(separator: " ").map(String.init)
            let ending = try await world.program.run(words + world.source)
            let text = world.masked(ending.output + ending.error)
            #expect(ending.status == (command == "doctor" ? 3 : 41), "\(text)")
            #expect(text.contains(record) && text.contains(hint), "\(text)")
            let bare = try await world.program.run(
                words + ["--container", world.container.string]
            )
            let advice = "hint: run 'stagepack prefetch' with this --container and --app ID or "
            #expect((bare.output + bare.error).contains(advice), "\(bare)")
        }
        try await world.succeed("prefetch", "--quiet")
        try await world.succeed("verify", "levels")
    }

    /// An entry with the name of a lock file that is no regular file is replaced.
    @Test(
        arguments: ["locks/levels", "locks/.staging", "locks/.history", "downloads/D.lock"],
        [Oddity.fifo, .socket, .directory, .endlessLink]
    )
    func aLockFileThatIsNoneIsRecreated(name: String, oddity: Oddity) async throws {
        try await make()
        let path = try path(of: name)
        try await place(oddity, at: path)
        for command in ["gc", "fetch", "remove"] {
            let names = command == "gc" ? [] : ["levels"]
            let source = command == "fetch" ? ["--manifest", world.manifestURL] : []
            var program = world.program
            program.wrapper = ["/usr/bin/timeout", "-s", "KILL", "60", try Program.path.string]
            let ending = try await program.run(
                [command] + names + source + ["--container", world.container.string]
            )
            // The pack is pinned; the test only requires that the command processed it.
            #expect([0, 43].contains(ending.status), "\(command): \(ending)")
        }
        try await world.succeed("doctor")
    }

    /// Odd files of an interrupted download do not prevent the next one.
    @Test(arguments: ["state", "part.1"], [Oddity.fifo, .endlessLink, .socket])
    func aDownloadRestartsWhereItsFilesAreOdd(suffix: String, oddity: Oddity) async throws {
        var world = world
        let pack = try SamplePack.large(try .aurora, version: 1, mebibytes: 4)
        try world.publish(pack)
        try await place(oddity, at: "downloads/\(pack.pack.contentDigest).\(suffix)")
        try await world.succeed("prefetch", "--quiet")
        #expect(try world.staged(try .aurora) == StagedFiles(pack))
    }
}
