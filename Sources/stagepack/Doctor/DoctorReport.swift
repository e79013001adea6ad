import StageModel

/// Output of `doctor`.
struct DoctorReport: Codable, CustomStringConvertible {
    /// Severity of a finding.
    enum Level: String, Codable {
        case good = "ok"
        case note
        case problem
    }

    struct Check: Codable {
        var level: Level
        var subject: String
        var finding: String
        var hint: String?
    }

    private(set) var checks: [Check] = []
    /// The number of checks that were printed before the report.
    private var printedCount = 0

    private enum CodingKeys: String, CodingKey { case checks }

    /// True if a finding demands an action.
    var hasProblems: Bool { checks.contains { $0.level == .problem } }

    mutating func add(
        _ level: Level,
        subject: String,
        finding: String,
        hint: String? = nil
    ) {
        checks.append(Check(level: level, subject: subject, finding: finding, hint: hint))
    }

    /// Adds a failure as a finding.
    mutating func add(_ failure: CommandFailure, subject: String) {
        add(.problem, subject: subject, finding: failure.message, hint: failure.hint)
    }

    /// Returns the hint to run a command.
    static func run(_ command: String?) -> String? { command.map { "run \($0)" } }

    /// Prints the checks since the last call, before others that take long.
    mutating func printNewChecks() {
        for check in checks[printedCount...] { Console.say("\(check)") }
        printedCount = checks.count
    }

    /// One line for each check that was not printed, its hint below, and a line with the number of problems.
    var description: String {
        let lines = checks[printedCount...].map(\.description)
        let problems = checks.count { $0.level == .problem }
        let summary =
            problems == 0 ? "no problems found" : "\(problems.quantity(of: "problem")) found"
        return (lines + [summary]).joined(separator: "\n")
    }
}

extension DoctorReport.Check: CustomStringConvertible {
    /// A line, and the hint below.
    var description: String {
        let line =
            "\(level.rawValue): \(subject.escapedForDisplay): \(finding.escapedForDisplay)"
        return hint.map { "\(line)\n  hint: \($0.escapedForDisplay)" } ?? line
    }
}
