import StageContainer
import StageControl
import StageEngine
import StageExtension
import StageModel
import StageSystem
import StageTransfer

/// Carries out the answers of a downloader extension: its packs and files, and its replacements for failed
/// downloads.
///
/// A run tries each identifier once, and at most ``ExtensionRules/downloads`` of them, so that an extension
/// cannot prolong the run endlessly.
struct ExtensionRounds: Sendable {
    let service: StagingService
    let program: ExtensionRun
    let manifest: AcceptedManifest
    let container: Container
    let stager: Stager
    let selection: PackSelection
    let job: StagingJob

    /// State of the rounds of one run.
    private struct State {
        var planner: Planner
        var result: StagingResult
        var files: ExtensionFiles
        /// All packs that the extension requested in this run; the value is `true` for essential ones.
        var choices: [PackID: Bool] = [:]
        /// The identifiers of all downloads so far.
        var tried: Set<String> = []
    }

    /// Reports the outcomes of its packs to the extension, downloads its files, and stages its replacements
    /// for failed downloads, until the extension requests no others.
    ///
    /// - Parameters:
    ///   - choice: The packs and files that the extension requested.
    ///   - staged: The outcome of the packs.
    ///   - planner: The planner of the run; receives the packs of all rounds as its choices.
    ///   - result: The result of the run, which already contains the outcome of the packs.
    func run(
        _ choice: ExtensionRun.Choice,
        staged: StagedPacks,
        planner: inout Planner,
        result: inout StagingResult
    ) async {
        let files = ExtensionFiles(
            program: program,
            container: container,
            stager: stager,
            target: service.target,
            isEssentialOnly: await leavesFiles(of: choice, after: staged),
            limits: selection.isPeriodic ? .periodic : .attended
        )
        var state = State(planner: planner, result: result, files: files)
        var choice = choice
        while true {
            state.tried.formUnion(choice.identifiers)
            state.choices.merge(choice.packs) { first, _ in first }
            var identifiers: Set<String> = []
            let wanted = await finish(choice, updating: &state)
                .filter { identifiers.insert($0.identifier).inserted }
            var next = program.choice(of: wanted, in: manifest.manifest)
            next.remove(state.tried, limit: ExtensionRules.downloads - state.tried.count)
            guard !next.identifiers.isEmpty, !Task.isCancelled else { break }
            choice = next
            do throws(StagingFailure) {
                try await stage(choice, updating: &state)
            } catch {
                // The results of earlier rounds stay valid.
                state.result.extensionProblem = state.result.extensionProblem ?? error
                break
            }
        }
        planner.choices = state.choices
        result = state.result
    }

    /// Returns whether a later run downloads the files that are not essential: because this run is for
    /// essential content only, or is a periodic run that waits for network and power.
    private func leavesFiles(
        of choice: ExtensionRun.Choice,
        after staged: StagedPacks
    ) async -> Bool {
        if selection.isEssentialOnly { return true }
        guard selection.isPeriodic, choice.files.contains(where: { !$0.isEssential }) else {
            return false
        }
        guard staged.waiting.isEmpty else { return true }
        return await !service.unmetConditions().isEmpty
    }

    /// Stages the packs of a further round.
    private func stage(
        _ choice: ExtensionRun.Choice,
        updating state: inout State
    ) async throws(StagingFailure) {
        guard !choice.packs.isEmpty else { return }
        do throws(StageError) {
            state.planner = try state.planner.refreshed(from: container)
        } catch {
            throw StagingFailure(error)
        }
        state.planner.choices = choice.packs
        // Packs of one run do not evict each other.
        state.planner.spared = Set(state.choices.keys)
        let plan = try await service.plan(
            with: &state.planner,
            for: selection,
            of: manifest,
            by: stager,
            at: container.root.path
        )
        let packs = Set(choice.packs.keys)
        state.result.replaceEntries(of: packs, by: plan)
        let runPlanner = RunPlanner(
            service: service,
            manifest: manifest,
            container: container,
            stager: stager,
            selection: selection,
            initial: state.planner
        )
        let staged = try await service.stageWithPermit(
            plan,
            as: job,
            planningWith: runPlanner
        ) { [self] plan in
            await stage(plan, for: choice)
        }
        state.result.addRound(staged, of: packs)
    }

    /// Stages the packs of a plan; repeats those that a server refused with 401, if the extension has a
    /// credential for the server's origin.
    func stage(_ plan: Plan, for choice: ExtensionRun.Choice) async -> StagedPacks {
        var staged = await service.stage(plan, of: manifest, in: container, by: stager)
        var credentials: [String: BasicCredential] = [:]
        var packs: Set<PackID> = []
        for (id, download) in choice.downloads.sorted(by: { $0.key < $1.key }) {
            guard case .failed(let error)? = staged.outcomes[id], !Task.isCancelled,
                let server = error.challengedURL.flatMap({ URLReference($0).origin }),
                let credential = await program.credential(for: download, at: server)
            else { continue }
            credentials[server.description] = credential
            packs.insert(id)
        }
        guard !packs.isEmpty else { return staged }
        let entries = plan.entries.filter { packs.contains($0.pack.id) }
        let again = await stager.withCredentials(credentials) { stager in
            await service.stage(Plan(entries: entries), of: manifest, in: container, by: stager)
        }
        staged.add(again)
        return staged
    }

    /// Ends a round: reports the outcomes of the packs to the extension, and downloads its files; returns the
    /// extension's replacements for failed downloads.
    private func finish(
        _ choice: ExtensionRun.Choice,
        updating state: inout State
    ) async -> [ExtensionDownload] {
        var wanted: [ExtensionDownload] = []
        // A run may have ten thousand packs.
        let results = Dictionary(state.result.packs.map { ($0.id, $0) }) { first, _ in first }
        for (id, download) in choice.downloads.sorted(by: { $0.key < $1.key }) {
            guard !Task.isCancelled, let pack = results[id] else { continue }
            if pack.outcome == .staged {
                state.planner.budget?.spend(pack.pack, isEssential: choice.packs[id] ?? false)
            }
            do throws(StagingFailure) {
                wanted += try await reportOutcome(of: download, pack: pack)
            } catch {
                state.result.extensionProblem = state.result.extensionProblem ?? error
            }
        }
        let files = await state.files.fetch(choice.files, spending: &state.planner.budget)
        state.result.files = (state.result.files ?? []) + files.results
        state.result.extensionProblem = state.result.extensionProblem ?? files.extensionProblem
        return wanted + files.replacements
    }

    /// Reports the outcome of a pack to the extension; returns its replacements for a failed download.
    private func reportOutcome(
        of download: ExtensionDownload,
        pack: PackResult
    ) async throws(StagingFailure) -> [ExtensionDownload] {
        switch pack.outcome {
        case .staged, .present:
            guard pack.outcome == .staged || pack.reason == .stagedByOther,
                let content = container.contentOfStaged(pack.id)
            else { return [] }
            try await program.reportStaged(download, content: content)
            return []
        case .failed:
            guard let failure = pack.failure, failure.kind != .interrupted else { return [] }
            return try await program.reportFailed(download, with: failure)
        default:
            return []
        }
    }
}
