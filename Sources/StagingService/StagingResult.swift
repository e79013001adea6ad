public import StageContainer
import StageControl
public import StageEngine
public import StageModel
public import SystemPackage

/// The decisions and outcomes of a run for the packs of one manifest.
public struct StagingResult: Sendable {
    /// The container.
    public var container: FilePath
    /// The application of the manifest.
    public var application: ApplicationID
    /// The revision of the manifest; `nil` for a manifest in a format of the application's own.
    public var revision: Int?
    /// The packs, in the order in which they are staged.
    public var packs: [PackResult]
    /// Removed packs that no manifest offers any more; `nil` if the run did not look for any.
    public var removed: [PackID]?
    /// The generations that were evicted to free space, or that a dry run would evict.
    public var evicted: [Eviction]
    /// Files that the application's extension requested; `nil` if no extension was asked.
    public var files: [FileResult]?
    /// The failure of the extension; policies decided instead.
    public var extensionProblem: StagingFailure?
    /// The failure to download the manifest; the stored manifest was used instead.
    public var manifestProblem: StagingFailure?
    /// The time at which the manifest's signed metadata was verified with the server, in seconds since 1970;
    /// `nil` if the manifest has no signed metadata.
    public var manifestVerifiedAt: Int64?
    /// The number of the daemon's transfer that continues the run, which was interrupted or failed; `nil` if none does.
    public var resumedTask: Int64?

    init(container: FilePath, manifest: AcceptedManifest, plan: Plan) {
        self.container = container
        application = manifest.manifest.application
        revision = manifest.revision
        // A run for packs by name does not report the others.
        packs = plan.entries.filter { $0.decision != .skip(.notSelected) }.map(PackResult.init)
        evicted = plan.evictions
    }

    /// The failure of the extension, and the failures of packs and files.
    public var failures: [StagingFailure] {
        [extensionProblem].compactMap(\.self) + packs.compactMap(\.failure)
            + (files ?? []).compactMap(\.failure)
    }

    /// True if the staged packs may differ from those at the start of the run.
    var hasChangedPacks: Bool {
        !evicted.isEmpty || removed?.isEmpty == false
            || packs.contains { pack in
                switch pack.outcome {
                case .left: false
                case .present: pack.reason == .stagedByOther
                default: true
                }
            }
    }

    /// The bytes received over the network for packs, also for those that were interrupted.
    public var transferred: ByteCount { packs.reduce(.zero) { $0 + ($1.transferred ?? .zero) } }

    /// Adds the outcome of each pack of the plan.
    mutating func add(_ staged: StagedPacks) {
        replaceEntries(of: Set(packs.map(\.id)), staging: staged)
        replacePlannedEvictions(with: staged.evicted)
        addOutcomes(of: staged)
    }

    /// Adds the outcome of each pack of a further plan of the run, which decides about packs by identifier.
    mutating func addRound(_ staged: StagedPacks, of ids: Set<PackID>) {
        replaceEntries(of: ids, staging: staged)
        add(staged.evicted)
        addOutcomes(of: staged)
    }

    private mutating func addOutcomes(of staged: StagedPacks) {
        resumedTask = staged.resumedTask ?? resumedTask
        for index in packs.indices {
            if let reasons = staged.waiting[packs[index].id] {
                packs[index].outcome = .waiting
                packs[index].reason = .held(reasons.map(\.kind.rawValue))
                packs[index].failure = nil
            }
            if let outcome = staged.outcomes[packs[index].id] { packs[index].add(outcome) }
        }
        add(staged.progress)
    }

    /// Replaces the entries of packs that no earlier attempt has staged by the decisions of the plan that was made after the daemon
    /// had held the run, if there is one.
    private mutating func replaceEntries(of ids: Set<PackID>, staging staged: StagedPacks) {
        guard let plan = staged.plan else { return }
        let attempted = Set(plan.packsToStage.map(\.id))
        replaceEntries(
            of: ids.filter { !staged.hasStaged($0) || attempted.contains($0) },
            by: plan
        )
    }

    /// Replaces the entries of packs by the decisions of a later plan.
    mutating func replaceEntries(of ids: Set<PackID>, by plan: Plan) {
        let indexes = indexes
        for entry in plan.entries where ids.contains(entry.pack.id) {
            guard let index = indexes[entry.pack.id] else { continue }
            packs[index] = PackResult(entry)
        }
    }

    /// The indices of the packs by identifier, since a run may have ten thousand packs.
    private var indexes: [PackID: Int] {
        Dictionary(uniqueKeysWithValues: packs.enumerated().map { ($1.id, $0) })
    }

    /// Adds the chosen ways to transfer, and the bytes that were received for interrupted packs.
    private mutating func add(_ progress: [PackProgress]) {
        guard !progress.isEmpty else { return }
        let indexes = indexes
        for pack in progress {
            guard let index = indexes[pack.id] else { continue }
            packs[index].transfer = pack.transferChoice ?? packs[index].transfer
            guard packs[index].isInterrupted else { continue }
            packs[index].source = pack.source
            packs[index].transferred = max(.zero, pack.received - pack.reused)
            packs[index].reused = pack.reused
            packs[index].lastFailure = pack.lastFailure
            packs[index].waitedForOther = pack.waitedForOther
        }
    }

    /// Turns interruptions into failures for the deadline, which has passed, and of packs that another process works on
    /// into failures that say so.
    mutating func nameDeadline() {
        if extensionProblem?.kind == .interrupted {
            extensionProblem = .deadline(about: .downloaderExtension)
        }
        for index in packs.indices where packs[index].isInterrupted {
            let pack = packs[index]
            guard !pack.waitedForOther else {
                packs[index].failure = StagingFailure(ContainerError.busy(pack.id))
                continue
            }
            let received = pack.source.map { _ in
                StagingFailure.Received(
                    // Bytes of earlier runs are not transferred again.
                    count: (pack.transferred ?? .zero) + (pack.reused ?? .zero),
                    size: pack.pack.downloadSize
                )
            }
            packs[index].failure = .deadline(
                about: .pack(pack.id),
                received: received,
                from: pack.source,
                lastFailure: pack.lastFailure
            )
        }
        guard let files else { return }
        for index in files.indices where files[index].failure?.kind == .interrupted {
            let subject = StagingFailure.Subject.file(files[index].identifier)
            self.files?[index].failure = .deadline(about: subject)
        }
    }

    /// Adds the outcomes of a run that may not use the network, and marks the other packs to stage as failed.
    mutating func addOffline(_ staged: StagedPacks) {
        addOutcomes(of: staged)
        for index in packs.indices where packs[index].outcome == .planned {
            packs[index].outcome = .failed
            let pack = packs[index].pack
            packs[index].failure = .offline(
                "pack '\(pack.id)': version \(pack.version) is not in the container"
            )
        }
    }

    /// Replaces the planned evictions by those that took place.
    private mutating func replacePlannedEvictions(with performed: [Eviction]) {
        evicted = []
        for index in packs.indices where packs[index].outcome == .evicted {
            packs[index].outcome = .present
            packs[index].reason = .inUse
        }
        add(performed)
    }

    /// Adds evictions that a dry run would carry out after staging the packs.
    mutating func addPlanned(_ evictions: [Eviction]) {
        add(evictions)
        let indexes = indexes
        for eviction in evictions where eviction.isOfPack {
            guard let index = indexes[eviction.generation.id] else { continue }
            packs[index].reason = Plan.Decision.evict(eviction).reason
        }
    }

    /// Adds evicted generations.
    mutating func add(_ gone: [Eviction]) {
        guard !gone.isEmpty else { return }
        evicted += gone
        let indexes = indexes
        for eviction in gone where eviction.isOfPack {
            guard let index = indexes[eviction.generation.id] else { continue }
            packs[index].outcome = .evicted
            packs[index].reason = eviction.stagingReason
        }
    }
}

/// The decision and the outcome for one pack.
public struct PackResult: Sendable {
    /// The pack as the manifest offers it.
    public let pack: Pack
    /// The outcome.
    public var outcome: PackOutcome
    /// The reason for the decision or the outcome.
    public var reason: StagingReason
    /// The bytes received over the network; `nil` if none were requested.
    public var transferred: ByteCount?
    /// The bytes that were available locally; `nil` if none were requested.
    public var reused: ByteCount?
    /// The URL that the archive came from.
    public var source: String?
    /// The ways to transfer the content of an indexed pack, for a pack that is or was to be staged; `nil` otherwise.
    ///
    /// As far as the manifest determines them, until a run or an estimate of a plan has chosen one.
    public internal(set) var transfer: TransferChoice?
    /// The bytes that the plan expects to be transferred for the pack; zero if the plan does not stage it.
    public let transferSize: ByteCount
    /// Set if ``transferSize`` is exact, and not an upper bound.
    public let isTransferSizeExact: Bool
    /// The maximum space that staging the pack takes on the file system, which the plan compared with the free space;
    /// zero if the plan does not stage it.
    public let space: ByteCount
    /// The inodes that staging the pack takes on the file system, which the plan compared with the free ones; zero if the
    /// plan does not stage it.
    ///
    /// A lower bound if neither the manifest nor an index that was read has the number of directories.
    public let inodes: Int
    /// Set if the container has the version to stage, from before a rollback.
    public let isKept: Bool
    /// The reason why staging the pack failed.
    public var failure: StagingFailure?
    /// The reason why the latest request of an interrupted transfer failed.
    var lastFailure: String?
    /// Set if an interrupted pack waited for another process or task that works on it.
    var waitedForOther = false

    /// The pack's identifier.
    public var id: PackID { pack.id }

    init(_ entry: Plan.Entry) {
        pack = entry.pack
        reason = entry.decision.reason
        transfer = entry.transfer
        transferSize = entry.transferSize
        isTransferSizeExact = entry.isTransferSizeExact
        space = entry.space
        inodes = entry.inodes
        isKept = entry.isKept
        switch entry.decision {
        case .stage: outcome = .planned
        case .skip(.upToDate), .skip(.newerElsewhere), .skip(.offeredByOther): outcome = .present
        case .skip: outcome = .left
        case .evict: outcome = .evicted
        case .refuse(let refusal):
            outcome = .failed
            failure = .refusal(refusal, of: .pack(pack.id))
        }
    }

    var isInterrupted: Bool { failure?.kind == .interrupted }

    fileprivate mutating func add(_ outcome: StagingOutcome) {
        switch outcome {
        case .staged(let figures):
            self.outcome = .staged
            failure = nil
            transferred = figures.transferred
            reused = figures.reused
            source = figures.source
        case .alreadyStaged:
            self.outcome = .present
            reason = .stagedByOther
            failure = nil
        case .failed(let error):
            self.outcome = .failed
            failure = .engine(error, about: .pack(id))
        }
    }
}

/// The outcome of a file that an extension requested.
public struct FileResult: Sendable {
    /// The identifier that the extension assigned.
    public var identifier: String
    /// The URL of the file.
    public var url: String
    /// The size of the file, as the extension declared it.
    public var size: ByteCount
    /// Set if the first launch waits for the file.
    public var isEssential: Bool
    /// The outcome.
    public var outcome = PackOutcome.failed
    /// The size, if the whole file was received, even if the extension did not accept it; `nil` otherwise.
    public var transferred: ByteCount?
    /// The reason why downloading the file or handing it to the extension failed.
    public var failure: StagingFailure?

    mutating func fail(_ failure: StagingFailure) {
        outcome = .failed
        self.failure = failure
    }
}

extension Plan.Decision {
    /// The reason for the decision, in the form that the history stores.
    var reason: StagingReason {
        switch self {
        case .stage(.missing): .missing
        case .stage(.outdated(let version)): .outdated(staged: version)
        case .stage(.contentChanged): .contentChanged
        case .stage(.repair): .damaged
        case .skip(.upToDate): .upToDate
        case .skip(.onDemand): .onDemand
        case .skip(.otherEvents(let events)):
            .otherEvents(events.sorted { $0.rawValue < $1.rawValue })
        case .skip(.notEssential): .notEssential
        case .skip(.notSelected): .notSelected
        case .skip(.declined): .declined
        case .skip(.pinned(let pin)), .refuse(.pinned(let pin)):
            .pinned(version: pin.version, rolledBackFrom: pin.rolledBackFrom)
        case .skip(.otherVersion(let required, let installed)),
            .refuse(.otherVersion(let required, let installed)):
            .otherVersion(required: required, installed: installed)
        case .skip(.newerElsewhere(let version)): .newerElsewhere(version: version)
        case .skip(.offeredByOther(let application, let version)):
            .offeredByOther(application: application.text, version: version)
        case .refuse(.noSpace), .refuse(.noInodes): .noSpace
        case .refuse(.exceedsQuota): .exceedsQuota
        case .refuse(.exceedsAllowance(let allowance, _, _)):
            .exceedsAllowance(name: allowance.rawValue)
        case .refuse(.disallowedDomain): .disallowedDomain
        case .evict(let eviction):
            .makesRoom(eviction.reason, lastUsed: eviction.generation.lastUsed)
        }
    }
}

extension Eviction {
    /// The reason for the eviction, in the form that the history stores.
    var stagingReason: StagingReason { .evicted(reason, lastUsed: generation.lastUsed) }
}
