import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The script that package managers run, with a program and a configuration file of the test.
@Suite(.server, .directory)
struct PackageHookTests {
    /// The removal does not end if there is a file 'hangs'.
    private static let program = """
        #!/bin/sh
        [ "$1" != gc ] || [ ! -e "$(dirname "$0")/hangs" ] || exec sleep 1000
        """

    /// Records the steps, with their limits and the deadline, before their limits begin.
    ///
    /// A busy machine may start a step after its limit. The limits are enforced if there is a file 'limited'.
    private static let timeout = """
        #!/bin/sh
        place=$(dirname "$0")/..
        case $3 in
        */program) echo "$4 $2 ${STAGEPACK_HOOK_DEADLINE-}" >>"$place/log" ;;
        systemctl) echo "$*" >>"$place/calls" ;;
        esac
        [ ! -e "$place/limited" ] || exec /usr/bin/timeout "$@"
        shift 2
        exec "$@"
        """

    /// A clock that shows the duration of the removal at its second reading.
    private static let clock = """
        #!/bin/sh
        place=$(dirname "$0")/..
        [ ! -e "$place/started" ] || exec echo $((1000 + $(cat "$place/removal")))
        : >"$place/started"
        echo 1000
        """

    /// A run of the script: its variable and its configuration, the seconds that the removal takes on the clock, and the
    /// limits of both steps.
    struct Row: Sendable {
        var variable: String?
        var settings: String?
        var removal = 0
        var hangs = false
        var limits: [Int]
    }

    private static let rows = [
        Row(limits: [30, 70]),
        Row(variable: "100000", limits: [30, 70]),
        Row(variable: "5.5", limits: [5, 15]),
        Row(variable: "0", limits: [1, 10]),
        Row(variable: "abc", limits: [30, 70]),
        Row(settings: #"{"hookDeadline": 120}"#, limits: [30, 130]),
        Row(variable: "100", settings: #"{"hookDeadline": 120}"#, limits: [30, 110]),
        Row(variable: "200", settings: #"{"hookDeadline": 120}"#, limits: [30, 130]),
        Row(removal: 4, limits: [30, 66]),
        Row(variable: "3", removal: 3, hangs: true, limits: [3, 10]),
    ]

    /// Writes the script and its program into a directory, and returns the command that runs the script.
    private func hook(
        in directory: Directory,
        removal: Int = 0,
        isLimited: Bool = false,
        settings: String? = nil,
        startsTimer: Bool = false,
        hasProc: Bool = true
    ) throws -> Program {
        let path = directory.path
        if isLimited { try directory.write([], to: "limited", durably: false) }
        let bin = try Directory.make(path.appending("bin")).path
        try ProgramFile.write(Self.timeout, to: bin.appending("timeout"))
        try ProgramFile.write(Self.clock, to: bin.appending("date"))
        let root = FilePath(#filePath).removingLastComponent().removingLastComponent()
            .removingLastComponent()
        let lines = try text(of: root.appending("deploy/hook/package-hook"))
            .split(separator: "\n", omittingEmptySubsequences: false)
            .map { line -> String in
                if line.hasPrefix("program=") { return "program=\(path)/program" }
                if line.hasPrefix("settings=") { return "settings=\(path)/settings" }
                if line.hasPrefix("PATH=") { return "PATH=\(path)/bin:$PATH" }
                // The timer and the policy of this machine are not used.
                if line.hasPrefix("[ -d /run/systemd/system ]") {
                    return startsTimer ? "" : "exit 0"
                }
                return String(line)
                    .replacing("/usr/sbin/policy-rc.d", with: "\(path)/bin/policy-rc.d")
                    .replacing("/proc/self", with: hasProc ? "\(path)" : "\(path)/proc/self")
            }
        let files = [("hook", lines.joined(separator: "\n")), ("removal", "\(removal)\n")]
        for (name, content) in files + (settings.map { [("settings", $0)] } ?? []) {
            let component = try #require(FilePath.Component(name))
            try directory.write(Array(content.utf8), to: component, durably: false)
        }
        try ProgramFile.write(Self.program, to: path.appending("program"))
        return Program(wrapper: [
            "/usr/bin/timeout", "300", "/bin/sh", path.appending("hook").string,
        ])
    }

    /// dpkg runs the hook outside of the root that it changes (`--root`, `--force-script-chrootless`).
    @Test func nothingIsStagedOnThisMachineForAnotherRoot() async throws {
        let world = try World()
        var program = try hook(in: world.directory)
        program.environment["DPKG_ROOT"] = "/other"
        let ending = try await program.run([])
        #expect(ending == Program.Ending(status: 0, output: "", error: ""))
        #expect(!FileStatus.exists(world.directory.path.appending("log")))
    }

    /// Without /proc, each step would print the same fault.
    @Test(arguments: [([], "prefetch"), (["removed"], "gc")] as [([String], String)])
    func withoutProcOneStepRuns(words: [String], step: String) async throws {
        let world = try World()
        let program = try hook(in: world.directory, hasProc: false)
        let ending = try await program.run(words)
        #expect(ending == Program.Ending(status: 0, output: "", error: ""))
        let log = try text(of: world.directory.path.appending("log")).split(separator: "\n")
        #expect(log.map { $0.split(separator: " ").first } == [Substring(step)], "\(log)")
    }

    /// Any user can start processes until one has the number of a step that has ended.
    @Test(arguments: [0, 130]) func aProcessWithTheNumberOfAStepIsNotWaitedFor(
        status: Int
    ) async throws {
        let world = try World()
        let path = world.directory.path
        let program = try hook(in: world.directory)
        try ProgramFile.write("#!/bin/sh\nexit \(status)\n", to: path.appending("program"))
        let script = try text(of: path.appending("hook"))
            .replacing("set -u\n", with: "set -u\nkill() { return 0; }\n")
        try world.directory.write(Array(script.utf8), to: "hook", durably: false)
        let ending = try await program.run([])
        #expect(ending == Program.Ending(status: 0, output: "", error: ""))
        let log = try text(of: path.appending("log")).split(separator: "\n")
        #expect(log.map { $0.split(separator: " ").first } == ["gc", "prefetch"], "\(log)")
    }

    /// A second 'wait' for a step that has ended prints an error in bash as '/bin/sh', and returns 127.
    @Test(arguments: [["/bin/sh"], ["/bin/bash", "--posix"]])
    func aSignalBeforeTheWaitForAStepKeepsItsStatus(shell: [String]) async throws {
        let world = try World()
        let path = world.directory.path
        _ = try hook(in: world.directory, startsTimer: true)
        try ProgramFile.write("#!/bin/sh\nexit 0\n", to: path.appending("bin/systemctl"))
        let functions = """
            set -u
            kill() { return 0; }
            wait() {
                [ "$worker" = "${sent-}" ] || { sent=$worker; command kill -TERM $$; }
                command wait "$@"
            }

            """
        let script = try text(of: path.appending("hook")).replacing("set -u\n", with: functions)
        try world.directory.write(Array(script.utf8), to: "hook", durably: false)
        let program = Program(
            wrapper: ["/usr/bin/timeout", "300"] + shell + [path.appending("hook").string]
        )
        let ending = try await program.run([])
        #expect(ending == Program.Ending(status: 0, output: "", error: ""))
        let calls = try text(of: path.appending("calls")).split(separator: "\n")
        #expect(calls.count == 2, "\(calls)")
    }

    /// The timer's service is started if the timer is enabled and no policy forbids it, and a program that hangs
    /// delays no package manager.
    @Test(
        arguments: [
            ("exit 0", nil, ["is-enabled", "start"]),
            ("exit 0", "exit 104", ["is-enabled", "start"]),
            ("exit 1", nil, ["is-enabled"]), ("exit 0", "exit 101", ["is-enabled"]),
            ("exec sleep 1000", nil, ["is-enabled"]), ("exit 0", "exec sleep 1000", ["is-enabled"]),
        ] as [(String, String?, [String])]
    )
    func theTimersServiceIsStartedWithoutWaiting(
        systemctl: String,
        policy: String?,
        calls: [String]
    ) async throws {
        let world = try World()
        let hangs = [systemctl, policy].contains("exec sleep 1000")
        let program = try hook(in: world.directory, isLimited: hangs, startsTimer: true)
        let bin = world.directory.path.appending("bin")
        let log = world.directory.path.appending("calls")
        try ProgramFile.write("#!/bin/sh\n\(systemctl)\n", to: bin.appending("systemctl"))
        if let policy {
            try ProgramFile.write("#!/bin/sh\n\(policy)\n", to: bin.appending("policy-rc.d"))
        }
        let ending = try await program.run([])
        #expect(ending == Program.Ending(status: 0, output: "", error: ""))
        let lines = try text(of: log).split(separator: "\n").map { line in
            calls.first { line.split(separator: " ").contains(Substring($0)) }
        }
        #expect(lines == calls.map(Optional.some))
    }

    @Test(arguments: rows)
    func bothStepsKeepToTheDeadlineWhichTheVariableOnlyShortens(row: Row) async throws {
        let world = try World()
        let path = world.directory.path
        var program = try hook(
            in: world.directory,
            removal: row.removal,
            isLimited: row.hangs,
            settings: row.settings
        )
        if row.hangs { try world.directory.write([], to: "hangs", durably: false) }
        program.environment["STAGEPACK_HOOK_DEADLINE"] = row.variable
        let ending = try await program.run([])
        #expect(ending.status == 0, "\(ending)")
        let log = try text(of: path.appending("log")).split(separator: "\n")
        #expect(log.map { $0.split(separator: " ").first } == ["gc", "prefetch"], "\(log)")
        let numbers = log.map { line in
            line.split(separator: " ").dropFirst().compactMap { Int($0) }
        }
        for (numbers, limit) in zip(numbers, row.limits) {
            #expect(numbers.first == limit, "\(log)")
        }
        // The run gets the part of the deadline that the removal did not use.
        if row.removal > 0 {
            #expect(numbers.last?.last.map { $0 + 10 } == numbers.last?.first, "\(log)")
        }
    }
}
