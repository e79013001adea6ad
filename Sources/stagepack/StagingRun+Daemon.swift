import StageContainer
import StageControl
import StageEngine
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

extension StagingRun {
    /// The role of a process that stages packs.
    enum Role: Sendable {
        /// A person, a hook or a timer has started it, and the daemon goes on with it.
        case command
        /// It simulates, and the daemon is not told.
        case trial
        /// The daemon has started it, and is told of the progress.
        case worker(@Sendable (StagingProgress) -> Void)

        /// The observer of the progress, in a worker.
        var observer: (@Sendable (StagingProgress) -> Void)? {
            if case .worker(let observer) = self { observer } else { nil }
        }
    }

    /// Stages the packs of a plan, in this process's turn where a daemon gives turns.
    ///
    /// When this process has gone, the daemon has `order` carried out. A periodic run leaves all but
    /// essential packs to it while network or power are unsuitable.
    func stageInTurn(
        _ plan: Plan,
        _ order: StagingOrder,
        _ selection: PackSelection,
        _ planner: inout Planner,
        _ container: Container,
        _ work: @escaping @Sendable (Plan) async -> StagedPacks
    ) async throws(CommandFailure) -> StagedPacks {
        let packs = plan.packsToStage
        guard !packs.isEmpty, case .command = role, try isPlain else { return await work(plan) }
        let isEssential = packs.map { planner.isEssential($0) }
        guard selection.isPeriodic, isEssential.contains(false) else {
            return await take(order, plan, work)
        }
        var patient = order
        patient.isDiscretionary = true
        let staged = await take(patient, plan, work)
        guard !staged.waiting.isEmpty, isEssential.contains(true) else { return staged }
        var urgent = order
        urgent.isEssentialOnly = true
        let essential: Plan
        do throws(StageError) {
            essential = try planner.plan(
                for: .event(.periodic, essentialOnly: true),
                in: container.reader
            )
        } catch {
            throw CommandFailure(error)
        }
        var both = staged
        both.add(await take(urgent, essential, work))
        both.waiting = staged.waiting.filter { both.outcomes[$0.key] == nil }
        return both
    }

    private func take(
        _ order: StagingOrder,
        _ plan: Plan,
        _ work: @escaping @Sendable (Plan) async -> StagedPacks
    ) async -> StagedPacks {
        let packs = plan.packsToStage.map(\.id)
        let turn = DaemonTurn(order: order, packs: packs) { reason in
            if !output.quiet, output.progress != .none { Console.note("waiting: \(reason)") }
        }
        var (staged, outcome) = await turn.take { await work(plan) }
        let missing = packs.filter { !staged.hasStaged($0) }
        switch outcome {
        case .done(let task):
            if let task, !output.quiet, !output.json {
                Console.note("the daemon goes on with it; 'stagepack cancel \(task)' ends it")
            }
        case .held(let holds):
            for id in missing {
                staged.outcomes[id] = nil
                staged.waiting[id] = holds
            }
        case .cancelled:
            for id in missing { staged.outcomes[id] = .failed(.cancelled) }
            if !output.json { Console.note("it was cancelled with 'stagepack cancel'") }
        }
        return staged
    }

    /// The order that the daemon carries out after the end of this process.
    func order(_ source: ManifestSource, _ container: FilePath) -> StagingOrder {
        var order = StagingOrder()
        order.container = session.source.container?.string
        order.applicationVersion = session.source.applicationVersion
        if let registration = session.registration {
            order.application = registration.application.text
        } else {
            order.manifests = source.urls
            order.container = container.string
        }
        switch wanted {
        case .event(let request, let essentialOnly):
            order.event = request?.rawValue
            order.isEssentialOnly = essentialOnly
        case .packs(let ids): order.packs = ids.map(\.text).sorted()
        case .repair(let ids):
            order.packs = ids.map(\.text).sorted()
            order.isRepair = true
        }
        order.environment = Self.places(session.environment)
        return order
    }

    /// The variables that tell a worker where the user's files are; none of root's, whose worker knows.
    private static func places(_ environment: [String: String]) -> [String: String]? {
        var places = environment.filter { StagingOrder.variables.contains($0.key) }
        if UserIdentity.current.user == 0 {
            for name in ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] { places[name] = nil }
        }
        places = places.filter { !$0.value.isEmpty }.mapValues { FilePath($0).absolute.string }
        return places.isEmpty ? nil : places
    }

    /// Whether nothing is asked for that a daemon's worker is not told.
    ///
    /// It has proxies of its own, and no user's credentials.
    private var isPlain: Bool {
        get throws(CommandFailure) {
            guard !isDryRun, !session.isOffline else { return false }
            let transfer = try session.stagerOptions().transfer
            let environment = session.environment
            let usual = environment["CURL_CA_BUNDLE"] ?? environment["SSL_CERT_FILE"]
            return transfer.bearerTokens.isEmpty && transfer.netrc == nil
                && transfer.bandwidth == nil && transfer.certificateAuthorities?.string == usual
                && transfer.proxies.http == nil && transfer.proxies.https == nil
        }
    }
}
