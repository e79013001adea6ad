import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The script that package managers run, with a program and a configuration file of the test's.
@Suite(.server, .directory)
struct PackageHookTests {
    /// The program notes the limit of the `timeout` that started it, and its own deadline.
    private static let program = """
        #!/bin/sh
        limit=$(tr '\\0' ' ' </proc/$PPID/cmdline | cut -d ' ' -f 3)
        echo "$1 $limit ${STAGEPACK_HOOK_DEADLINE-}" >>"$(dirname "$0")/log"
        [ "$1" != gc ] || sleep "$(cat "$(dirname "$0")/removal")"
        """

    /// A run of the script: its variable and its configuration, the seconds that the removal takes, and the limits
    /// of both steps.
    struct Row: Sendable {
        var variable: String?
        var settings: String?
        var removal = 0
        var limits: [ClosedRange<Int>]
    }

    private static let rows = [
        Row(limits: [30...30, 70...70]),
        Row(variable: "100000", limits: [30...30, 70...70]),
        Row(variable: "5.5", limits: [5...5, 15...15]),
        Row(variable: "0", limits: [1...1, 10...10]),
        Row(variable: "abc", limits: [30...30, 70...70]),
        Row(settings: #"{"hookDeadline": 120}"#, limits: [30...30, 130...130]),
        Row(variable: "100", settings: #"{"hookDeadline": 120}"#, limits: [30...30, 110...110]),
        Row(variable: "200", settings: #"{"hookDeadline": 120}"#, limits: [30...30, 130...130]),
        // A busy machine may take a few seconds more.
        Row(removal: 4, limits: [30...30, 50...66]),
        Row(variable: "3", removal: 20, limits: [3...3, 10...10]),
    ]

    @Test(arguments: rows)
    func bothStepsKeepToTheDeadlineWhichTheVariableOnlyShortens(row: Row) async throws {
        let world = try World()
        let path = world.directory.path
        let root = FilePath(#filePath).removingLastComponent().removingLastComponent()
            .removingLastComponent()
        let lines = try text(of: root.appending("deploy/hook/package-hook"))
            .split(separator: "\n", omittingEmptySubsequences: false)
            .map { line in
                if line.hasPrefix("program=") { return "program=\(path)/program" }
                if line.hasPrefix("settings=") { return "settings=\(path)/settings" }
                // No timer of this machine's is started.
                return line.hasPrefix("[ -d /run/systemd/system ]") ? "exit 0" : String(line)
            }
        let files = [
            ("hook", lines.joined(separator: "\n")), ("removal", "\(row.removal)\n"),
        ]
        for (name, content) in files + (row.settings.map { [("settings", $0)] } ?? []) {
            let component = try #require(FilePath.Component(name))
            try world.directory.write(Array(content.utf8), to: component, durably: false)
        }
        try ProgramFile.write(Self.program, to: path.appending("program"))
        var program = Program(wrapper: ["/bin/sh", path.appending("hook").string])
        program.environment["STAGEPACK_HOOK_DEADLINE"] = row.variable
        let ending = try await program.run([])
        #expect(ending.status == 0, "\(ending)")
        let log = try text(of: path.appending("log")).split(separator: "\n")
        #expect(log.map { $0.split(separator: " ").first } == ["gc", "prefetch"], "\(log)")
        let numbers = log.map { line in
            line.split(separator: " ").dropFirst().compactMap { Int($0) }
        }
        for (numbers, limit) in zip(numbers, row.limits) {
            #expect(numbers.first.map(limit.contains) ?? false, "\(log)")
        }
        // The program gets what the removal has left of the deadline.
        if row.removal > 0 {
            #expect(numbers.last?.last.map { $0 + 10 } == numbers.last?.first, "\(log)")
        }
    }
}
