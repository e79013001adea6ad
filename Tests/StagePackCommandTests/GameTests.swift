import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The example of a game with managed packs and its downloader extension, from the installation on.
@Suite(.directory, .daemon, .server, .severalUsers)
final class GameTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current
    /// The user who plays; as root, the programs would use another daemon.
    private let user: UInt32 = 65534
    /// The directory of the programs, which only root may write, from '/' on.
    private let installed: InstalledPrograms
    private let home: FilePath
    private var revision = 1

    init() async throws {
        daemon = try .required()
        try daemon.letOthersPass()
        try daemon.configure(#"{"settlingTime": 0, "retryBase": 0.05, "handlerUsers": ["nobody"]}"#)
        try await daemon.start()
        home = try Directory.open(daemon.directory).makeDirectory("home").path
        installed = try InstalledPrograms()
        try ProgramFile.copy(
            from: try Program.path,
            to: installed.path.appending("stagepack")
        )
        for name: FilePath.Component in ["sample-game", "sample-game-extension"] {
            try installed.install(name)
        }
        try install()
    }

    private var programs: FilePath { installed.path }

    /// Writes the registration into the user's folder.
    private func install() throws {
        let registration = """
            {
              "registrationVersion": 1,
              "application": "com.example.game",
              "version": "1.0",
              "applicationGroup": "com.example.games",
              "manifestURLs": ["\(server.url("/manifest.json"))"],
              "trust": "transport",
              "downloaderExtension": {"path": "\(programs)/sample-game-extension"}
            }
            """
        let folder = try Directory.make(home.appending("config/stagepack/apps.d"))
        let name: FilePath.Component = "com.example.game.json"
        try folder.write(Array(registration.utf8), to: name, durably: false)
        for path in ["", "config", "config/stagepack", "config/stagepack/apps.d"] {
            let status = unsafe chown(home.appending(path).string, user, 65534)
            try #require(status == 0)
        }
        let file = home.appending("config/stagepack/apps.d/com.example.game.json").string
        let status = unsafe chown(file, user, 65534)
        try #require(status == 0)
    }

    /// A level, by its name and version.
    private func level(
        _ name: String,
        version: Int = 1,
        policy: DownloadPolicy = .onDemand,
        notes: String? = nil,
        size: Int = 1000
    ) throws -> SamplePack {
        var level = try SamplePack(
            PackID(name),
            version: version,
            policy: policy,
            [
                .init("\(name)/title.txt", content: Array("The \(name), take \(version)".utf8)),
                .init("\(name)/map", content: noise(size, seed: UInt64(version))),
            ]
        )
        level.pack.userInfo = notes
        return level
    }

    /// Serves the levels and a manifest of them, one revision after the one before.
    private func publish(
        _ levels: [SamplePack],
        changing change: (Answer) -> Answer = { $0 }
    ) throws {
        let manifest = Manifest(
            application: try ApplicationID("com.example.game"),
            revision: revision,
            packs: levels.map(\.pack)
        )
        revision += 1
        server.answer("/manifest.json", with: .content(manifest.json()))
        for level in levels { server.answer(level.path, with: change(.content(level.archive))) }
    }

    /// Starts a program as the user, with its output appended to a file.
    private func start(
        _ command: [String],
        log: FilePath,
        by wrapper: [String] = []
    ) throws -> StartedProcess {
        var whole =
            wrapper + ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        whole += ["/usr/bin/env", "-i", "STAGEPACK_SOCKET=\(daemon.socket)"]
        whole += ["HOME=\(home)", "XDG_DATA_HOME=\(home)/data", "XDG_CONFIG_HOME=\(home)/config"]
        whole += ["PATH=\(programs):/usr/bin:/bin", programs.appending(command[0]).string]
        return try StartedProcess(whole + command.dropFirst(), log: log)
    }

    /// Runs a program to its end, which must succeed, and returns its output.
    @discardableResult
    private func run(
        _ command: String...,
        by wrapper: [String] = [],
        at location: SourceLocation = #_sourceLocation
    ) async throws -> String {
        let name = "\(command.joined(separator: "-"))-\(revision).log"
        let log = daemon.directory.appending(name)
        let process = try start(command, log: log, by: wrapper)
        try await poll("'\(command)' does not end") { process.status != nil }
        let output = try text(of: log)
        #expect(process.status == 0, "\(output)", sourceLocation: location)
        return output
    }

    @Test func theExtensionChoosesAndTheGamePlaysUpdatesAndDeletes() async throws {
        let events: Set<InstallationEvent> = [.firstInstallation, .subsequentUpdate]
        var levels = [
            try level("harbour", policy: .essential(events)),
            try level("films-hd", policy: .prefetch(events), notes: #"{"quality":"hd"}"#),
            try level("films-uhd", policy: .prefetch(events), notes: #"{"quality":"uhd"}"#),
            try level("lighthouse"),
        ]
        try publish(levels)
        try await run("stagepack", "prefetch", "--app", "com.example.game")
        let list = try await run("sample-game", "levels")
        #expect(
            list == """
                * films-hd, version 1
                  films-uhd, version 1
                * harbour, version 1
                  lighthouse, version 1

                """
        )
        let output = try await run("sample-game", "play", "lighthouse")
        #expect(output.hasSuffix("The lighthouse, take 1\n"))
        levels[3] = try level("lighthouse", version: 2)
        try publish(levels)
        #expect(try await run("sample-game", "update") == "updated lighthouse\n")
        #expect(try await run("sample-game", "play", "lighthouse") == "The lighthouse, take 2\n")
        try await run("sample-game", "quality", "uhd")
        try await run("sample-game", "delete", "films-hd")
        try await run("stagepack", "prefetch", "--app", "com.example.game")
        let films = try await run("sample-game", "levels").split(separator: "\n").prefix(2)
        #expect(films == ["  films-hd, version 1", "* films-uhd, version 1"])
    }

    @Test(.mountNamespace)
    func aChoiceIsThePlayersWhereRootHasASharedFolder() async throws {
        let library = daemon.directory.appending("lib")
        _ = try Directory.make(library.appending("stagepack/groups/com.example.games/shared"))
        // The programs are in a directory of '/var/lib', which the mounted one hides.
        let kept = try #require(programs.lastComponent)
        _ = try Directory.make(library.appending(kept))
        let script = """
            chmod -R a+rX "$1" && mount --bind "$2" "$1/$3" && mount --rbind "$1" /var/lib || exit 99
            shift 3; exec "$@"
            """
        let shell = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", script, "sh"]
        let wrapper = shell + [library.string, programs.string, kept.string]
        try await run("sample-game", "quality", "uhd", by: wrapper)
        let file = "data/stagepack/groups/com.example.games/shared/quality"
        #expect(try text(of: home.appending(file)) == "uhd")
    }

    @Test func aLevelIsDownloadedWhenTheGameWasKilled() async throws {
        let level = try level("cave", size: 1 << 20)
        let gate = Gate()
        try publish([level]) { $0.held(after: 256 << 10, until: gate) }
        let log = daemon.directory.appending("killed.log")
        let game = try start(["sample-game", "play", "cave"], log: log)
        try await poll("nothing is downloaded") { !server.requests(for: level.path).isEmpty }
        try await poll("the daemon is not told") {
            try await !daemon.client.tasks(all: true).isEmpty
        }
        game.send(SIGKILL)
        try await poll("the game stays") { game.status != nil }
        let title = home.appending(
            "data/stagepack/groups/com.example.games/packs/cave/cave/title.txt"
        )
        #expect(!FileStatus.exists(title))
        gate.open()
        try await poll("the level is not staged") { FileStatus.exists(title) }
        let requests = server.requests(for: level.path).count
        #expect(try await run("sample-game", "play", "cave") == "The cave, take 1\n")
        #expect(server.requests(for: level.path).count == requests)
    }

    @Test func aDeletedLevelIsNotBroughtAgain() async throws {
        try publish([level("harbour")])
        try await run("sample-game", "play", "harbour")
        let next = try level("harbour", version: 2)
        try publish([next])
        // The server does not have the archive yet.
        server.answer(next.path, with: .status(404))
        let log = daemon.directory.appending("update.log")
        let update = try start(["sample-game", "update"], log: log)
        try await poll("the update does not end") { update.status != nil }
        #expect(update.status != 0)
        #expect(try await !daemon.client.tasks(all: true).isEmpty)
        try await run("sample-game", "delete", "harbour")
        try await poll("the daemon goes on") {
            try await daemon.client.sessions(all: true).isEmpty
        }
        server.answer(next.path, with: .content(next.archive))
        #expect(try await daemon.client.tasks(all: true).isEmpty)
        #expect(try await run("sample-game", "levels") == "  harbour, version 2\n")
    }
}
