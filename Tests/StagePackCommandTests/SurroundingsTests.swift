import FoundationEssentials
import Glibc
import StageContainer
import StageControl
import StageDigest
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The variables that root's programs accept from an environment that a user has prepared, as a package manager under `su`
/// inherits it.
@Suite(.server, .directory, .rootInMountNamespace)
struct SurroundingsTests {
    private let prefetch = ["prefetch", "--app", "net.example.wallpaper", "--attempts", "1"]

    /// An application that is registered in the system, and a registration of the same name in a user's home, which names the user's
    /// manifest.
    private func attacked() async throws -> Installed {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        var registration = installed.registration
        registration.manifestURLs = [installed.world.server.url("/of-the-user.json")]
        let home = try installed.world.directory.makeDirectory("home")
        for folder in ["stagepack/apps.d", ".config/stagepack/apps.d"] {
            try Directory.make(home.path.appending(FilePath(folder).components)).write(
                registration.json(),
                to: "net.example.wallpaper.json",
                durably: false
            )
        }
        for name in ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "TMPDIR"] {
            installed.world.program.environment[name] = home.path.string
        }
        return installed
    }

    @Test func theRegistrationsAndContainersOfItsCallerAreNotRoots() async throws {
        let installed = try await attacked()
        let ending = try await installed.world.program.run(prefetch)
        #expect(ending.status == 0, "\(ending.error)")
        #expect(try installed.staged() == ["aurora": 1])
        #expect(installed.world.server.counts(for: "/of-the-user.json").requests == 0)
        let shown = try await installed.run("app", "show", "net.example.wallpaper", "--json")
        #expect(shown.output.contains(#""file" : "/etc/stagepack/apps.d/"#), "\(shown.output)")
        #expect(!shown.output.contains("home"))
        let home = try Directory.open(installed.world.directory.path.appending("home"))
        #expect(try home.entries().map(\.path.string).sorted() == [".config", "stagepack"])
    }

    @Test func aSocketThatTheEnvironmentNamesIsNotAsked() async throws {
        var installed = try await attacked()
        let home = installed.world.directory.path.appending("home")
        let daemons = [home.appending("false.sock"), home.appending("stagepack/control.sock")]
            .map { TestDaemon(path: $0.string) }
        for daemon in daemons { try daemon.start() }
        defer { for daemon in daemons { daemon.stop() } }
        installed.world.program.asksDaemon = true
        installed.world.program.environment["STAGEPACK_SOCKET"] = daemons[0].path
        let ending = try await installed.world.program.run(prefetch)
        #expect(ending.status == 0, "\(ending.error)")
        #expect(try installed.staged() == ["aurora": 1])
        let tasks = try await installed.run("tasks")
        #expect(tasks.status == 50)
        #expect(tasks.error.contains("no daemon listens at '\(ControlSocket.system)'\n"))
        #expect(daemons.map(\.connectionCount) == [0, 0])
    }

    @Test func librariesReadNothingOfTheCallers() async throws {
        var installed = try await attacked()
        let home = installed.world.directory.path.appending("home")
        let keys = home.appending("keys")
        // libcurl creates this file when it starts, and OpenSSL refuses to start with such a configuration.
        installed.world.program.environment["SSLKEYLOGFILE"] = keys.string
        installed.world.program.environment["OPENSSL_CONF"] = home.appending("none").string
        installed.world.program.environment["CURL_CA_BUNDLE"] = home.appending("none").string
        installed.world.program.environment["SSL_CERT_FILE"] = home.appending("none").string
        let ending = try await installed.world.program.run(prefetch)
        #expect(ending.status == 0, "\(ending.error)")
        let encrypted = try await installed.world.program.run(
            ["prefetch", "--attempts", "1", "--manifest", "https://127.0.0.1:1/"]
                + ["--container", home.appending("container").string]
        )
        #expect(encrypted.status == 10)
        #expect(encrypted.error.contains("the request to 'https://127.0.0.1:1/' failed"))
        #expect(!FileStatus.exists(keys))
    }

    /// Another user's variable must not delay a package manager.
    @Test(arguments: [("100000", "60 seconds"), ("50", "50 seconds"), ("abc", "60 seconds")])
    func theEnvironmentOnlyShortensAHook(row: (value: String, time: String)) async throws {
        var installed = try await attacked()
        installed.world.program.environment["STAGEPACK_HOOK_DEADLINE"] = row.value
        let ending = try await installed.run("prefetch", "--all", "--hook")
        let start = "stagepack: installing essential packs, within \(row.time)\n"
        #expect(ending.output.hasPrefix(start), "\(ending)")
        #expect(try installed.staged() == ["aurora": 1])
        let warning = "stagepack: warning: STAGEPACK_HOOK_DEADLINE is 'abc', expected seconds"
        #expect(ending.error.hasPrefix(warning) == (row.value == "abc"), "\(ending)")
        #expect(ending.error.isEmpty == (row.value != "abc"), "\(ending)")
    }
}

/// Root's programs and a process at the socket of the system's daemon.
@Suite(.server, .directory, .mountNamespaceIfRoot)
struct FalseDaemonTests {
    private let prefetch = ["prefetch", "--app", "net.example.wallpaper", "--attempts", "1"]

    private func installed() async throws -> (Installed, SamplePack) {
        var installed = try await Installed()
        let pack = try SamplePack.small(.aurora)
        try installed.world.publish(pack)
        installed.allowDaemon()
        _ = try Directory.make(installed.socket.removingLastComponent())
        return (installed, pack)
    }

    /// Listens as another user, and records the number of bytes from each client.
    private static let listener = """
        import os, socket, sys
        listener = socket.socket(socket.AF_UNIX)
        notes = open(sys.argv[2], "w")
        listener.bind(sys.argv[1])
        os.chmod(sys.argv[1], 0o777)
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        listener.listen(16)
        print("ready", file=notes, flush=True)
        while True:
            client, _ = listener.accept()
            heard = 0
            while data := client.recv(4096):
                heard += len(data)
            client.close()
            print(heard, file=notes, flush=True)
        """

    @Test(.severalUsers)
    func aDaemonOfAnotherUserReceivesNothing() async throws {
        let (installed, _) = try await installed()
        let notes = installed.world.directory.path.appending("notes")
        let script = try PythonScript(Self.listener, installed.socket.string, notes.string)
        defer { script.end() }
        try await poll { try text(of: notes) == "ready\n" }
        let tasks = try await installed.run("tasks")
        #expect(tasks.status == 50)
        #expect(
            tasks.error == """
                stagepack: error: the process that listens at '\(installed.socketName)' belongs to \
                user 65534, and not to root or this user
                hint: end that process, which 'fuser --verbose \(installed.socketName)' names, or remove \
                its socket: 'rm \(installed.socketName)'

                """
        )
        let ending = try await installed.world.program.run(prefetch)
        #expect(ending.status == 0, "\(ending.error)")
        #expect(try installed.staged() == ["aurora": 1])
        try await poll { try text(of: notes).split(separator: "\n").count == 3 }
        #expect(try text(of: notes) == "ready\n0\n0\n")
    }

    @Test(.apart, arguments: SilentDaemon.Silence.allCases)
    func commandsWaitSecondsAtMostForASilentDaemon(_ silence: SilentDaemon.Silence) async throws {
        let (installed, _) = try await installed()
        let daemon = try SilentDaemon(at: installed.socket.string, silence)
        defer { daemon.stop() }
        let ending = try await installed.world.program.run(prefetch, deadline: 8) {
            $0.status == 0
        }
        #expect(ending.status == 0, "\(ending.error)")
        #expect(try installed.staged() == ["aurora": 1])
        let tasks = try await installed.run("tasks")
        #expect(tasks.status == 50)
        let manager = geteuid() == 0 ? "systemctl" : "systemctl --user"
        #expect(
            tasks.error == """
                stagepack: error: the daemon at '\(installed.socketName)' does not answer: it sent \
                nothing for 3 seconds
                hint: start it again: '\(manager) restart stagepackd'

                """
        )
        let finding = "the daemon at '\(installed.socketName)' does not answer: it sent nothing"
        let version = try await installed.run("version")
        #expect(version.status == 0)
        #expect(version.output.contains("\nstagepackd: \(finding)"), "\(version)")
        let doctor = try await installed.run("doctor")
        #expect(doctor.status == 3)
        #expect(doctor.output.contains("problem: daemon: \(finding)"), "\(doctor)")
        #expect(doctor.output.contains("'\(manager) restart stagepackd'"), "\(doctor)")
        // The daemon may have a transfer that installs the pack again.
        let removal = try await installed.run("remove", "aurora", "--app", "net.example.wallpaper")
        #expect(removal.status == 0, "\(removal)")
        #expect(removal.output == "aurora: removed\n", "\(removal)")
        #expect(removal.error.contains("The daemon may install the pack again"), "\(removal)")
    }

    @Test func aRunStagesItselfIfTheDaemonNeverStartsItsTask() async throws {
        let (installed, _) = try await installed()
        let daemon = TestDaemon(path: installed.socket.string)
        try daemon.start()
        defer { daemon.stop() }
        let arguments = prefetch + ["--deadline", "60"]
        let ending = try await installed.world.program.run(arguments) { _ in
            try await poll { !daemon.tasks.isEmpty }
        }
        #expect(ending.status == 0, "\(ending.error)")
        #expect(try installed.staged() == ["aurora": 1])
    }

    /// The daemon grants the staging, and hangs when the command reports the end.
    @Test(.apart) func aDaemonThatHangsAtTheEndDelaysACommandByThreeSeconds() async throws {
        let (installed, _) = try await installed()
        let daemon = TestDaemon(path: installed.socket.string)
        try daemon.start()
        defer { daemon.stop() }
        daemon.hold("PATCH /v1/tasks/")
        defer { daemon.release() }
        let staged = ContinuousClock.now
        let ending = try await installed.world.program.run(prefetch) { [installed] _ in
            try await poll { try installed.staged() == ["aurora": 1] }
        }
        #expect(ending.status == 0, "\(ending.error)")
        // Three seconds for the daemon's grant, which it does not send, and three for the end.
        #expect(ContinuousClock.now - staged < .seconds(14))
    }
}
