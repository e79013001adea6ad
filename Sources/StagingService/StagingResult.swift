public import StageContainer
import StageControl
public import StageEngine
public import StageModel
public import SystemPackage

/// The decisions and outcomes of a run about the packs of one manifest.
public struct StagingResult: Sendable {
    /// The container.
    public var container: FilePath
    /// The application that the manifest is for.
    public var application: ApplicationID
    /// The revision of the manifest; `nil` of one in a format of the application's own.
    public var revision: Int?
    /// The packs, in the order in which they are staged.
    public var packs: [PackResult]
    /// Packs that no manifest offers any more and that were removed; `nil` where nothing looked for them.
    public var removed: [PackID]?
    /// The generations that went to make room, or would go: a dry run.
    public var evicted: [Eviction]
    /// Files that the application's extension asked for; `nil` where none was asked.
    public var files: [FileResult]?
    /// The failure of the extension; policies decided instead.
    public var extensionProblem: StagingFailure?
    /// The failure to have the server's manifest; the stored one was used instead.
    public var manifestProblem: StagingFailure?
    /// The time at which the manifest's signed metadata was verified with the server, in seconds since 1970;
    /// `nil` where it has none.
    public var manifestVerifiedAt: Int64?

    init(container: FilePath, manifest: AcceptedManifest, plan: Plan) {
        self.container = container
        application = manifest.manifest.application
        revision = manifest.revision
        // A run for packs by name is about no others.
        packs = plan.entries.filter { $0.decision != .leave(.notSelected) }.map(PackResult.init)
        evicted = plan.evictions
    }

    /// The failures of packs and files that should be here, and the extension's.
    public var failures: [StagingFailure] {
        [extensionProblem].compactMap(\.self) + packs.compactMap(\.failure)
            + (files ?? []).compactMap(\.failure)
    }

    /// Whether other packs may be staged now than the run found.
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

    /// The bytes that came over the wire for packs, those apart that were interrupted.
    public var transferred: ByteCount {
        packs.reduce(.zero) { $0 + ($1.isInterrupted ? .zero : $1.transferred ?? .zero) }
    }

    /// Adds how each pack of the plan ended.
    mutating func add(_ staged: StagedPacks) {
        settle(staged.evicted)
        addOutcomes(of: staged)
    }

    /// Adds how each pack of a further plan of the run ended.
    mutating func addRound(_ staged: StagedPacks) {
        add(staged.evicted)
        addOutcomes(of: staged)
    }

    private mutating func addOutcomes(of staged: StagedPacks) {
        for index in packs.indices {
            if let holds = staged.waiting[packs[index].id] {
                packs[index].outcome = .waiting
                packs[index].reason = .held(holds.map(\.kind.rawValue))
            }
            if let outcome = staged.outcomes[packs[index].id] { packs[index].add(outcome) }
        }
        add(staged.progress)
    }

    /// Replaces the entries of packs by the decisions of a later plan.
    mutating func replaceEntries(of ids: Set<PackID>, by plan: Plan) {
        let places = places
        for entry in plan.entries where ids.contains(entry.pack.id) {
            guard let index = places[entry.pack.id] else { continue }
            packs[index] = PackResult(entry)
        }
    }

    /// The positions of the packs by their identifiers: a run may have ten thousand of them.
    private var places: [PackID: Int] {
        Dictionary(uniqueKeysWithValues: packs.enumerated().map { ($1.id, $0) })
    }

    /// Adds what was being received for packs that were interrupted.
    private mutating func add(_ progress: [PackProgress]) {
        guard packs.contains(where: \.isInterrupted) else { return }
        let places = places
        for pack in progress {
            guard let index = places[pack.id], packs[index].isInterrupted else { continue }
            packs[index].source = pack.source
            packs[index].transferred = max(.zero, pack.received - pack.reused)
        }
    }

    /// Has what was interrupted fail for the deadline, which had passed.
    mutating func nameDeadline() {
        if extensionProblem?.kind == .interrupted {
            extensionProblem = .deadline(about: .downloaderExtension, received: nil, from: nil)
        }
        for index in packs.indices where packs[index].isInterrupted {
            let pack = packs[index]
            let received = pack.source.map { _ in
                StagingFailure.Received(
                    count: pack.transferred ?? .zero,
                    size: pack.pack.downloadSize
                )
            }
            packs[index].failure =
                .deadline(about: .pack(pack.id), received: received, from: pack.source)
        }
        guard let files else { return }
        for index in files.indices where files[index].failure?.kind == .interrupted {
            let subject = StagingFailure.Subject.file(files[index].identifier)
            self.files?[index].failure = .deadline(about: subject, received: nil, from: nil)
        }
    }

    /// Marks the packs that would be staged as failed: without the network there is nothing to try.
    mutating func refuseOffline() {
        for index in packs.indices where packs[index].outcome == .planned {
            packs[index].outcome = .failed
            packs[index].failure = .offline("pack '\(packs[index].id)': it is not here")
        }
    }

    /// Says what is gone in the place of what was to go.
    private mutating func settle(_ gone: [Eviction]) {
        evicted = []
        for index in packs.indices where packs[index].outcome == .evicted {
            packs[index].outcome = .present
            packs[index].reason = .inUse
        }
        add(gone)
    }

    /// Adds what goes after the packs of a plan are staged: a dry run.
    mutating func addPlanned(_ evictions: [Eviction]) {
        add(evictions)
        let places = places
        for eviction in evictions where eviction.isOfPack {
            guard let index = places[eviction.generation.id] else { continue }
            packs[index].reason = Plan.Decision.evict(eviction).reason
        }
    }

    /// Adds what is gone.
    mutating func add(_ gone: [Eviction]) {
        guard !gone.isEmpty else { return }
        evicted += gone
        let places = places
        for eviction in gone where eviction.isOfPack {
            guard let index = places[eviction.generation.id] else { continue }
            packs[index].outcome = .evicted
            packs[index].reason = eviction.stagingReason
        }
    }
}

/// The decision and the outcome of a run about one pack.
public struct PackResult: Sendable {
    /// The pack as the manifest offers it.
    public let pack: Pack
    /// The end of what was done.
    public var outcome: PackOutcome
    /// The reason for the decision or the outcome.
    public var reason: StagingReason
    /// The bytes that came over the wire; `nil` where none were asked for.
    public var transferred: ByteCount?
    /// The bytes that were here already; `nil` where none were asked for.
    public var reused: ByteCount?
    /// The URL that the archive came from.
    public var source: String?
    /// The ways in which the content of an indexed pack that is staged comes here, as far as the manifest
    /// tells; `nil` otherwise.
    public let transfer: TransferChoice?
    /// The bytes that staging the pack transfers, as the plan expects; zero where it is not staged.
    public let transferSize: ByteCount
    /// Whether ``transferSize`` is what is transferred, and not the most that it can be.
    public let isTransferSizeExact: Bool
    /// The reason why it could not be staged.
    public var failure: StagingFailure?

    /// The pack's identifier.
    public var id: PackID { pack.id }

    init(_ entry: Plan.Entry) {
        pack = entry.pack
        reason = entry.decision.reason
        transfer = entry.transfer
        transferSize = entry.transferSize
        isTransferSizeExact = entry.isTransferSizeExact
        switch entry.decision {
        case .stage: outcome = .planned
        case .leave(.upToDate), .leave(.newerElsewhere): outcome = .present
        case .leave: outcome = .left
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
        case .failed(let error):
            self.outcome = .failed
            failure = .engine(error, about: .pack(id))
        }
    }
}

/// The outcome of a file that an extension asked for.
public struct FileResult: Sendable {
    /// The identifier that the extension gave it.
    public var identifier: String
    /// Its URL.
    public var url: String
    /// Its size, as the extension declared it.
    public var size: ByteCount
    /// Whether the first launch waits for it.
    public var isEssential: Bool
    /// The end of what was done.
    public var outcome = PackOutcome.failed
    /// The size, if all of it was received, whether or not the extension took it; `nil` otherwise.
    public var transferred: ByteCount?
    /// The reason why it could not be had.
    public var failure: StagingFailure?

    mutating func fail(_ failure: StagingFailure) {
        outcome = .failed
        self.failure = failure
    }
}

extension Plan.Decision {
    /// The reason for the decision, as it is remembered.
    var reason: StagingReason {
        switch self {
        case .stage(.missing): .missing
        case .stage(.outdated(let version)): .outdated(staged: version)
        case .stage(.contentChanged): .contentChanged
        case .stage(.repair): .damaged
        case .leave(.upToDate): .upToDate
        case .leave(.onDemand): .onDemand
        case .leave(.otherEvents(let events)):
            .otherEvents(events.sorted { $0.rawValue < $1.rawValue })
        case .leave(.notEssential): .notEssential
        case .leave(.notSelected): .notSelected
        case .leave(.declined): .declined
        case .leave(.pinned(let pin)), .refuse(.pinned(let pin)):
            .pinned(version: pin.version, rolledBackFrom: pin.rolledBackFrom)
        case .leave(.otherVersion(let required, let installed)),
            .refuse(.otherVersion(let required, let installed)):
            .otherVersion(required: required, installed: installed)
        case .leave(.newerElsewhere(let version)): .newerElsewhere(version: version)
        case .refuse(.noSpace): .noSpace
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
    /// The reason for what is gone, as it is remembered.
    var stagingReason: StagingReason { .evicted(reason, lastUsed: generation.lastUsed) }
}
