import StageContainer
import StageControl
import StageEngine
import StageExtension
import StageModel
import StageSystem
import StageTransfer

/// Carries out the answers of a downloader extension: its packs and files, and its replacements for those that
/// fail.
///
/// A run tries each identifier once, and ``ExtensionRules/downloads`` of them in all, so that an extension cannot
/// keep it going.
struct ExtensionRounds: Sendable {
    let service: StagingService
    let program: ExtensionRun
    let manifest: AcceptedManifest
    let container: Container
    let stager: Stager
    let selection: PackSelection
    let order: StagingOrder

    /// The state of the rounds of one run.
    private struct State {
        var planner: Planner
        var result: StagingResult
        var files: ExtensionFiles
        /// Every pack that the extension asked for in this run, and whether it is essential.
        var choices: [PackID: Bool] = [:]
        /// The identifiers of all downloads so far.
        var tried: Set<String> = []
    }

    /// Tells the extension how its packs ended, downloads its files, and stages what it wants instead of those that
    /// failed, until it wants nothing else.
    ///
    /// - Parameters:
    ///   - choice: The packs and files that the extension has asked for.
    ///   - staged: The outcome of the packs.
    ///   - planner: The planner of the run; gets the packs of all rounds as its choices.
    ///   - result: The result of the run, to which the outcome of the packs was added.
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
            isEssentialOnly: await leavesFiles(of: choice, after: staged),
            limits: selection.isPeriodic ? .periodic : .attended
        )
        var state = State(planner: planner, result: result, files: files)
        var choice = choice
        while true {
            state.tried.formUnion(choice.identifiers)
            state.choices.merge(choice.packs) { first, _ in first }
            var identifiers: Set<String> = []
            let wanted = await finish(choice, &state)
                .filter { identifiers.insert($0.identifier).inserted }
            var next = program.choice(of: wanted, in: manifest.manifest)
            next.remove(state.tried, limit: ExtensionRules.downloads - state.tried.count)
            guard !next.identifiers.isEmpty, !Task.isCancelled else { break }
            choice = next
            do throws(StagingFailure) {
                try await stage(choice, &state)
            } catch {
                // The results of the rounds before count all the same.
                state.result.extensionProblem = state.result.extensionProblem ?? error
                break
            }
        }
        planner.choices = state.choices
        result = state.result
    }

    /// Whether files that are not essential are left to a later run: it was asked for essential content only, or a
    /// periodic run waits for network and power.
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
        _ state: inout State
    ) async throws(StagingFailure) {
        guard !choice.packs.isEmpty else { return }
        do throws(StageError) {
            state.planner = try state.planner.refreshed(from: container)
        } catch {
            throw StagingFailure(error)
        }
        state.planner.choices = choice.packs
        // Packs of one run do not drive each other out.
        state.planner.spared = Set(state.choices.keys)
        let plan = try service.plan(
            &state.planner,
            selection,
            container,
            container.root.path
        )
        state.result.replaceEntries(of: Set(choice.packs.keys), by: plan)
        let staged = try await service.stageInTurn(
            plan,
            order,
            selection,
            &state.planner,
            container
        ) { [self] plan in
            await stage(plan, for: choice)
        }
        state.result.addRound(staged)
    }

    /// Stages the packs of a plan, and once more those that a server refuses with 401 for whose origin the extension
    /// has a credential.
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

    /// Ends a round: tells the extension of its packs, and downloads its files; returns the downloads that it wants
    /// instead of those that failed.
    private func finish(
        _ choice: ExtensionRun.Choice,
        _ state: inout State
    ) async -> [ExtensionDownload] {
        var wanted: [ExtensionDownload] = []
        for (id, download) in choice.downloads.sorted(by: { $0.key < $1.key }) {
            guard !Task.isCancelled, let pack = state.result.packs.first(where: { $0.id == id })
            else { continue }
            if pack.outcome == .staged {
                state.planner.budget?.spend(pack.pack, isEssential: choice.packs[id] ?? false)
            }
            do throws(StagingFailure) {
                wanted += try await tell(download, pack)
            } catch {
                state.result.extensionProblem = state.result.extensionProblem ?? error
            }
        }
        let files = await state.files.fetch(choice.files, spending: &state.planner.budget)
        state.result.files = (state.result.files ?? []) + files.results
        state.result.extensionProblem = state.result.extensionProblem ?? files.extensionProblem
        return wanted + files.replacements
    }

    /// Tells the extension how a pack ended; returns the downloads that it wants instead of one that failed.
    private func tell(
        _ download: ExtensionDownload,
        _ pack: PackResult
    ) async throws(StagingFailure) -> [ExtensionDownload] {
        switch pack.outcome {
        case .staged, .present:
            guard pack.outcome == .staged || pack.reason == .stagedByOther,
                let content = container.contentOfStaged(pack.id)
            else { return [] }
            try await program.tellStaged(download, content: content)
            return []
        case .failed:
            guard let failure = pack.failure, failure.kind != .interrupted else { return [] }
            return try await program.tellFailed(download, failure)
        default:
            return []
        }
    }
}
