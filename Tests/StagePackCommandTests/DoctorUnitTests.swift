import FoundationEssentials
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The findings of `doctor` about units of systemd, and their hints.
@Suite(.server, .directory, .mountNamespace)
struct DoctorUnitTests {
    private struct Report: Decodable {
        struct Check: Decodable {
            var level, subject: String
            var hint: String?
        }
        var checks: [Check]
    }

    /// An application that is registered and whose packs are staged.
    private func installed() async throws -> Installed {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        return installed
    }

    /// Returns the problems that `doctor` reports.
    private func problems(_ installed: Installed, status: Int32) async throws -> [Report.Check] {
        let ending = try await installed.world.program.run(["doctor", "--json"])
        #expect(ending.status == status, "\(ending)")
        let report = try JSONDecoder().decode(Report.self, from: Data(ending.output.utf8))
        return report.checks.filter { $0.level == "problem" }
    }

    /// A program that simulates systemctl(1) on a machine that systemd has started.
    private func answer(_ states: String, for installed: inout Installed) throws {
        let run = installed.world.directory.path.appending("run")
        _ = try Directory.open(run).makeDirectory("systemd")
        _ = try Directory.open(run).makeDirectory("systemd/system")
        let folder = try installed.world.directory.makeDirectory("sbin")
        try ProgramFile.write(
            "#!/bin/sh\ncat <<'END'\n\(states)\nEND\n",
            to: folder.path.appending("systemctl")
        )
        let script = "mount --bind \(folder.path) /usr/sbin || exit 99; exec \"$@\""
        installed.world.program.wrapper =
            installed.world.program.wrapper.dropLast()
            + ["/bin/sh", "-c", script, "sh", try Program.path.string]
    }

    /// The states of units, and the resulting problems.
    private static let states: [(String, [String])] = [
        (unit("stagepack-periodic.timer", "active") + unit("stagepackd.socket", "active"), []),
        (
            unit("stagepack-periodic.timer", "inactive") + unit("stagepackd.socket", "inactive"),
            ["timer", "daemon"]
        ),
        (unit("stagepack-periodic.timer", "inactive", load: "not-found"), ["timer"]),
        (
            unit("stagepack-periodic.timer", "active")
                + unit("stagepack-periodic.service", "failed", result: "exit-code"),
            ["periodic run"]
        ),
        (
            unit("stagepack-periodic.timer", "active") + unit("stagepackd.socket", "active")
                + unit("stagepackd.service", "failed", result: "exit-code"),
            ["daemon"]
        ),
    ]

    private static func unit(
        _ name: String,
        _ state: String,
        load: String = "loaded",
        result: String = "success"
    ) -> String {
        "Id=\(name)\nLoadState=\(load)\nActiveState=\(state)\nResult=\(result)\n\n"
    }

    @Test(arguments: states)
    func unitsThatDoNotRunAreProblems(states: String, subjects: [String]) async throws {
        var installed = try await installed()
        try answer(states, for: &installed)
        let problems = try await problems(installed, status: subjects.isEmpty ? 0 : 3)
        #expect(problems.map(\.subject) == subjects)
    }

    /// systemd refuses to enable a masked unit.
    @Test(arguments: ["loaded", "masked"])
    func theHintStartsTheUnit(load: String) async throws {
        var installed = try await installed()
        let names = ["stagepack-periodic.timer", "stagepackd.socket"]
        let states = names.map { Self.unit($0, "inactive", load: load) }.joined()
        try answer(states, for: &installed)
        let hints = try await problems(installed, status: 3).map(\.hint)
        let expected = names.map { name in
            let first = load == "masked" ? "systemctl unmask \(name) && " : ""
            return "as root, run '\(first)systemctl enable --now \(name)'"
        }
        #expect(hints == expected.map(Optional.some))
    }

    /// The system's timer is active; applications that a user has registered need the user's timer.
    @Test(
        .rootInMountNamespace,
        arguments: [
            ("active", "loaded", "ok: user's timer: 'stagepack-periodic.timer' runs"),
            ("inactive", "loaded", "run 'systemctl --user enable --now stagepack-periodic.timer'"),
            (
                "inactive", "masked",
                "run 'systemctl --user unmask stagepack-periodic.timer && "
                    + "systemctl --user enable --now stagepack-periodic.timer'"
            ),
        ]
    )
    func aUsersTimerIsChecked(state: String, load: String, words: String) async throws {
        var machine = try await SharedMachine()
        let run = machine.installed.world.directory.path.appending("run")
        for name in ["systemd/system", "bin", "home/.config/stagepack/apps.d"] {
            _ = try Directory.make(run.appending(name), exactly: .directory)
        }
        var registration = machine.installed.registration
        registration.application = try ApplicationID("net.example.zoo")
        try Directory.open(run.appending("home/.config/stagepack/apps.d"))
            .write(registration.json(), to: "net.example.zoo.json", durably: false)
        let timer = Self.unit("stagepack-periodic.timer", "$state", load: "$load")
        try ProgramFile.write(
            """
            #!/bin/sh
            state=active load=loaded
            [ "$1" != --user ] || state=\(state) load=\(load)
            cat <<END
            \(timer)
            END

            """,
            to: run.appending("bin/systemctl")
        )
        machine.userEnvironment["PATH"] = "/run/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        let ending = try await machine.user("doctor")
        #expect(ending.output.contains("ok: timer: 'stagepack-periodic.timer' runs"), "\(ending)")
        #expect(ending.output.contains(words), "\(ending)")
    }
}
