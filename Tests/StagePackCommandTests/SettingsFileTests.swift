import FoundationEssentials
import Glibc
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Commands on a machine whose administrator has written `/etc/stagepack/stagepack.json`.
@Suite(.apart, .server, .directory, .timeLimit(.minutes(10)), .rootInMountNamespace)
struct SettingsFileTests {
    private static let file = "configuration file '/etc/stagepack/stagepack.json': "

    /// A machine with a registered application and these settings.
    private func installed(_ settings: String) async throws -> Installed {
        let installed = try await Installed()
        try write(settings, installed)
        return installed
    }

    private func write(
        _ settings: String,
        _ installed: Installed,
        mode: FilePermissions = [.ownerReadWrite, .groupRead, .otherRead]
    ) throws {
        let folder = installed.world.directory.path.appending("etc/stagepack")
        try Directory.make(folder).write(
            Array(settings.utf8),
            to: "stagepack.json",
            durably: false,
            exactly: mode
        )
    }

    /// An address of a host that only the proxy can resolve.
    private static let proxied = "http://a.invalid/pack"

    /// Publishes a pack at the address of a host for which the test's server is the proxy.
    private func publish(
        _ pack: SamplePack,
        _ installed: inout Installed,
        changing change: (Answer) -> Answer = { $0 }
    ) throws {
        var pack = pack
        pack.pack.archive?.url = Self.proxied
        try installed.world.publish(pack)
        installed.world.server.answer(Self.proxied, with: change(.content(pack.archive)))
    }

    @Test func theProxyOfTheFileIsUsedUnlessAVariableSaysOtherwise() async throws {
        var installed = try await Installed()
        try write(#"{"httpProxy": "\#(installed.world.server.baseURL)"}"#, installed)
        try publish(try .small(.aurora), &installed)
        let arguments = ["prefetch", "--all", "--attempts", "1", "--quiet"]
        installed.world.program.environment["http_proxy"] = ""
        let without = try await installed.world.program.run(arguments)
        #expect(without.status == 20, "\(without)")
        #expect(installed.world.server.requests(for: Self.proxied).isEmpty)
        installed.world.program.environment["http_proxy"] = nil
        let with = try await installed.world.program.run(arguments)
        #expect(with == Program.Ending(status: 0, output: "", error: ""))
        #expect(try installed.staged() == ["aurora": 1])
    }

    @Test func theRateOfTheFileHoldsUnlessAnOptionSaysOtherwise() async throws {
        var installed = try await installed(#"{"bandwidth": "1 kB"}"#)
        try installed.world.publish(try .small(.aurora))
        let slow = try await installed.run("prefetch", "--all", "--quiet", "--deadline", "4")
        #expect(slow.status == 75, "\(slow)")
        let fast = try await installed.run("prefetch", "--all", "--quiet", "--limit-rate", "1GB")
        #expect(fast == Program.Ending(status: 0, output: "", error: ""))
    }

    @Test func authoritiesOfTheFileAreTrusted() async throws {
        var installed = try await Installed()
        let folder = installed.world.directory.path
        let front = try await TLSFront(port: installed.world.server.port, below: folder)
        installed.registration.manifestURLs = ["\(front.baseURL)/manifest.json"]
        try installed.install()
        try installed.world.publish(try .small(.aurora))
        let arguments = ["prefetch", "--all", "--attempts", "1", "--quiet"]
        let untrusted = try await installed.world.program.run(arguments)
        #expect(untrusted.status == 10, "\(untrusted)")
        try write(#"{"certificateAuthorities": "\#(front.certificate)"}"#, installed)
        let trusted = try await installed.world.program.run(arguments)
        #expect(trusted == Program.Ending(status: 0, output: "", error: ""))
        withExtendedLifetime(front) {}
    }

    /// The option, the variable and the member for the deadline of a hook, and what the hook prints.
    private static let deadlines: [([String], String?, String, String)] = [
        ([], nil, #"{"hookDeadline": 120}"#, "120 seconds"),
        ([], "90", #"{"hookDeadline": 120}"#, "90 seconds"),
        (["--deadline", "80"], "90", #"{"hookDeadline": 120}"#, "80 seconds"),
        ([], nil, "{}", "60 seconds"),
    ]

    @Test(arguments: deadlines)
    func theDeadlineOfAHookIsTheFirstThatIsSet(
        options: [String],
        variable: String?,
        settings: String,
        words: String
    ) async throws {
        var installed = try await installed(settings)
        try installed.world.publish(try .small(.aurora))
        installed.world.program.environment["STAGEPACK_HOOK_DEADLINE"] = variable
        let ending = try await installed.world.program.run(
            ["prefetch", "--all", "--hook"] + options
        )
        #expect(
            ending.output.hasPrefix("stagepack: installing essential packs, within \(words)\n"),
            "\(ending)"
        )
        #expect(try installed.staged() == ["aurora": 1])
    }

    @Test func theGuardOfAHookKeepsToTheDeadlineOfTheFile() async throws {
        // The run must not end before it is stopped.
        var installed = try await installed(#"{"hookDeadline": 15}"#)
        let pack = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
        try installed.world.publish(pack)
        let answer = Answer.content(pack.archive).stalled(after: 2 << 20)
        installed.world.server.answer(pack.path, with: answer)
        let downloads = installed.container.appending("downloads")
        let start = ContinuousClock.now
        let ending = try await installed.world.program.run(["prefetch", "--all", "--hook"]) {
            running in
            try await poll { partSize(below: downloads) > 1 << 20 }
            for child in try running.children() { kill(child, SIGSTOP) }
        }
        #expect(ending.status == 0)
        #expect(ending.output.contains("did not stop at its deadline and was killed"), "\(ending)")
        // The default deadline is 60 seconds, beyond which the guard waits for 5 more.
        #expect(ContinuousClock.now - start < .seconds(60))
    }

    @Test func aWorkerOfTheDaemonHasTheSettingsOfACommand() async throws {
        var installed = try await Installed()
        try write(#"{"httpProxy": "\#(installed.world.server.baseURL)"}"#, installed)
        let pack = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
        let gate = Gate()
        try publish(pack, &installed) { $0.held(after: 2 << 20, until: gate) }
        let downloads = installed.container.appending("downloads")
        try await withDaemon(&installed) { installed, _ in
            // By the machine's settings, the command records its staging with the daemon, which resumes it.
            let killed = try await installed.world.program.run(["prefetch", "--all", "--quiet"]) {
                running in
                try await poll { partSize(below: downloads) > 1 << 20 }
                running.send(SIGKILL)
            }
            #expect(killed.status == Program.killed)
            gate.open()
            try await poll("no worker stages it") { try installed.staged() == ["aurora": 1] }
        }
        #expect(installed.world.server.requests(for: Self.proxied).count > 1)
    }

    /// Invalid files, and the output of commands about them.
    private static let broken: [(settings: String, mode: FilePermissions, words: String)] = [
        (
            #"{"hookDeadlin": 30}"#, [.ownerReadWrite, .otherRead],
            "hookDeadlin: expected a member of 'httpProxy', "
        ),
        (#"{"bandwidth": }"#, [.ownerReadWrite], "not JSON: line 1, column 15: expected a value"),
        (
            #"{"certificateAuthorities": "/nowhere.pem"}"#, [.ownerReadWrite],
            "certificateAuthorities: "
        ),
        (
            #"{"httpProxy": "foo bar"}"#, [.ownerReadWrite],
            "httpProxy: expected a proxy such as 'http://proxy.example:8080', found 'foo bar'"
        ),
        ("{}", [.ownerReadWrite, .otherWrite], "expected a file that its owner alone can write"),
    ]

    @Test(arguments: broken)
    func aFileThatCannotBeUsedStopsDownloadsAndNoReader(
        settings: String,
        mode: FilePermissions,
        words: String
    ) async throws {
        var installed = try await Installed()
        let application = ["--app", "net.example.wallpaper"]
        try installed.world.publish(try .small(.aurora))
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        try write(settings, installed, mode: mode)

        let prefetch = try await installed.run("prefetch", "--all", "--quiet")
        #expect(prefetch.status == 78, "\(prefetch)")
        #expect(
            prefetch.error.hasPrefix("stagepack: error: \(Self.file)\(words)"),
            "\(prefetch)"
        )
        #expect(prefetch.error.contains("\nhint: as root, "), "\(prefetch)")
        let hook = try await installed.run("prefetch", "--all", "--hook")
        #expect(hook.status == 0, "\(hook)")
        #expect(hook.error == "")
        #expect(hook.output.contains("essential packs are staged: \(Self.file)"), "\(hook)")
        for command in [["path", "aurora"], ["load", "aurora"], ["verify", "aurora"]] {
            let ending = try await installed.world.program.run(command + application)
            #expect(ending.status == 0, "\(command): \(ending)")
        }

        let doctor = try await installed.run("doctor")
        #expect(doctor.status == 3, "\(doctor)")
        #expect(doctor.output.contains("problem: configuration: \(Self.file)\(words)"))
        #expect(doctor.output.contains("\n1 problem found"), "\(doctor)")
    }

    @Test func rootRefusesAuthoritiesThatOthersCanChange() async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        let folder = installed.world.directory.path
        let path = folder.appending("authorities.pem")
        try Directory.make(folder).write(
            [],
            to: "authorities.pem",
            durably: false,
            exactly: [.ownerReadWrite, .otherWrite]
        )
        try write(#"{"certificateAuthorities": "\#(path)"}"#, installed)
        let refused = try await installed.run("prefetch", "--all", "--quiet")
        #expect(refused.status == 78, "\(refused)")
        let words = """
            \(Self.file)certificateAuthorities: '\(path)': \
            expected a file that its owner alone can write, found mode 0602
            """
        #expect(refused.error.hasPrefix("stagepack: error: \(words)"), "\(refused)")
        #expect(refused.error.contains("\nhint: as root, run 'chmod go-w "), "\(refused)")
        let doctor = try await installed.run("doctor")
        #expect(doctor.output.contains("problem: configuration: \(words)"), "\(doctor)")
    }

    @Test func theFileThatIsInForceIsNamed() async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        let name = "/etc/stagepack/stagepack.json"
        #expect(try await !installed.run("version").output.contains(name))
        #expect(try await !installed.run("doctor").output.contains(name))
        try write("{}", installed)
        #expect(try await installed.run("version").output.contains("\nconfiguration \(name)\n"))
        #expect(try await installed.run("version", "--json").output.contains(#""configuration""#))
        #expect(try await installed.run("doctor").output.contains("ok: configuration: '\(name)'"))
        let verbose = try await installed.run("prefetch", "--all", "--verbose")
        #expect(verbose.error.contains("path=\(name)"), "\(verbose)")
    }
}
