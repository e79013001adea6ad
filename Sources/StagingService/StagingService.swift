public import Logging
import StageContainer
import StageControl
import StageEngine
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// Stages packs of an application, from the manifest to what is remembered of it: the one way in which
/// commands, applications and the daemon's workers do.
///
/// It asks for the manifests, plans, has the application's extension choose, makes room, stages, keeps the
/// quota, and writes history. A process that ends at any moment loses nothing that was received; what was
/// published stays.
public struct StagingService: Sendable {
    let request: StagingRequest
    let logger: Logger
    /// Told of everything that happens, in order, on threads that may block.
    let report: @Sendable (StagingUpdate) -> Void

    /// Creates the service for one request.
    ///
    /// - Parameters:
    ///   - request: What is to be staged.
    ///   - logger: Told what could not be tidied up or remembered.
    ///   - report: Told of everything that happens, in order, on threads that may block; a run ends when all is told.
    public init(
        _ request: StagingRequest,
        logger: Logger,
        report: @escaping @Sendable (StagingUpdate) -> Void = { _ in }
    ) {
        self.request = request
        self.logger = logger
        self.report = report
    }

    var target: StagingTarget { request.target }

    /// Makes a plan for each manifest and carries it out.
    ///
    /// The bytes that a cancelled task has received stay for the next one. A daemon that knows of the staging goes
    /// on with it then (``StagingUpdate/leftToDaemon(task:)``).
    ///
    /// - Returns: What was decided and done, for each manifest. A pack that could not be staged is no error of
    ///   the whole.
    /// - Throws: ``StagingFailure`` if a manifest cannot be had, or has none of the packs that are named.
    public func stage() async throws(StagingFailure) -> [StagingResult] {
        let reader = try target.reader()
        let restrictions = try restrictions(reader)
        var options = request.options
        if let list = restrictions?.downloadDomainAllowList {
            options.allowedDomains = Self.domains(list, allowedBy: options.allowedDomains)
        }
        let sources = try target.sources(reader)
        let results = try await stage(sources, reader, options, restrictions)
        try checkNames(results)
        return results
    }

    /// The domains that two lists allow; without a second one the first.
    private static func domains(_ list: [String], allowedBy other: [String]?) -> [String] {
        guard let other else { return list }
        let (left, right) = (AllowedDomains(list), AllowedDomains(other))
        // A pattern that the other list contains stands for names that it contains.
        return left.patterns.filter(right.contains) + right.patterns.filter(left.contains)
    }

    private func stage(
        _ sources: [ManifestSource],
        _ reader: ContainerReader?,
        _ options: StagerOptions,
        _ restrictions: Registration.Restrictions?
    ) async throws(StagingFailure) -> [StagingResult] {
        try await withStager(options, logger: logger) {
            (stager) async throws(StagingFailure) in
            var results: [StagingResult] = []
            for source in sources {
                results.append(try await stage(source, reader, stager, restrictions))
            }
            return results
        }
    }

    /// That no manifest has a pack that was asked for by name is an error.
    private func checkNames(_ results: [StagingResult]) throws(StagingFailure) {
        switch request.packs {
        case .event: break
        case .named(let ids), .damaged(let ids):
            let known = Set(results.flatMap { $0.packs.map(\.id) })
            if let unknown = ids.subtracting(known).min() {
                throw StagingFailure(StageError.unknownPack(unknown))
            }
        }
    }

    /// The restrictions of the registration, which bind until the application has loaded a pack.
    ///
    /// Packs that are asked for by name are not restricted: the application runs.
    private func restrictions(
        _ reader: ContainerReader?
    ) throws(StagingFailure) -> Registration.Restrictions? {
        guard case .event = request.packs, let registration = target.registration,
            let restrictions = registration.restrictions
        else { return nil }
        guard let reader else { return restrictions }
        do throws(ContainerError) {
            let isLaunched = try reader.hasLaunched(registration.application)
            return isLaunched ? nil : restrictions
        } catch {
            throw StagingFailure(error)
        }
    }

    private func stage(
        _ source: ManifestSource,
        _ reader: ContainerReader?,
        _ stager: Stager,
        _ restrictions: Registration.Restrictions?
    ) async throws(StagingFailure) -> StagingResult {
        let (offered, problem) = try await recordedManifest(source, reader, stager)
        let path = try target.container(for: offered.manifest)
        let opened =
            request.isDryRun ? nil : try openContainer(path, storing: offered, from: source)
        let (container, manifest) = (opened?.container, opened?.manifest ?? offered)
        var (planner, history) = try planner(manifest, container, path, restrictions)
        if request.isDryRun { planner.assume(request.assumptions) }
        let selection = selection(planner)
        let program = try extensionRun(selection, manifest, planner, container)
        defer { program?.end() }
        let answer = try await ask(program, manifest.manifest)
        let choice = try? answer?.get()
        if let choice { planner.choices = choice.packs }
        let made = try plan(&planner, selection, container, path)
        let plan = await estimated(made, of: manifest, planner, stager, at: path)
        var result = StagingResult(container: path, manifest: manifest, plan: plan)
        result.manifestProblem = problem
        result.manifestVerifiedAt = source.trust?.stored.record?.verifiedAt
        if case .failure(let failure) = answer {
            result.extensionProblem = failure
        }
        guard let container else {
            try addUpkeep(after: plan, planner, selection, at: path, to: &result)
            return result
        }
        if request.isOffline {
            result.refuseOffline()
        } else {
            let order = order(for: source, in: path)
            let rounds = program.map { program in
                ExtensionRounds(
                    service: self,
                    program: program,
                    manifest: manifest,
                    container: container,
                    stager: stager,
                    selection: selection,
                    order: order
                )
            }
            let packs = try await stageInTurn(plan, order, selection, &planner, container) { plan in
                if let rounds, let choice { return await rounds.stage(plan, for: choice) }
                return await stage(plan, of: manifest, in: container, by: stager)
            }
            result.add(packs)
            if let rounds, let choice {
                await rounds.run(choice, staged: packs, planner: &planner, result: &result)
            }
        }
        try await tidy(container, planner, selection, &result)
        if isLate { result.nameDeadline() }
        RunRecorder(self, in: container).record(result, of: selection, by: planner, after: history)
        return result
    }

    /// The manifest; the history gets the failure if there is none.
    private func recordedManifest(
        _ source: ManifestSource,
        _ reader: ContainerReader?,
        _ stager: Stager
    ) async throws(StagingFailure) -> (AcceptedManifest, StagingFailure?) {
        do throws(StagingFailure) {
            return try await manifest(source, reader, stager)
        } catch {
            let failure =
                isLate && error.kind == .interrupted
                ? .deadline(about: error.place, received: nil, from: nil) : error
            if !request.isDryRun { RunRecorder(self, withoutManifestOf: source)?.record(failure) }
            throw failure
        }
    }

    /// Whether the deadline of the request has passed.
    private var isLate: Bool { request.deadline.map { $0 <= .now } ?? false }

    private func selection(_ planner: Planner) -> PackSelection {
        switch request.packs {
        case .event(let request, let essentialOnly):
            .event(request ?? planner.request, essentialOnly: essentialOnly)
        case .named(let ids): .packs(ids)
        case .damaged(let ids): .repair(ids)
        }
    }

    /// Opens the container, makes it where it is missing, and keeps the manifest in it, with the metadata
    /// that it was verified with.
    ///
    /// - Returns: The container, and the manifest that holds: a newer one where another process has stored
    ///   that with its metadata.
    func openContainer(
        _ path: FilePath,
        storing manifest: AcceptedManifest,
        from source: ManifestSource
    ) throws(StagingFailure) -> (container: Container, manifest: AcceptedManifest) {
        let application = manifest.manifest.application
        let container: Container
        let before: StoredManifest?
        do throws(ContainerError) {
            container = try Container.make(path)
            if let trust = source.trust {
                let newer = try container.store(
                    trust.stored,
                    and: manifest.isUnchanged ? nil : manifest.record,
                    for: application,
                    unless: trust.isOlder
                )
                guard let newer else { return (container, manifest) }
                trust.adopt(newer)
            } else {
                try container.removeTrust(of: application)
                guard !manifest.isUnchanged else { return (container, manifest) }
            }
            before = try container.storedManifest(for: application)
        } catch {
            throw StagingFailure(error)
        }
        guard source.trust == nil else {
            // Another process was faster, and has a newer one.
            return (container, try accepted(before ?? manifest.record, for: source, at: nil))
        }
        do throws(StageError) {
            try manifest.checkRevision(after: before)
        } catch {
            throw StagingFailure(error)
        }
        do throws(ContainerError) {
            try container.store(manifest.record, for: application)
        } catch {
            throw StagingFailure(error)
        }
        return (container, manifest)
    }

    /// The planner for what is staged now, and the history that it is told of; a dry run has no container, and
    /// makes nothing.
    private func planner(
        _ manifest: AcceptedManifest,
        _ container: Container?,
        _ path: FilePath,
        _ restrictions: Registration.Restrictions?
    ) throws(StagingFailure) -> (Planner, HistoryRecord?) {
        do throws(StageError) {
            var planner =
                if let container {
                    try Planner(manifest: manifest.manifest, container: container)
                } else {
                    try Planner(manifest: manifest.manifest, containerAt: path)
                }
            var reader = container?.reader
            if reader == nil { reader = try ContainerReader.reading(path) }
            let record = try reader?.historyRecord(rememberedOf: planner.manifest.application)
            let history = record?.history
            planner.elsewhere = copiesElsewhere(of: manifest.manifest, than: path)
            planner.quota = target.quota(of: path)
            planner.applicationVersion = target.installedVersion
            planner.pending = history?.pending ?? neverRecorded(history, planner)
            planner.budget = restrictions.map { restrictions in
                InitialBudget(restrictions, manifest, planner, history?.spent ?? .init())
            }
            return (planner, record)
        } catch {
            throw StagingFailure(error)
        }
    }

    /// The installation that a periodic run has to complete though nothing is remembered of it.
    ///
    /// The run that began it was killed, or the disk was full, before anything could be written down.
    private func neverRecorded(
        _ history: StagingHistory?,
        _ planner: Planner
    ) -> ContentRequest? {
        guard history == nil, !(request.isDryRun && request.assumptions.isInstalled),
            case .event(.periodic, _) = request.packs,
            planner.request == .install
        else { return nil }
        return .install
    }

    /// Makes room for the packs of a plan, and stages them.
    func stage(
        _ plan: Plan,
        of manifest: AcceptedManifest,
        in container: Container,
        by stager: Stager
    ) async -> StagedPacks {
        var staged = StagedPacks()
        staged.evicted = await makeRoom(plan.evictions, in: container)
        guard !plan.packsToStage.isEmpty else { return staged }
        let progress = Mutex(StagingProgress(plan))
        let turn = TurnProgress.current
        let queue = UpdateQueue(report)
        queue.add(.began(plan))
        staged.outcomes = await stager.stage(plan, of: manifest, in: container) { id, event in
            progress.withLock { progress in
                progress.apply(event, to: id)
                turn?.tell {
                    StagingBytes(received: progress.received, expected: progress.downloadSize)
                }
                queue.add(.pack(id, event))
            }
        }
        queue.add(.ended)
        await queue.finish()
        staged.progress = progress.withLock { $0.packs }
        return staged
    }
}

extension PackSelection {
    /// Whether the timer has started the run.
    var isPeriodic: Bool {
        if case .event(.periodic, _) = self { true } else { false }
    }

    /// Whether only what is essential is wanted.
    var isEssentialOnly: Bool {
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

    /// The history of an application, as it is before a run.
    func historyRecord(
        rememberedOf application: ApplicationID
    ) throws(StageError) -> HistoryRecord {
        do throws(ContainerError) {
            return try historyRecord(of: application)
        } catch {
            throw .container(error)
        }
    }

    /// Whether the application has loaded a pack of its manifest.
    func hasLaunched(_ application: ApplicationID) throws(ContainerError) -> Bool {
        if let history = try history(of: application), history.firstLoadedAt != nil { return true }
        guard let record = try storedManifest(for: application),
            // A manifest that cannot be read any more is told of where it is asked for.
            let manifest = try? record.manifest()
        else { return false }
        return try hasLoadedPack(of: manifest)
    }

    /// Whether a pack of a manifest has been loaded; of a manifest without packs, as one in the application's own format
    /// is, a pack that was staged for its application before.
    func hasLoadedPack(of manifest: Manifest) throws(ContainerError) -> Bool {
        let ids = Set(manifest.packs.map(\.id))
        for id in try ids.isEmpty ? stagedPacks(of: manifest.application) : ids
        where try hasBeenLoaded(id) { return true }
        return false
    }
}

extension Planner {
    /// Plans as if things were so.
    fileprivate mutating func assume(_ assumptions: StagingRequest.Assumptions) {
        if assumptions.isInstalled {
            for pack in plan(for: .event(.install, essentialOnly: false)).packsToStage {
                staged[pack.id] = StagedVersion(
                    version: pack.version,
                    contentDigest: pack.contentDigest
                )
            }
        }
        if let space = assumptions.freeSpace { freeSpace = space }
    }
}
