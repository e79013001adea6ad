public import Logging
import StageContainer
import StageControl
import StageEngine
import StageModel
import StageSystem
import StageTransfer
import Synchronization
import SystemPackage

/// Stages packs of an application, from the manifest to the history, for commands, applications and workers of the daemon.
///
/// Downloads the manifests, plans, asks the application's extension, evicts packs to free space, stages
/// packs, enforces the quota, and writes the history. If the process ends at any moment, received bytes and
/// published packs are kept.
public struct StagingService: Sendable {
    let request: StagingRequest
    let logger: Logger
    /// Called with every event, in order, on threads that may block.
    let report: @Sendable (StagingUpdate) -> Void

    /// Creates the service for one request.
    ///
    /// - Parameters:
    ///   - request: The request to carry out.
    ///   - logger: Logs failures to clean up and to write the history.
    ///   - report: Called with every event, in order, on threads that may block; a run ends after the last
    ///     call has returned.
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
    /// Keeps the bytes that a cancelled task has received, for the next run. If the daemon knows of the
    /// staging, it then resumes it (``StagingUpdate/leftToDaemon(task:)``), unless the request withdraws it.
    ///
    /// - Returns: The decisions and outcomes for each manifest. A pack that fails is reported there, and does
    ///   not make the whole run throw.
    /// - Throws: ``StagingFailure`` if a manifest is not available, or if no manifest has a pack that the
    ///   request names.
    public func stage() async throws(StagingFailure) -> [StagingResult] {
        let staged = try await stageManifests()
        if let failure = staged.failures.first { throw failure }
        return staged.results
    }

    /// Makes a plan for each manifest and carries it out, as ``stage()``, and returns the failures beside the results.
    ///
    /// - Throws: ``StagingFailure`` if no manifest has a pack that the request names, or if none could be asked for.
    package func stageManifests() async throws(StagingFailure) -> StagedManifests {
        let reader = try target.reader()
        let restrictions = try restrictions(reader)
        var options = request.options
        if let list = restrictions?.downloadDomainAllowList {
            options.allowedDomains = Self.domains(list, allowedBy: options.allowedDomains)
        }
        // Publishes nothing after the registration was replaced: a hook may have staged packs for the new one.
        if !request.isDryRun { options.mayPublish = { [target] in !target.isObsolete } }
        let sources = try target.sources(reader)
        return try checkNames(
            try await stage(from: sources, in: reader, with: options, under: restrictions)
        )
    }

    /// Returns the domains that both lists allow; the first list if there is no second one.
    private static func domains(_ list: [String], allowedBy other: [String]?) -> [String] {
        guard let other else { return list }
        let (left, right) = (AllowedDomains(list), AllowedDomains(other))
        // A pattern that the other list contains matches only names that the other list allows.
        return left.patterns.filter(right.contains) + right.patterns.filter(left.contains)
    }

    private func stage(
        from sources: [ManifestSource],
        in reader: ContainerReader?,
        with options: StagerOptions,
        under restrictions: Registration.Restrictions?
    ) async throws(StagingFailure) -> StagedManifests {
        try await withStager(options) {
            (stager) async throws(StagingFailure) in
            var staged = StagedManifests()
            for source in sources {
                do throws(StagingFailure) {
                    staged.results.append(
                        try await stageRecorded(
                            from: source,
                            in: reader,
                            by: stager,
                            under: restrictions
                        )
                    )
                } catch {
                    // A manifest that fails does not prevent staging the packs of the others.
                    staged.failures.append(error)
                    if error.endsRun { break }
                }
            }
            return staged
        }
    }

    /// Logs the failures of manifests, instead of returning them, if the other manifests have all packs that the request
    /// names.
    ///
    /// - Throws: ``StagingFailure`` if no manifest has a named pack: the failure of the first manifest that failed, if any.
    private func checkNames(_ staged: StagedManifests) throws(StagingFailure) -> StagedManifests {
        switch request.packs {
        case .event: return staged
        case .named(let ids), .damaged(let ids):
            let known = Set(staged.results.flatMap { $0.packs.map(\.id) })
            guard let unknown = ids.subtracting(known).min() else {
                for failure in staged.failures {
                    logger.warning(
                        "A manifest without the named packs failed",
                        metadata: ["error": "\(failure)"]
                    )
                }
                return StagedManifests(results: staged.results)
            }
            let problem = staged.results.lazy.compactMap(\.manifestProblem).first
            throw staged.failures.first ?? .unknownPack(unknown, after: problem)
        }
    }

    /// Stages the packs of a manifest; records the failure in the history if the run ends without a result.
    private func stageRecorded(
        from source: ManifestSource,
        in reader: ContainerReader?,
        by stager: Stager,
        under restrictions: Registration.Restrictions?
    ) async throws(StagingFailure) -> StagingResult {
        do throws(StagingFailure) {
            return try await stage(from: source, in: reader, by: stager, under: restrictions)
        } catch {
            guard error.kind != .registrationChanged else { throw error }
            // A new record could hide that of a run for the new registration.
            if !request.isDryRun { try checkRegistration() }
            let isInterrupted = isLate && error.kind == .interrupted
            let failure = isInterrupted ? .deadline(about: error.requestedManifest) : error
            if !request.isDryRun { RunRecorder(self, withoutManifestOf: source)?.record(failure) }
            throw failure
        }
    }

    private func stage(
        from source: ManifestSource,
        in reader: ContainerReader?,
        by stager: Stager,
        under restrictions: Registration.Restrictions?
    ) async throws(StagingFailure) -> StagingResult {
        let (offered, problem) = try await manifest(from: source, in: reader, by: stager)
        let path = try target.container(for: offered.manifest)
        guard !request.isDryRun else {
            var result = try await dryRun(of: offered, by: stager, at: path, under: restrictions)
            result.manifestProblem = problem
            result.manifestVerifiedAt = source.trust?.stored.record?.verifiedAt
            return result
        }
        try checkRegistration()
        let start = try await begin(with: offered, from: source, at: path, under: restrictions)
        let (container, manifest) = (start.container, start.manifest)
        var planner = start.planner
        let selection = selection(planner)
        let program = try extensionRun(for: selection, of: manifest, by: planner, in: container)
        defer { program?.end() }
        let answer = try await ask(program, about: manifest.manifest)
        let choice = try? answer?.get()
        if let choice {
            planner.choices = choice.packs
            let events = planner.events(of: selection)
            let missing = choice.files.isEmpty ? planner.incomplete(events) : events
            note(missing, of: manifest, after: start.history, in: container)
        }
        let plan = try await plan(
            with: &planner,
            for: selection,
            of: manifest,
            by: stager,
            at: path
        )
        var result = StagingResult(container: path, manifest: manifest, plan: plan)
        result.manifestProblem = problem
        result.manifestVerifiedAt = source.trust?.stored.record?.verifiedAt
        if case .failure(let failure) = answer { result.extensionProblem = failure }
        if request.isOffline {
            result.addOffline(await stage(plan, of: manifest, in: container, by: stager))
        } else {
            let run = try await stageWithPermit(
                plan,
                as: job(for: source, in: path, about: selection),
                of: selection,
                by: stager,
                after: start,
                asking: program.flatMap { program in choice.map { (program, $0) } },
                planner: planner,
                result: result
            )
            (planner, result) = (run.planner, run.result)
        }
        try await removeObsolete(container, by: planner, after: selection, addingTo: &result)
        if isLate { result.nameDeadline() }
        record(result, of: selection, by: planner, after: start)
        return result
    }

    /// Stages the packs of a plan when the daemon permits it, and carries out the answers of the extension.
    ///
    /// - Returns: The planner, with the choices of the extension, and the result, with the outcomes.
    private func stageWithPermit(
        _ plan: Plan,
        as job: StagingJob,
        of selection: PackSelection,
        by stager: Stager,
        after start: RunStart,
        asking answer: (program: ExtensionRun, choice: ExtensionRun.Choice)?,
        planner: Planner,
        result: StagingResult
    ) async throws(StagingFailure) -> (planner: Planner, result: StagingResult) {
        let (container, manifest) = (start.container, start.manifest)
        var (planner, result) = (planner, result)
        let rounds = answer.map { answer in
            ExtensionRounds(
                service: self,
                program: answer.program,
                manifest: manifest,
                container: container,
                stager: stager,
                selection: selection,
                job: job
            )
        }
        let runPlanner = RunPlanner(
            service: self,
            manifest: manifest,
            container: container,
            stager: stager,
            selection: selection,
            initial: planner
        )
        let packs = try await stageWithPermit(plan, as: job, planningWith: runPlanner) {
            if let rounds, let answer { return await rounds.stage($0, for: answer.choice) }
            return await stage($0, of: manifest, in: container, by: stager)
        }
        result.add(packs)
        if let rounds, let answer {
            await rounds.run(answer.choice, staged: packs, planner: &planner, result: &result)
        }
        return (planner, result)
    }

    /// Makes the plan of a dry run, which creates and changes no files.
    private func dryRun(
        of manifest: AcceptedManifest,
        by stager: Stager,
        at path: FilePath,
        under restrictions: Registration.Restrictions?
    ) async throws(StagingFailure) -> StagingResult {
        try checkContainer(path)
        var planner = try planner(for: manifest, in: nil, at: path, under: restrictions).0
        planner.assume(request.assumptions)
        let selection = selection(planner)
        let program = try extensionRun(for: selection, of: manifest, by: planner, in: nil)
        defer { program?.end() }
        let answer = try await ask(program, about: manifest.manifest)
        if let choice = try? answer?.get() { planner.choices = choice.packs }
        let made = try await plan(
            with: &planner,
            for: selection,
            of: manifest,
            by: stager,
            at: path
        )
        let plan = await estimated(made, of: manifest, with: planner, by: stager, at: path)
        var result = StagingResult(container: path, manifest: manifest, plan: plan)
        if case .failure(let failure) = answer { result.extensionProblem = failure }
        try addUpkeep(after: plan, by: planner, for: selection, at: path, to: &result)
        return result
    }

    /// True if the deadline of the request has passed.
    var isLate: Bool { request.deadline.map { $0 <= .now } ?? false }

    func selection(_ planner: Planner) -> PackSelection {
        switch request.packs {
        case .event(let request, let essentialOnly):
            .event(request ?? planner.request, essentialOnly: essentialOnly)
        case .named(let ids): .packs(ids)
        case .damaged(let ids): .repair(ids)
        }
    }

    /// Creates the planner for the current state, and returns it with the history.
    ///
    /// Without a container, as in a dry run, creates no files.
    func planner(
        for manifest: AcceptedManifest,
        in container: Container?,
        at path: FilePath,
        under restrictions: Registration.Restrictions?
    ) throws(StagingFailure) -> (Planner, HistoryRecord?) {
        do throws(StageError) {
            // First frees the space of downloads that no run resumes, since the planner compares packs with the free space.
            if let container {
                removeRemains(in: container, keepingOffered: true, after: manifest.manifest)
            }
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
            planner.offeredByOthers = try target.othersOffering(planner.stagedInstead, in: reader)
            planner.quota = target.quota(of: path)
            planner.applicationVersion = target.installedVersion
            planner.pending =
                history?.pending ?? unrecordedInstallation(after: history, by: planner)
            planner.budget = restrictions.map { restrictions in
                InitialBudget(
                    restrictions,
                    manifest: manifest,
                    planner: planner,
                    spent: history?.spent ?? .init()
                )
            }
            return (planner, record)
        } catch {
            throw StagingFailure(error)
        }
    }

    /// Returns the installation that a periodic run must complete although it is not in the history.
    ///
    /// The run that began the installation was killed, or the disk was full, before the history was written.
    private func unrecordedInstallation(
        after history: StagingHistory?,
        by planner: Planner
    ) -> Set<ContentRequest> {
        guard history == nil, !(request.isDryRun && request.assumptions.isInstalled),
            case .event(.periodic, _) = request.packs,
            planner.request == .install
        else { return [] }
        return [.install]
    }

    /// Frees space for the packs of a plan, and stages them; offline only those that need no transfer.
    func stage(
        _ plan: Plan,
        of manifest: AcceptedManifest,
        in container: Container,
        by stager: Stager
    ) async -> StagedPacks {
        var plan = request.isOffline ? plan.withoutTransfers : plan
        var staged = StagedPacks()
        // An interrupted run stages nothing, and its plan may lack the indexes that show what fits.
        if !plan.evictions.isEmpty, !Task.isCancelled {
            staged.evicted = await makeRoom(plan.evictions, in: container)
            if let available = await spaceAfterEvictions(in: container) {
                staged.outcomes = plan.refusePacks(beyond: available)
            }
        }
        guard !plan.packsToStage.isEmpty else { return staged }
        let progress = Mutex(StagingProgress(plan))
        let reporter = DaemonProgressReporter.current
        let queue = UpdateQueue(report)
        queue.add(.began(plan))
        let outcomes = await stager.stage(
            plan,
            of: manifest,
            in: container,
            isOffline: request.isOffline
        ) { id, event in
            progress.withLock { progress in
                progress.apply(event, to: id)
                queue.add(.pack(id, event))
            }
            reporter?.requestReport { progress.withLock { StagingBytes($0) } }
        }
        staged.outcomes.merge(outcomes) { _, outcome in outcome }
        queue.add(.ended)
        await queue.finish()
        staged.progress = progress.withLock { $0.packs }
        return staged
    }
}
