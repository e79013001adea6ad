import ArgumentParser
import StageContainer
import StageEngine
import StageModel
import StagingService

struct RepairCommand: NetworkedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "repair",
        abstract: "Verify staged packs and stage those again that are damaged.",
        discussion: "The damaged generation is served until the new one takes its place."
    )

    @Argument(
        help: "The packs; all staged ones if none is named.",
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
            print([], runs: StagingRuns())
            return .success
        }
        let reports = try await VerifyReport.make(of: packs, in: container)
        var damaged = Set(reports.filter { !$0.differences.isEmpty }.map(\.pack))
        if packs.isEmpty {
            excludePacks(ofOthersThan: session, in: container.reader, from: &damaged)
        }
        guard !damaged.isEmpty else {
            print(reports, runs: StagingRuns())
            return .success
        }
        let run = try StagingRun(.damaged(damaged), session: session, output: output)
        let body = { @Sendable () async throws(CommandFailure) in try await run.run() }
        return try await stage(output: output, within: nil, perform: body) { runs in
            print(reports, runs: runs)
        }
    }

    /// Removes from `damaged` the packs that only other applications of the group offer, and prints how to repair them.
    private func excludePacks(
        ofOthersThan session: Session,
        in container: ContainerReader,
        from damaged: inout Set<PackID>
    ) {
        guard let own = session.target.registration?.application else { return }
        let folders = RegistrationFolders(environment: session.target.environment)
        // The run itself reports folders that cannot be read.
        let applications = [own] + ((try? folders.applications()) ?? []).filter { $0 != own }
        for id in damaged.sorted() {
            guard let other = container.application(offering: id, among: applications),
                other != own
            else { continue }
            damaged.remove(id)
            Console.note("stagepack: warning: pack '\(id)' of '\(other)' is damaged, too")
            let command = HintSource.current.ofApplication(other).staging("repair", id.text)
            if let command { Console.note("hint: run \(command)") }
        }
    }

    private func print(_ packs: [VerifyReport], runs: StagingRuns) {
        guard output.json || !output.quiet else { return }
        runs.print(RepairReport(packs: packs, runs: runs.reports), asJSON: output.json)
    }
}

/// Output of `repair`.
struct RepairReport: Encodable, CustomStringConvertible {
    /// The packs, as verified before the repair.
    var packs: [VerifyReport]
    /// The runs that staged the damaged packs again; empty if none is damaged.
    var runs: [StagingReport]

    var description: String {
        let lines = runs.isEmpty ? packs.map(\.description) : runs.map(\.description)
        return lines.joined(separator: "\n")
    }
}
