import ArgumentParser
import FoundationEssentials
import StageModel

/// A command of this program: it returns how it ended, and its failures are told in one place.
protocol StagePackSubcommand: AsyncParsableCommand {
    /// Whether failures are printed as JSON.
    var printsJSON: Bool { get }

    /// Does what the command is for.
    func perform() async throws(CommandFailure) -> ExitStatus
}

extension StagePackSubcommand {
    /// Performs the command, tells a failure, and ends with its status.
    func run() async throws {
        var status: ExitStatus
        do throws(CommandFailure) {
            let source = (self as? any SourcedSubcommand).map { HintSource($0.source) }
            status = try await (source ?? HintSource()).apply(perform)
        } catch {
            let source = (self as? any SourcedSubcommand)?.source
            let error = source.map(error.askingForSimilarPack) ?? error
            Console.report(error, asJSON: printsJSON)
            status = error.status
        }
        if let error = Console.outputError {
            Console.note("stagepack: error: cannot write standard output: \(error)")
            if status == .success { status = .outputFailed }
        }
        throw ExitCode(status.rawValue)
    }
}

extension StagePackSubcommand {
    /// Runs `body` under the deadline and the signals, prints the reports and their failures, and
    /// returns the status that stands for all of them.
    func stage(
        _ output: OutputOptions,
        within deadline: Duration?,
        _ body: @escaping @Sendable () async throws(CommandFailure) -> [StagingReport],
        print: ([StagingReport]) -> Void
    ) async throws(CommandFailure) -> ExitStatus {
        let (result, interruption) = await withInterruption(after: deadline) {
            () async -> Result<[StagingReport], CommandFailure> in
            do throws(CommandFailure) {
                return .success(try await body())
            } catch {
                return .failure(error)
            }
        }
        let reports: [StagingReport]
        switch result {
        case .success(let success): reports = success
        case .failure(let failure): throw failure.asInterrupted(by: interruption)
        }
        print(reports)
        if !output.json { Self.tell(reports) }
        let statuses = reports.flatMap { report in
            ([report.manifestProblem].compactMap { $0 } + report.failures).map(\.status)
        }
        return statuses.first.flatMap(ExitStatus.init(rawValue:)) ?? .success
    }

    /// Prints each failure to standard error, and each hint once.
    private static func tell(_ reports: [StagingReport]) {
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
            for failure in report.failures {
                Console.note("stagepack: error: \(failure.message)")
                if let hint = failure.hint, !hints.contains(hint) { hints.append(hint) }
            }
        }
        for hint in hints { Console.note("hint: \(hint)") }
    }
}

extension CommandFailure {
    /// The failure with the status of a deadline, where that is what cut the command short.
    func asInterrupted(by interruption: Interruption?) -> CommandFailure {
        guard status == .interrupted, interruption == .deadline else { return self }
        var failure = self
        failure.status = .unfinished
        failure.message = "the deadline passed" + (place.map { " while waiting for \($0)" } ?? "")
        return failure
    }
}

/// A list of values that prints as a JSON array, or as one line each.
struct Listing<Element: Encodable & CustomStringConvertible>: Encodable, CustomStringConvertible {
    var elements: [Element]

    var description: String { elements.map(\.description).joined(separator: "\n") }

    func encode(to encoder: any Encoder) throws {
        try elements.encode(to: encoder)
    }
}

/// Reads packs' ids from the command line.
enum PackArgument {
    static func parse(_ text: String) throws -> PackID {
        do {
            return try PackID(text)
        } catch {
            throw ValidationError("not a pack's id: \(error)")
        }
    }
}
