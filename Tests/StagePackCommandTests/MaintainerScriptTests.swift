import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The maintainer scripts of the Debian package, with directories and programs of the test instead of the machine's.
@Suite(.directory)
struct MaintainerScriptTests {
    private static let root = FilePath(#filePath).removingLastComponent().removingLastComponent()
        .removingLastComponent()
    private static let start =
        "deb-systemd-invoke start stagepack-periodic.timer stagepackd.socket stagepackd.timer"

    private let directory: Directory

    init() throws {
        directory = try TemporaryDirectory.required()
        for name in ["bin", "systemd", "state"] as [FilePath] {
            _ = try directory.makeDirectory(name)
        }
        let log = directory.path.appending("log")
        for name in ["deb-systemd-helper", "deb-systemd-invoke", "systemctl", "package-hook"] {
            try ProgramFile.write(
                "#!/bin/sh\necho \"${0##*/} $*\" >>'\(log)'\n",
                to: directory.path.appending("bin/\(name)")
            )
        }
    }

    /// Runs a script as dpkg does, expects success, and returns the commands that it ran.
    private func commands(
        of script: String,
        _ argument: String,
        for dpkgRoot: String? = nil
    ) async throws -> [String] {
        let path = directory.path.string
        let body = try text(of: Self.root.appending("deploy/debian/\(script)"))
            .replacing("/run/systemd/system", with: "\(path)/systemd")
            .replacing("/usr/libexec/stagepack/", with: "\(path)/bin/")
            .replacing("/var/lib", with: "/state")
            .replacing("${DPKG_ROOT-}/state", with: "${DPKG_ROOT-\(path)}/state")
        var program = Program(wrapper: [
            "/bin/sh", "-c", "PATH='\(path)/bin':$PATH\n\(body)", script,
        ])
        program.environment["DPKG_ROOT"] = dpkgRoot
        let ending = try await program.run([argument])
        #expect(ending == Program.Ending(status: 0, output: "", error: ""))
        let log = try? text(of: directory.path.appending("log"))
        return (log ?? "").split(separator: "\n").map(String.init)
    }

    @Test func aRemovalThatDpkgGivesUpLeavesTheUnitsRunning() async throws {
        #expect(try await commands(of: "prerm", "remove").count == 1)
        let commands = try await commands(of: "postinst", "abort-remove")
        #expect(commands.last == Self.start, "\(commands)")
        #expect(commands.count == 2, "\(commands)")
    }

    @Test func aConfigurationStartsTheUnitsAndRunsTheHook() async throws {
        let commands = try await commands(of: "postinst", "configure")
        #expect(commands.suffix(2) == [Self.start, "package-hook "], "\(commands)")
    }

    /// dpkg runs the scripts outside of the root that it changes (`--root`, `--force-script-chrootless`).
    @Test(arguments: [
        ("postinst", "configure"), ("postinst", "triggered"), ("postinst", "abort-remove"),
        ("prerm", "remove"), ("postrm", "remove"), ("postrm", "purge"),
    ])
    func scriptsForAnotherRootLeaveThisMachineAlone(script: String, argument: String) async throws {
        let other = try directory.makeDirectory("other")
        for location in [directory, other] {
            _ = try Directory.make(location.path.appending("state/stagepack/groups"))
        }
        let commands = try await commands(of: script, argument, for: other.path.string)
        #expect(commands.allSatisfy { $0.hasPrefix("deb-systemd-helper ") }, "\(commands)")
        #expect(FileStatus.exists(directory.path.appending("state/stagepack/groups")))
        let isPurged = argument == "purge"
        #expect(FileStatus.exists(other.path.appending("state/stagepack")) != isPurged)
    }

    /// An administrator has moved the packs to another disk.
    @Test func aPurgeRemovesThePacksBehindALinkAndNothingElseThere() async throws {
        let disk = try directory.makeDirectory("disk")
        for name in ["groups", "transfers"] as [FilePath] {
            try disk.makeDirectory(name).write([], to: "file", durably: false)
        }
        try disk.write([], to: "other", durably: false)
        try directory.createLink("state/stagepack", to: disk.path.string)
        _ = try await commands(of: "postrm", "purge")
        #expect(try disk.entries().map(\.path.string) == ["other"])
        #expect(!FileStatus.existsAsEntry(directory.path.appending("state/stagepack")))
    }

    @Test func aPurgeThatCannotRemoveTheStampOfTheTimerRemovesThePacks() async throws {
        for name in ["systemd/timers/stamp-stagepack-periodic.timer", "stagepack/groups"] {
            _ = try Directory.make(directory.path.appending("state/\(name)"))
        }
        _ = try await commands(of: "postrm", "purge")
        #expect(!FileStatus.exists(directory.path.appending("state/stagepack")))
    }
}
