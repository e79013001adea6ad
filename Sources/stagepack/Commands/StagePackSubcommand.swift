import ArgumentParser
import FoundationEssentials
import StageContainer
import StageDisplay
import StageModel

/// A command of this program, which returns its exit status; its failures are printed in one place.
protocol StagePackSubcommand: AsyncParsableCommand {
    /// Set if failures are printed as JSON.
    var printsJSON: Bool { get }
    /// Set if JSON is printed as one object on each line.
    static var printsJSONLines: Bool { get }
    /// The options for messages; `nil` if the command has none.
    var messages: MessageOptions? { get }

    /// Carries out the command.
    func perform() async throws(CommandFailure) -> ExitStatus
}

/// A command that has the option `--json` and the options for messages.
protocol ReportingSubcommand: StagePackSubcommand {
    /// True if the result is printed as JSON.
    var json: Bool { get }
    /// The options for messages.
    var messageOptions: MessageOptions { get }
}

extension ReportingSubcommand {
    var messages: MessageOptions? { messageOptions }
    var printsJSON: Bool { json }
}

extension StagePackSubcommand {
    static var printsJSONLines: Bool { false }
    var messages: MessageOptions? { nil }

    /// Performs the command, prints its failure if it fails, and exits with its status.
    func run() async throws {
        var status: ExitStatus
        if let messages { Console.use(messages) }
        do throws(CommandFailure) {
            if let unchanged = try statusForDpkgRoot() {
                status = unchanged
            } else {
                let network = (self as? any NetworkedSubcommand)?.network
                let source = (self as? any SourcedSubcommand).map {
                    HintSource($0.source, network: network)
                }
                let name = Self.path
                status = try await OutputSchema.$current.withValue(OutputSchema(name)) {
                    () async -> Result<ExitStatus, CommandFailure> in
                    await Self.result(of: { () async throws(CommandFailure) in
                        try await (source ?? HintSource()).apply(perform)
                    })
                }
                .get()
            }
        } catch {
            let source = (self as? any SourcedSubcommand)?.source
            let error = source.map(error.askingForSimilarPack) ?? error
            Console.report(error, asJSON: printsJSON, onOneLine: Self.printsJSONLines)
            status = error.status
        }
        throw ExitCode(Console.status(after: status).rawValue)
    }

    private static func result(
        of body: () async throws(CommandFailure) -> ExitStatus
    ) async -> Result<ExitStatus, CommandFailure> {
        do throws(CommandFailure) {
            return .success(try await body())
        } catch {
            return .failure(error)
        }
    }

    /// The names of the command and its parents, joined by hyphens: `app-list`.
    private static var path: String {
        StagePackCommand.path(of: Self.self)?.joined(separator: "-") ?? _commandName
    }
}

extension ParsableCommand {
    /// Returns the names from this command to a subcommand, at any depth; `nil` if it is none.
    fileprivate static func path(of other: any ParsableCommand.Type) -> [String]? {
        for subcommand in configuration.subcommands {
            let name = subcommand._commandName
            if subcommand == other { return [name] }
            if let rest = subcommand.path(of: other) { return [name] + rest }
        }
        return nil
    }
}

extension StagePackSubcommand {
    /// Runs `body` until the deadline or a signal, prints the reports and all failures, and returns the status of
    /// the most severe one.
    func stage(
        output: OutputOptions,
        within deadline: Duration?,
        perform body: @escaping @Sendable () async throws(CommandFailure) -> StagingRuns,
        print: (StagingRuns) -> Void
    ) async throws(CommandFailure) -> ExitStatus {
        let (result, interruption) = await withInterruption(after: deadline) {
            () async -> Result<StagingRuns, CommandFailure> in
            do throws(CommandFailure) {
                return .success(try await body())
            } catch {
                return .failure(error)
            }
        }
        var runs: StagingRuns
        switch result {
        case .success(let success): runs = success
        case .failure(let failure): throw failure.asInterrupted(by: interruption)
        }
        runs.failures = runs.failures.map { $0.asInterrupted(by: interruption) }
        print(runs)
        if !output.json {
            Console.report(runs.failures)
            Self.printProblems(of: runs.reports)
        }
        return runs.mostSevere.flatMap { ExitStatus(rawValue: $0.status) } ?? .success
    }

    /// Prints each failure and each warning to standard error, and each hint once.
    private static func printProblems(of reports: [StagingReport]) {
        var hints: [String] = []
        for report in reports {
            if let problem = report.manifestProblem {
                let age = report.manifestVerified.map { date in
                    let seconds = max(0, Int64(Date().timeIntervalSince(date)))
                    return ", verified \(Duration.seconds(seconds).inWords) ago"
                }
                Console.note(
                    "stagepack: warning: \(problem.message); using \(report.revision.asManifestText)"
                        + (age ?? "")
                )
                if let hint = problem.hint { hints.append(hint) }
            }
            for conflict in report.conflicts {
                Console.note("stagepack: warning: \(conflict.text)")
                if !hints.contains(OfferConflict.hint) { hints.append(OfferConflict.hint) }
            }
            for failure in FailureGroups(of: report).failures {
                Console.note("stagepack: error: \(failure.message)")
                if let hint = failure.hint, !hints.contains(hint) { hints.append(hint) }
            }
        }
        for hint in hints { Console.note("hint: \(hint)") }
    }
}

extension CommandFailure {
    /// Returns the failure with the status of a deadline, if the deadline interrupted the command.
    func asInterrupted(by interruption: Interruption?) -> CommandFailure {
        guard status == .interrupted, interruption == .deadline else { return self }
        var failure = self
        failure.status = .unfinished
        failure.message =
            "the deadline passed" + (requestedManifest.map { " while waiting for \($0)" } ?? "")
        return failure
    }
}

/// Parser for the IDs of packs on the command line.
enum PackArgument {
    static func parse(_ text: String) throws -> PackID {
        do {
            return try PackID(text)
        } catch {
            throw ValidationError("not a pack's id: \(error)")
        }
    }
}
