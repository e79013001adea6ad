import StageContainer
import StageControl
import StageEngine
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

extension StagingService {
    /// Stages the packs of a plan when the daemon permits it, or at once without a daemon.
    ///
    /// When this process has ended, the daemon carries out `job`. While network or power do not meet the
    /// conditions of the registration, a periodic run stages only essential packs, and leaves the others to
    /// the daemon, or to the next run where no daemon answers.
    func stageWithPermit(
        _ plan: Plan,
        as job: StagingJob,
        planningWith planner: RunPlanner,
        perform work: @escaping @Sendable (Plan) async -> StagedPacks
    ) async throws(StagingFailure) -> StagedPacks {
        let isEssential = plan.packsToStage.map { planner.initial.isEssential($0) }
        guard planner.selection.isPeriodic, request.waitsForConditions, isEssential.contains(false)
        else {
            return await stageWithPermit(
                for: job,
                staging: plan,
                planningWith: planner,
                perform: work
            )
        }
        var conditional = job
        // Sends conditions that are always met, too: they override those of the daemon's configuration.
        conditional.conditions = request.updateConditions
        let staged = await stageWithPermit(
            for: conditional,
            staging: plan,
            planningWith: planner,
            perform: work
        )
        guard !staged.waiting.isEmpty, isEssential.contains(true) else { return staged }
        return try await stageEssentialPacks(
            of: plan,
            after: staged,
            as: job,
            planningWith: planner,
            perform: work
        )
    }

    /// Stages the essential packs of a periodic run whose packs wait for network and power.
    ///
    /// - Parameters:
    ///   - plan: The first plan of the run.
    ///   - staged: The result so far.
    ///   - job: The job of the run.
    ///   - planner: Makes the plan of the essential packs.
    ///   - work: Stages the packs of a plan.
    /// - Returns: The result of the run.
    /// - Throws: ``StagingFailure`` if the container cannot be read.
    private func stageEssentialPacks(
        of plan: Plan,
        after staged: StagedPacks,
        as job: StagingJob,
        planningWith planner: RunPlanner,
        perform work: @escaping @Sendable (Plan) async -> StagedPacks
    ) async throws(StagingFailure) -> StagedPacks {
        var urgent = job
        urgent.isEssentialOnly = true
        var urgentPlanner = planner
        urgentPlanner.selection = .event(.periodic, essentialOnly: true)
        let urgentPlan = try await urgentPlanner.plan(after: staged)
        // An interrupted plan lacks indexes, and would refuse packs that fit.
        let isComplete = !Task.isCancelled
        let essential = await stageWithPermit(
            for: urgent,
            staging: urgentPlan,
            planningWith: urgentPlanner,
            perform: work
        )
        let decisions = (essential.plan ?? urgentPlan).entries.filter { entry in
            planner.initial.isEssential(entry.pack)
        }
        var both = staged
        both.add(essential, deciding: isComplete ? decisions : [], after: plan)
        return both
    }

    private func stageWithPermit(
        for job: StagingJob,
        staging plan: Plan,
        planningWith planner: RunPlanner,
        perform work: @escaping @Sendable (Plan) async -> StagedPacks
    ) async -> StagedPacks {
        let packs = plan.packsToStage.map(\.id)
        guard !packs.isEmpty else { return await work(plan) }
        let permit = permit(for: job, packs: packs)
        var (staged, outcome) = await permit.perform { earlier in
            // If the container cannot be read, staging the packs of the original plan reports the error. An interrupted plan lacks
            // indexes, and would refuse packs that fit.
            guard let earlier, let later = try? await planner.plan(after: earlier),
                !Task.isCancelled
            else { return await work(plan) }
            var attempt = await work(later)
            attempt.plan = later
            // Another process has staged these meanwhile.
            for id in later.packsUpToDate.intersection(packs) where attempt.outcomes[id] == nil {
                attempt.outcomes[id] = .alreadyStaged
            }
            return attempt
        }
        let missing = packs.filter { !staged.hasStaged($0) }
        switch outcome {
        case .finished(let task):
            staged.resumedTask = task
            if let task { report(.leftToDaemon(task: task)) }
        case .held(let reasons):
            for id in missing {
                staged.outcomes[id] = nil
                staged.waiting[id] = reasons
            }
        case .cancelled:
            for id in missing { staged.outcomes[id] = .failed(.cancelled) }
            report(.cancelled)
        }
        return staged
    }

    private func permit(for job: StagingJob, packs: [PackID]) -> StagingPermit {
        StagingPermit(
            job: job,
            packs: packs,
            environment: request.target.environment,
            usesDaemon: canUseDaemon,
            withdrawsWhenCancelled: request.withdrawsWhenCancelled,
            waitsWhilePaused: request.waitsWhilePaused,
            busAddress: request.busAddress,
            logger: logger
        ) { report(.held($0)) }
    }

    /// Returns the conditions that network and power do not meet now.
    func unmetConditions() async -> [PendingReason] {
        var job = StagingJob()
        job.conditions = request.updateConditions
        return await permit(for: job, packs: []).unmetConditions()
    }

    /// Creates the job that the daemon carries out when this process has ended.
    ///
    /// It names the event of `selection`: the worker would determine another one once some packs are staged.
    func job(
        for source: ManifestSource,
        in container: FilePath,
        about selection: PackSelection
    ) -> StagingJob {
        var job = StagingJob()
        job.container = request.target.container?.absolute.string
        job.applicationVersion = request.target.applicationVersion
        if let registration = request.target.registration {
            job.application = registration.application.text
        } else if let application = source.application, source.trust != nil {
            // The worker reads the same registration, and verifies with the same root.
            job.application = application.text
            job.container = container.absolute.string
        } else {
            job.manifests = source.urls
            job.container = container.absolute.string
        }
        switch selection {
        case .event(let request, let essentialOnly):
            job.event = request.rawValue
            job.isEssentialOnly = essentialOnly
        case .packs(let ids): job.packs = ids.map(\.text).sorted()
        case .repair(let ids):
            job.packs = ids.map(\.text).sorted()
            job.isRepair = true
        }
        job.environment = Self.variables(request.target.environment)
        return job
    }

    /// Returns the variables with the locations of the user's files; omits those of root, whose worker knows
    /// its locations.
    private static func variables(_ environment: [String: String]) -> [String: String]? {
        var variables = environment.filter { StagingJob.variables.contains($0.key) }
        if UserIdentity.current.user == 0 {
            for name in ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] { variables[name] = nil }
        }
        variables = variables.filter { !$0.value.isEmpty }
            .mapValues { FilePath($0).absolute.string }
        return variables.isEmpty ? nil : variables
    }

    /// True if a worker finds the same application and container by their names.
    private var isKnownToWorkers: Bool {
        let target = request.target
        // A job can name a root only by the application's registration.
        if target.root != nil { return false }
        // A job can contain only UTF-8 paths.
        if let path = target.knownContainer, FilePath(path.string) != path { return false }
        guard let registration = target.registration else { return true }
        let folders = RegistrationFolders(environment: target.environment)
        // A worker does not see a registration that this process created or changed in memory.
        let found = try? folders.registration(of: registration.application).value
        return found == registration
    }

    /// True if a worker of the daemon can resume the staging, since the request has no options that a job
    /// lacks.
    ///
    /// The worker reads the machine's settings, too, but has no proxies and no credentials of users.
    private var canUseDaemon: Bool {
        guard request.usesDaemon, !request.isDryRun, !request.isOffline, isKnownToWorkers,
            request.options.allowedDomains == nil,
            request.options.keptGenerations == StagerOptions.usualGenerations
        else { return false }
        let transfer = request.options.transfer
        let environment = request.target.environment
        let settings = request.settings
        let usual =
            environment["CURL_CA_BUNDLE"] ?? environment["SSL_CERT_FILE"]
            ?? settings.certificateAuthorities
        let hasUsualProxies =
            transfer.proxies == ProxySettings(settings)
            || transfer.proxies.http == nil && transfer.proxies.https == nil
                && settings.httpProxy == nil && settings.httpsProxy == nil
        return transfer.bearerTokens.isEmpty && transfer.netrc == nil && hasUsualProxies
            && transfer.bandwidth == settings.bandwidth
            && transfer.certificateAuthorities?.string == usual
    }
}
