import StageModel

/// The reports of runs, and the failures of runs that ended without one, of several applications or manifests.
struct StagingRuns: Sendable {
    var reports: [StagingReport] = []
    var failures: [CommandFailure] = []

    /// The failure that determines the exit status of the command: the first of the most severe ones; `nil` if
    /// nothing failed.
    var mostSevere: FailureReport? {
        let ofReports = reports.flatMap { report in
            [report.manifestProblem].compactMap(\.self) + report.failures
        }
        return (failures.map(FailureReport.init) + ofReports).mostSevere
    }

    /// Prints the result of the command, in JSON with the failures of runs without a report.
    func print(_ value: some Encodable & CustomStringConvertible, asJSON: Bool) {
        guard asJSON, !failures.isEmpty else { return Console.print(value, asJSON: asJSON) }
        let result = PartialResult(
            value: value,
            error: mostSevere,
            failures: failures.map(FailureReport.init)
        )
        Console.print(result, asJSON: true)
    }
}

extension Console {
    /// Prints the result of a command that failed in part: as text with the failures on standard error, or in JSON with the
    /// failures as members, the command's own first.
    static func print(
        _ value: some Encodable & CustomStringConvertible,
        failures: [CommandFailure],
        asJSON: Bool,
        schema: OutputSchema = .current
    ) {
        guard asJSON, let first = failures.first else {
            print(value, asJSON: asJSON, schema: schema)
            report(failures)
            return
        }
        let result = PartialResult(
            value: value,
            error: FailureReport(first),
            failures: failures.map(FailureReport.init)
        )
        print(result, asJSON: true, schema: schema)
    }

    /// Prints the summary of a change: as JSON, or as text without `--quiet`; and the failures in any case.
    static func print(
        change value: some Encodable & CustomStringConvertible,
        failures: [CommandFailure] = [],
        asJSON: Bool,
        schema: OutputSchema = .current
    ) {
        if asJSON || !isQuiet {
            print(value, failures: failures, asJSON: asJSON, schema: schema)
        } else {
            report(failures)
        }
    }

    /// Prints the changed parts as a list with the member `name`, with the failure that left other parts unchanged.
    ///
    /// - Returns: The status of the failure, or success if there is none.
    /// - Throws: The failure if nothing was changed.
    static func conclude(
        change parts: [some Encodable & CustomStringConvertible],
        named name: String,
        failure: CommandFailure?,
        asJSON: Bool
    ) throws(CommandFailure) -> ExitStatus {
        try conclude(
            change: parts,
            named: name,
            failures: [failure].compactMap(\.self),
            asJSON: asJSON
        )
    }

    /// Prints the changed parts as a list with the member `name`, with the failures that left other parts unchanged.
    ///
    /// - Returns: The status of the first failure, or success if there is none.
    /// - Throws: The failure if it is the only one and nothing was changed.
    static func conclude(
        change parts: [some Encodable & CustomStringConvertible],
        named name: String,
        failures: [CommandFailure],
        asJSON: Bool
    ) throws(CommandFailure) -> ExitStatus {
        if let failure = failures.first, failures.count == 1, parts.isEmpty { throw failure }
        print(
            change: Listing(elements: parts, name: name),
            failures: failures,
            asJSON: asJSON
        )
        return failures.first?.status ?? .success
    }
}

/// The result of a command that failed in part, with its failures.
private struct PartialResult<Value: Encodable & CustomStringConvertible>: Encodable,
    CustomStringConvertible
{
    var value: Value
    /// The failure with the exit status of the command.
    var error: FailureReport?
    /// The failures of the parts without a result.
    var failures: [FailureReport]

    var description: String { value.description }

    private enum Key: String, CodingKey { case error, failures }

    /// Encodes the members of the value, which must be an object, and the failures.
    func encode(to encoder: any Encoder) throws {
        try value.encode(to: encoder)
        var container = encoder.container(keyedBy: Key.self)
        try container.encodeIfPresent(error, forKey: .error)
        try container.encode(failures, forKey: .failures)
    }
}

extension ExitStatus {
    /// Rank among the failures of one command: the highest determines the exit status.
    var severity: Int {
        switch self {
        case .success: 0
        // The next periodic run completes these by itself: the units of systemd count them as successes, so they
        // must not hide others.
        case .manifestUnavailable, .restricted, .transferFailed, .captivePortal, .unfinished: 1
        case .interrupted: 2
        default: 3
        }
    }
}

extension [FailureReport] {
    /// The first of the most severe failures; `nil` if there are none.
    var mostSevere: FailureReport? {
        let ranks = map { ExitStatus(rawValue: $0.status)?.severity ?? 0 }
        guard let highest = ranks.max(), let index = ranks.firstIndex(of: highest) else {
            return nil
        }
        return self[index]
    }
}
