import ArgumentParser
import StageContainer
import StageEngine
import StageModel
import StagingService

struct RepairCommand: NetworkedSubcommand, ChangingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "repair",
        abstract: "Verify staged packs and stage damaged packs again.",
        discussion: """
            The damaged generation is served until the new one takes its place. Of an application, only \
            packs that it offers are staged again: ends with status 3, and names the others, if packs of \
            other applications of the group are damaged.
            """
    )

    @Argument(
        help: "The packs. Default: all staged packs.",
        completion: PackCompletion.kind,
        transform: PackArgument.parse
    )
    var packs: [PackID] = []

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup(title: "Network") var network: NetworkOptions
    @OptionGroup(title: "Output") var output: OutputOptions

    var printsJSON: Bool { output.json }
    var messages: MessageOptions? { output.messages }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source, network: network)
        try session.network?.checkFiles()
        for id in packs { try session.checkOwnCopy(of: id, for: "repair") }
        guard let container = try session.existingContainer() else {
            if let id = packs.first { throw .notStaged(id) }
            print(RepairReport(packs: []), runs: StagingRuns())
            return .success
        }
        var report = RepairReport(packs: try await VerifyReport.make(of: packs, in: container))
        var damaged = Set(report.packs.filter { !$0.differences.isEmpty }.map(\.pack))
        if packs.isEmpty {
            report.unrepaired = unrepairedPacks(
                among: damaged,
                in: container.reader,
                for: session
            )
            damaged.subtract(report.unrepaired.map(\.pack))
        }
        let status = try await repair(damaged, for: session, completing: report)
        return status == .success && !report.unrepaired.isEmpty ? .findings : status
    }

    /// Stages damaged packs again, and prints the report with the runs that did.
    private func repair(
        _ damaged: Set<PackID>,
        for session: Session,
        completing report: RepairReport
    ) async throws(CommandFailure) -> ExitStatus {
        guard !damaged.isEmpty else {
            print(report, runs: StagingRuns())
            return .success
        }
        let run = try StagingRun(.damaged(damaged), session: session, output: output)
        let body = { @Sendable () async throws(CommandFailure) in try await run.run() }
        return try await stage(output: output, within: nil, perform: body) { runs in
            print(report, runs: runs)
        }
    }

    /// Returns the damaged packs that only other applications of the group offer, and prints how to repair them.
    private func unrepairedPacks(
        among damaged: Set<PackID>,
        in container: ContainerReader,
        for session: Session
    ) -> [RepairReport.Unrepaired] {
        guard let own = session.target.registration else { return [] }
        let folders = RegistrationFolders(environment: session.target.environment)
        // The run itself reports folders that cannot be read.
        let others = ((try? folders.applications()) ?? []).filter { id in
            // The container may still have the manifest of an application that is in another group now.
            let registration = RegistrationLocations.registration(of: id, in: folders.folders)
            return id != own.application && registration?.group == own.group
        }
        var found: [RepairReport.Unrepaired] = []
        for id in damaged.sorted() {
            let applications = [own.application] + others
            guard let other = container.application(offering: id, among: applications),
                other != own.application
            else { continue }
            found.append(RepairReport.Unrepaired(pack: id, application: other))
            Console.note("stagepack: warning: pack '\(id)' of '\(other)' is damaged, too")
            let command = HintSource.current.ofApplication(other).staging("repair", id.text)
            if let command { Console.note("hint: run \(command)") }
        }
        return found
    }

    private func print(_ report: RepairReport, runs: StagingRuns) {
        guard output.json || !output.quiet else { return }
        var report = report
        report.runs = runs.reports
        runs.print(report, asJSON: output.json)
    }
}

/// Output of `repair`.
struct RepairReport: Encodable, CustomStringConvertible {
    /// A damaged pack that only another application of the group offers.
    struct Unrepaired: Encodable {
        var pack: PackID
        var application: ApplicationID
    }

    /// The packs, as verified before the repair.
    var packs: [VerifyReport]
    /// The runs that staged the damaged packs again; empty if none is damaged.
    var runs: [StagingReport] = []
    /// The damaged packs that were left to other applications.
    var unrepaired: [Unrepaired] = []

    var description: String {
        let lines = runs.isEmpty ? packs.map(\.description) : runs.map(\.description)
        return lines.joined(separator: "\n")
    }
}
