import StageModel
import StageTesting
import SystemPackage
import Testing

/// Commands in maintainer scripts that dpkg runs outside of the root that it changes (`--root`, `--force-script-chrootless`).
@Suite(.server, .directory, .mountNamespaceIfRoot)
struct OtherRootTests {
    private static let app = ["--app", "net.example.wallpaper"]
    private static let fault =
        "dpkg changes the root '/target', and no option names a container there"

    /// A machine with version 1 of a pack whose version 2 is offered, in a maintainer script for another root.
    private func machine() async throws -> Installed {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        try installed.world.publish(try .small(.aurora, version: 2))
        installed.world.program.environment["DPKG_MAINTSCRIPT_NAME"] = "postinst"
        installed.world.program.environment["DPKG_ROOT"] = "/target"
        return installed
    }

    @Test(arguments: [
        "fetch aurora", "repair", "gc", "pin aurora", "rollback aurora", "remove aurora",
    ])
    func packsOfThisMachineStay(command: String) async throws {
        let installed = try await machine()
        let program = installed.world.program
        let words = command.split(separator: " ").map(String.init) + Self.app
        let note = "nothing changed: \(Self.fault)\n"
        #expect(try await program.run(words) == Program.Ending(status: 0, output: "", error: note))
        let quiet = try await program.run(words + ["--quiet"])
        #expect(quiet == Program.Ending(status: 0, output: "", error: ""))
        let json = try await program.run(words + ["--json"])
        #expect(json.status == 64 && json.error.isEmpty, "\(json)")
        #expect(json.output.contains(Self.fault), "\(json)")
        #expect(try installed.staged() == ["aurora": 1])
    }

    @Test func packsOfThisMachineAreReadAndNotFetched() async throws {
        var installed = try await machine()
        for words in [["load", "aurora"], ["gc", "--dry-run"], ["pin"]] {
            let ending = try await installed.world.program.run(words + Self.app)
            #expect(ending.status == 0 && !ending.error.contains("dpkg"), "\(ending)")
        }
        let extra = try SamplePack.small(try PackID("extra"), policy: .onDemand)
        try installed.world.publish(try .small(.aurora, version: 2), extra)
        let refused = try await installed.world.program.run(["load", "extra"] + Self.app)
        let error = "stagepack: error: \(Self.fault)\nhint: pass --container DIR\n"
        #expect(refused == Program.Ending(status: 64, output: "", error: error))
        let container = ["--container", installed.world.container.string]
        let named = try await installed.world.program.run(["load", "extra"] + Self.app + container)
        #expect(named.status == 0, "\(named)")
        #expect(try installed.staged() == ["aurora": 1])
    }
}
