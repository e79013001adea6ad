import FoundationEssentials
import Logging
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// What the commands that stage packs do: ask for the manifests, plan, carry out the plans, and
/// remember what happened.
struct StagingRun: Sendable {
    /// What is wanted.
    enum Wanted: Sendable {
        /// What policies, or the application's extension, call for at an event; `nil` finds out which.
        case event(ContentRequest?, essentialOnly: Bool)
        /// These packs, by name.
        case packs(Set<PackID>)
        /// These packs, which are damaged.
        case repair(Set<PackID>)
    }

    let session: Session
    let output: OutputOptions
    let wanted: Wanted
    /// Whether to stop at the plan.
    var isDryRun = false
    /// What a dry run takes for granted instead of looking.
    var assumptions = Assumptions()
    /// The role of this process.
    var role = Role.command

    /// What a simulation assumes of the machine.
    struct Assumptions: Sendable {
        /// Whether everything is staged that an installation stages.
        var isInstalled = false
        /// What is free on the file system; `nil` for what really is.
        var freeSpace: ByteCount?
    }

    /// Makes a plan for each manifest and carries it out.
    ///
    /// - Throws: ``CommandFailure`` if a manifest cannot be had, or has none of the packs that are
    ///   named.
    func run() async throws(CommandFailure) -> [StagingReport] {
        let reader = try session.reader()
        let restrictions = try restrictions(reader)
        var options = try session.stagerOptions()
        options.allowedDomains = restrictions?.downloadDomainAllowList
        let sources = try session.sources(reader)
        let reports = try await stage(sources, reader, options, restrictions)
        try checkNames(reports)
        return reports
    }

    private func stage(
        _ sources: [ManifestSource],
        _ reader: ContainerReader?,
        _ options: StagerOptions,
        _ restrictions: Registration.Restrictions?
    ) async throws(CommandFailure) -> [StagingReport] {
        try await withStager(options, logger: Log.logger) {
            (stager) async throws(CommandFailure) in
            var reports: [StagingReport] = []
            for source in sources {
                reports.append(try await stage(source, reader, stager, restrictions))
            }
            return reports
        }
    }

    /// That no manifest has a pack that was asked for by name is an error.
    private func checkNames(_ reports: [StagingReport]) throws(CommandFailure) {
        switch wanted {
        case .event: break
        case .packs(let ids), .repair(let ids):
            let known = Set(reports.flatMap { $0.packs.map(\.id) })
            if let unknown = ids.subtracting(known).min() {
                throw CommandFailure(.unknownPack(unknown))
            }
        }
    }

    /// The restrictions of the registration, which bind until the application has loaded a pack.
    ///
    /// What is asked for by name is not restricted: the application runs.
    private func restrictions(
        _ reader: ContainerReader?
    ) throws(CommandFailure) -> Registration.Restrictions? {
        guard case .event = wanted, let registration = session.registration,
            let restrictions = registration.restrictions
        else { return nil }
        guard let reader else { return restrictions }
        do throws(ContainerError) {
            let isLaunched = try reader.hasLaunched(registration.application)
            return isLaunched ? nil : restrictions
        } catch {
            throw CommandFailure(error)
        }
    }

    private func stage(
        _ source: ManifestSource,
        _ reader: ContainerReader?,
        _ stager: Stager,
        _ restrictions: Registration.Restrictions?
    ) async throws(CommandFailure) -> StagingReport {
        let manifest: AcceptedManifest
        let problem: CommandFailure?
        do throws(CommandFailure) {
            (manifest, problem) = try await self.manifest(source, reader, stager)
        } catch {
            if !isDryRun { RunRecorder(self)?.record(error) }
            throw error
        }
        let path = try session.container(for: manifest.manifest)
        let container = isDryRun ? nil : try openContainer(path, storing: manifest)
        var planner = try planner(manifest, container, path, restrictions)
        planner.assume(assumptions)
        let selection = selection(planner)
        let program = try extensionRun(selection, manifest, planner, container)
        defer { program?.end() }
        let answer = try await ask(program, manifest.manifest)
        if case .success(let choice) = answer { planner.choices = choice.packs }
        let plan = try plan(&planner, selection, container, path)
        var report = report(planner, plan, path, problem)
        if case .failure(let failure) = answer {
            report.extensionProblem = FailureReport(failure)
        }
        guard let container else { return report }
        if session.isOffline {
            report.refuseOffline()
        } else {
            let order = order(source, path)
            let packs = try await stageInTurn(plan, order, selection, &planner, container) { plan in
                await stage(plan, manifest, container, stager)
            }
            report.add(packs)
            if let program, case .success(let choice) = answer {
                let failure = await program.tell(packs.outcomes, choice, container)
                report.extensionProblem = failure.map(FailureReport.init)
                report.files = await program.fetch(
                    choice,
                    essentialOnly: selection.isEssentialOnly,
                    within: selection.isPeriodic ? .periodic : .attended,
                    planner.budget,
                    container,
                    stager
                )
            }
        }
        if case .event(.periodic, essentialOnly: false) = selection {
            report.removed = try removeObsoletePacks(container)
        }
        report.add(await keepQuota(planner, selection, in: container))
        RunRecorder(self, container).record(report, selection, planner)
        return report
    }

    /// The part of the application's extension, where it has one and an event is to be decided on.
    private func extensionRun(
        _ selection: PackSelection,
        _ manifest: AcceptedManifest,
        _ planner: Planner,
        _ container: Container?
    ) throws(CommandFailure) -> ExtensionRun? {
        guard case .event(let request, _) = selection else { return nil }
        // An event that is not complete is what the extension is asked about, until it is.
        let event = request == .periodic ? planner.pending ?? request : request
        return try ExtensionRun(session.registration, manifest, planner, event, container)
    }

    /// Asks the extension; `nil` where there is none.
    ///
    /// - Throws: only that the run was interrupted.
    private func ask(
        _ program: ExtensionRun?,
        _ manifest: Manifest
    ) async throws(CommandFailure) -> Result<ExtensionRun.Choice, CommandFailure>? {
        guard let program else { return nil }
        do throws(CommandFailure) {
            return .success(try await program.choose(manifest))
        } catch {
            if error.status == .interrupted { throw error }
            return .failure(error)
        }
    }

    private func selection(_ planner: Planner) -> PackSelection {
        switch wanted {
        case .event(let request, let essentialOnly):
            .event(request ?? planner.request, essentialOnly: essentialOnly)
        case .packs(let ids): .packs(ids)
        case .repair(let ids): .repair(ids)
        }
    }

    private func report(
        _ planner: Planner,
        _ plan: Plan,
        _ path: FilePath,
        _ problem: CommandFailure?
    ) -> StagingReport {
        var report = StagingReport(
            container: path.string,
            manifest: planner.manifest,
            plan: plan
        )
        report.manifestProblem = problem.map(FailureReport.init)
        return report
    }

    /// Opens the container, makes it where it is missing, and keeps the manifest in it.
    func openContainer(
        _ path: FilePath,
        storing manifest: AcceptedManifest
    ) throws(CommandFailure) -> Container {
        let application = manifest.manifest.application
        let container: Container
        let before: StoredManifest?
        do throws(ContainerError) {
            container = try Container.make(path)
            before = try container.storedManifest(for: application)
        } catch {
            throw CommandFailure(error)
        }
        guard !manifest.isUnchanged else { return container }
        do throws(StageError) {
            try manifest.checkRevision(after: before)
        } catch {
            throw CommandFailure(error)
        }
        do throws(ContainerError) {
            try container.store(manifest.record, for: application)
        } catch {
            throw CommandFailure(error)
        }
        return container
    }

    /// The planner for what is staged now; a dry run has no container, and makes nothing.
    private func planner(
        _ manifest: AcceptedManifest,
        _ container: Container?,
        _ path: FilePath,
        _ restrictions: Registration.Restrictions?
    ) throws(CommandFailure) -> Planner {
        do throws(StageError) {
            var planner =
                if let container {
                    try Planner(manifest: manifest.manifest, container: container)
                } else {
                    try Planner(manifest: manifest.manifest, containerAt: path)
                }
            var reader = container?.reader
            if reader == nil { reader = try ContainerReader.reading(path) }
            let history = try reader?.rememberedHistory(of: planner.manifest.application)
            planner.quota = session.quota(of: path)
            planner.applicationVersion = session.applicationVersion
            planner.pending = history?.pending ?? neverRecorded(history, planner)
            planner.budget = restrictions.map { restrictions in
                InitialBudget(restrictions, manifest, planner, history?.spent ?? .init())
            }
            return planner
        } catch {
            throw CommandFailure(error)
        }
    }

    /// The installation that a periodic run has to complete though nothing is remembered of it.
    ///
    /// The run that began it was killed, or the disk was full, before anything could be written down.
    private func neverRecorded(
        _ history: StagingHistory?,
        _ planner: Planner
    ) -> ContentRequest? {
        guard history == nil, !assumptions.isInstalled, case .event(.periodic, _) = wanted,
            planner.request == .install
        else { return nil }
        return .install
    }

    private func stage(
        _ plan: Plan,
        _ manifest: AcceptedManifest,
        _ container: Container,
        _ stager: Stager
    ) async -> StagedPacks {
        var staged = StagedPacks()
        staged.evicted = await makeRoom(plan.evictions, in: container)
        guard !plan.packsToStage.isEmpty else { return staged }
        let display = ProgressDisplay(plan, output, role.observer)
        staged.outcomes = await display.whileShown {
            await stager.stage(plan, of: manifest, in: container) { display.take($0, $1) }
        }
        staged.progress = display.packs
        return staged
    }

    /// The manifest: the server's, or the stored one where the server is not asked or does not answer.
    func manifest(
        _ source: ManifestSource,
        _ reader: ContainerReader?,
        _ stager: Stager
    ) async throws(CommandFailure) -> (AcceptedManifest, CommandFailure?) {
        let stored =
            try reader.map { reader throws(CommandFailure) in
                try session.stored(reader).first { source.urls.contains($0.url) }
            } ?? nil
        if session.isOffline, stored == nil { throw .offline("the manifest is not here") }
        let asked = Mutex<String?>(nil)
        do throws(StageError) {
            if session.isOffline, let stored {
                return (try AcceptedManifest(stored: stored, for: source), nil)
            }
            let manifest = try await stager.manifest(from: source, stored: stored) { event in
                if case .connecting(let url) = event { asked.withLock { $0 = url } }
                ManifestProgress.tell(event, output)
            }
            return (manifest, nil)
        } catch {
            var failure = CommandFailure(error)
            failure.place = asked.withLock { $0 }.map { "the manifest at '\($0.forDisplay())'" }
            guard case .manifestUnavailable = error, let stored else { throw failure }
            do throws(StageError) {
                return (try AcceptedManifest(stored: stored, for: source), failure)
            } catch {
                throw CommandFailure(error)
            }
        }
    }
}

extension PackSelection {
    /// Whether the timer has started the run.
    var isPeriodic: Bool {
        if case .event(.periodic, _) = self { true } else { false }
    }

    /// Whether only what is essential is wanted.
    fileprivate var isEssentialOnly: Bool {
        if case .event(_, essentialOnly: true) = self { true } else { false }
    }
}

extension ContainerReader {
    /// The container as a reader sees it, or `nil` if there is none.
    static func reading(_ path: FilePath) throws(StageError) -> ContainerReader? {
        do throws(ContainerError) {
            return try open(path)
        } catch {
            throw .container(error)
        }
    }

    /// What is remembered of an application.
    func rememberedHistory(
        of application: ApplicationID
    ) throws(StageError) -> StagingHistory? {
        do throws(ContainerError) {
            return try history(of: application)
        } catch {
            throw .container(error)
        }
    }

    /// Whether the application has loaded a pack of its manifest.
    func hasLaunched(_ application: ApplicationID) throws(ContainerError) -> Bool {
        if let history = try history(of: application), history.firstLoadedAt != nil { return true }
        guard let record = try storedManifest(for: application),
            // A manifest that cannot be read any more is told of where it is asked for.
            let manifest = try? Manifest(json: Array(record.text.utf8))
        else { return false }
        for pack in manifest.packs where try hasBeenLoaded(pack.id) { return true }
        return false
    }
}

extension Planner {
    /// Plans as if things were so.
    fileprivate mutating func assume(_ assumptions: StagingRun.Assumptions) {
        if assumptions.isInstalled {
            for pack in plan(for: .event(.install, essentialOnly: false)).packsToStage {
                staged[pack.id] = StagedVersion(
                    version: pack.version,
                    archiveDigest: pack.contentDigest
                )
            }
        }
        if let space = assumptions.freeSpace { freeSpace = space }
    }
}
