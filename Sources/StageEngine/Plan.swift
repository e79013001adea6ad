package import StageContainer
public import StageModel

/// Decisions about each pack of a manifest, with reasons: a pure value that can be shown before it is carried out.
public struct Plan: Equatable, Sendable {
    /// The packs, in the order of staging; packs that are left alone come last.
    public var entries: [Entry]
    /// The generations to evict first, to free space for the packs to stage.
    public var evictions: [Eviction]

    /// Creates a plan of `entries`.
    package init(entries: [Entry], evictions: [Eviction] = []) {
        self.entries = entries
        self.evictions = evictions
    }

    /// The decision about one pack.
    public struct Entry: Equatable, Sendable {
        /// The pack in the manifest.
        public var pack: Pack
        /// The decision.
        public var decision: Decision
        /// The ways to transfer an indexed pack that is to be staged; `nil` otherwise.
        public var transfer: TransferChoice?
        /// The ways that ``transfer`` was chosen from, by the manifest; `nil` likewise.
        package var candidates: TransferCandidates?
        /// The bytes to transfer for a pack that is to be staged, with the index of an indexed pack; zero for other packs.
        public var transferSize = ByteCount.zero
        /// `true` if ``transferSize`` is exact, `false` if it is an upper bound.
        public var isTransferSizeExact = true
        /// The maximum space that staging the pack takes on the file system, which was compared with the free space; zero
        /// for packs that are not to be staged or are kept.
        public var space = ByteCount.zero
        /// The inodes that it takes, likewise.
        package var inodes = 0
        /// `true` if the pack comes from a generation that the container keeps, without a transfer.
        public var isKept = false
        /// `true` if the archive of an indexed pack may replace its objects where these are missing or damaged on the
        /// servers: the allowances before the first launch leave its bytes, too.
        public var mayReplaceObjects = true
    }

    /// A decision about a pack.
    @nonexhaustive
    public enum Decision: Equatable, Sendable {
        /// Download and publish the pack.
        case stage(Reason)
        /// Do nothing.
        case skip(SkipReason)
        /// The pack should be staged, but cannot be.
        case refuse(Refusal)
        /// Evict the staged pack to free space for others.
        case evict(Eviction)
    }

    /// Reasons to stage a pack.
    @nonexhaustive
    public enum Reason: Equatable, Sendable {
        /// The pack is not staged.
        case missing
        /// Another version is staged.
        case outdated(staged: Int)
        /// The staged content has the same version and another digest.
        case contentChanged
        /// A repair was requested for the staged pack.
        case repair
    }

    /// Reasons to skip a pack.
    @nonexhaustive
    public enum SkipReason: Equatable, Sendable {
        /// The pack is staged in this version.
        case upToDate
        /// The policy of the pack is to download it when the application requests it.
        case onDemand
        /// The policy of the pack names other events.
        case otherEvents(Set<InstallationEvent>)
        /// Only essential packs were requested.
        case notEssential
        /// Other packs were requested by name.
        case notSelected
        /// The application's downloader extension did not select the pack.
        case declined
        /// The pack is pinned to the staged version.
        case pinned(Planner.PinnedVersion)
        /// The pack requires other versions of the application than the installed one.
        case otherVersion(required: String, installed: String)
        /// Another container has a newer version, which readers use.
        case newerElsewhere(version: Int)
        /// Another application of the group offers the staged version, which is not older.
        case offeredByOther(ApplicationID, version: Int)
    }

    /// Reasons why a pack that should be staged cannot be.
    @nonexhaustive
    public enum Refusal: Equatable, Sendable {
        /// The pack needs, after the packs before it, more space than is free on the container's file system.
        case noSpace(needed: ByteCount, available: ByteCount)
        /// The pack needs, after the packs before it, more inodes than are free on the container's file system.
        case noInodes(needed: Int, available: Int)
        /// The pack does not fit, after the packs before it, into the quota of the container.
        case exceedsQuota(needed: ByteCount, remaining: ByteCount)
        /// The pack exceeds an allowance for the time before the first launch.
        case exceedsAllowance(Allowance, needed: ByteCount, remaining: ByteCount)
        /// None of the pack's hosts is in the allowed domains for the time before the first launch.
        case disallowedDomain([String])
        /// The pack was requested by name, and is pinned to another version.
        case pinned(Planner.PinnedVersion)
        /// The pack was requested by name, and requires other versions of the application.
        case otherVersion(required: String, installed: String)
    }

    /// The packs to stage, in order.
    public var packsToStage: [Pack] {
        entries.compactMap { entry in
            if case .stage = entry.decision { entry.pack } else { nil }
        }
    }
}

/// Selection of the packs to plan for.
@nonexhaustive
public enum PackSelection: Equatable, Sendable {
    /// The packs whose policy names an event, and staged packs with an update.
    case event(ContentRequest, essentialOnly: Bool)
    /// Packs by ID, regardless of their policy.
    case packs(Set<PackID>)
    /// Packs by ID, staged again even if they are staged, since their content is damaged.
    case repair(Set<PackID>)
}

/// The inputs of a plan, and the decisions that follow from them.
public struct Planner: Sendable {
    /// The manifest of the publisher.
    public var manifest: Manifest
    /// The packs that are staged in the container.
    public var staged: [PackID: StagedVersion]
    /// The staged packs whose files are missing; these are staged again, whatever their policy.
    package var incomplete: Set<PackID> = []
    /// The generations that are not current and have the offered content of staged packs; staging these transfers nothing.
    package var kept: [PackID: GenerationName] = [:]
    /// True if a reader has used the current generation of a pack since it was staged.
    package var hasReadPack = false
    /// The copies in another container that readers may use, by pack.
    package var elsewhere: [PackID: CopyElsewhere] = [:]
    /// The other applications of the group that offer versions of ``stagedInstead``, by pack.
    package var offeredByOthers: [PackID: ApplicationID] = [:]
    /// The pins of staged packs.
    public var pinned: [PackID: PinnedVersion] = [:]
    /// The bytes of archives that have been downloaded, complete or partial, by content digest.
    public var downloaded: [Digest: ByteCount]
    /// The content of unfinished indexed packs in the offered versions, which staging them continues.
    package var unfinished: [PackID: UnfinishedContent] = [:]
    /// The space and inodes that indexed packs take by their indexes, where these were read before the plan is made.
    package var spaceByIndex: [PackID: SpaceByIndex] = [:]
    /// The free space of the file system; `nil` if unknown.
    public var freeSpace: ByteCount?
    /// The free inodes of the file system; `nil` if they are unknown or have no limit.
    package var freeInodes: Int?
    /// The maximum size of the container; `nil` for no limit.
    public var quota: ByteCount?
    /// The generations that may be evicted; `nil` if none may.
    public var evictionPolicy: EvictionPolicy?
    /// The installed version of the application; `nil` if unknown.
    public var applicationVersion: String?
    /// The budget before the first launch; `nil` for no limit.
    public var budget: InitialBudget?
    /// The installation and the update that a periodic request completes; empty if neither is incomplete.
    public var pending: Set<ContentRequest> = []
    /// The packs that a downloader extension selected, and whether it declared them essential; `nil` if the
    /// policies decide.
    public var choices: [PackID: Bool]?
    /// Packs that must not be evicted, in addition to those that are requested.
    public var spared: Set<PackID> = []

    /// The properties of a staged generation that a plan depends on.
    public struct StagedVersion: Equatable, Sendable {
        /// The publisher's version.
        public var version: Int
        /// The content digest of the pack.
        public var contentDigest: Digest

        /// Creates the value from its parts.
        public init(version: Int, contentDigest: Digest) {
            self.version = version
            self.contentDigest = contentDigest
        }
    }

    /// The version that a pack is pinned to.
    public struct PinnedVersion: Equatable, Sendable {
        /// The pinned version.
        public var version: Int
        /// The version that a rollback replaced; `nil` if the pin was requested.
        public var rolledBackFrom: Int?

        /// Creates the value from its parts.
        public init(version: Int, rolledBackFrom: Int? = nil) {
            self.version = version
            self.rolledBackFrom = rolledBackFrom
        }
    }

    /// Creates a planner for a manifest and the state of a container.
    public init(
        manifest: Manifest,
        staged: [PackID: StagedVersion] = [:],
        downloaded: [Digest: ByteCount] = [:],
        freeSpace: ByteCount? = nil
    ) {
        self.manifest = manifest
        self.staged = staged
        self.downloaded = downloaded
        self.freeSpace = freeSpace
    }

    /// The request that the state of the container requires.
    ///
    /// It is an installation until every pack that is essential to the first installation is staged, and then
    /// an update.
    public var request: ContentRequest {
        if let next = pending.next { return next }
        let isMissing = manifest.packs.contains { pack in
            guard case .essential(let events) = pack.policy else { return false }
            return events.contains(.firstInstallation) && staged[pack.id] == nil
                && elsewhere[pack.id] == nil
                && pack.isFor(applicationVersion: applicationVersion)
        }
        return isMissing || staged.isEmpty && elsewhere.isEmpty ? .install : .update
    }

    /// Decides about each pack.
    ///
    /// Essential packs come first, then those of the policy `prefetch`, then the others; within each group
    /// packs are ordered by priority, then as in the manifest. A pack that exceeds the remaining space or an
    /// allowance does not prevent later, smaller packs from being staged.
    public func plan(for selection: PackSelection) -> Plan {
        let order = manifest.packs.enumerated().sorted { left, right in
            // The higher priority comes first. The sides are swapped, since negating `Int.min` overflows.
            let a = (rank(of: left.element), right.element.priority, left.offset)
            let b = (rank(of: right.element), left.element.priority, right.offset)
            return a < b
        }
        var entries: [Plan.Entry] = []
        var left: [Plan.Entry] = []
        var budget = budget
        // Requests by name come from an application that runs, so the budget does not apply.
        if case .event = selection {} else { budget = nil }
        var space = DiskSpaceBudget(self, for: selection)
        var archives: Set<Digest> = []
        for (_, pack) in order {
            var entry = Plan.Entry(pack: pack, decision: decision(on: pack, selection))
            guard case .stage(let reason) = entry.decision else {
                left.append(entry)
                continue
            }
            // A kept generation takes no further space, and no bytes of an allowance.
            if reason != .repair, kept[pack.id] != nil {
                entry.isKept = true
                entries.append(entry)
                continue
            }
            if let refusal = budget?.refusal(of: pack, isEssential: isEssential(pack)) {
                entry.decision = .refuse(refusal)
            } else if let refusal = space.take(pack) {
                entry.decision = .refuse(refusal)
            } else {
                budget?.spend(pack, isEssential: isEssential(pack))
                entry.space = self.space(for: pack)
                entry.inodes = inodes(for: pack)
                // Downloaded bytes of an archive count for the first of the packs that share it.
                let isFirst = archives.insert(pack.contentDigest).inserted
                entry.candidates = transferCandidates(for: pack)
                entry.transfer = entry.candidates?.choiceByManifest
                entry.isTransferSizeExact = entry.transfer == nil
                entry.transferSize = transferSize(of: entry, isFirst: isFirst)
            }
            entries.append(entry)
        }
        if let budget { reserveArchives(of: &entries, in: budget) }
        let gone = Dictionary(
            space.evictions.lazy.filter(\.isOfPack).map { ($0.generation.id, $0) },
            uniquingKeysWith: { first, _ in first }
        )
        for index in left.indices {
            if let eviction = gone[left[index].pack.id] { left[index].decision = .evict(eviction) }
        }
        return Plan(entries: entries + left, evictions: space.evictions)
    }

    /// Returns the packs that the selection requests, staged or not; they are not evicted for each other.
    public func packsAskedFor(_ selection: PackSelection) -> Set<PackID> {
        switch selection {
        case .packs(let ids), .repair(let ids): ids.union(spared)
        case .event(let request, _):
            Set(
                manifest.packs.filter { pack in
                    if case .stage = decision(on: pack, selection) { return true }
                    if let choices { return choices[pack.id] != nil }
                    switch pack.policy {
                    case .essential(let events), .prefetch(let events):
                        return isNamed(request, by: events)
                    case .onDemand: return false
                    }
                }
                .map(\.id)
            ).union(spared)
        }
    }

    /// Returns whether the first launch waits for the pack.
    public func isEssential(_ pack: Pack) -> Bool {
        if let choice = choices?[pack.id] { return choice }
        if case .essential = pack.policy { return true }
        return false
    }

    /// Returns the group of the pack in the order of staging.
    private func rank(of pack: Pack) -> Int {
        if isEssential(pack) { return 0 }
        if pack.policy == .onDemand, choices?[pack.id] == nil { return 2 }
        return 1
    }

    private func decision(on pack: Pack, _ selection: PackSelection) -> Plan.Decision {
        if let decision = decisionOfOthers(on: pack, selection) { return decision }
        let state = state(of: pack)
        switch selection {
        case .packs(let ids):
            guard ids.contains(pack.id) else { return .skip(.notSelected) }
            if state != nil, let refusal = refusal(of: pack) { return .refuse(refusal) }
        case .repair(let ids):
            guard ids.contains(pack.id) else { return .skip(.notSelected) }
            if state != nil, let refusal = refusal(of: pack) { return .refuse(refusal) }
            return .stage(state ?? .repair)
        case .event(let request, let essentialOnly):
            switch state == nil ? nil : refusal(of: pack) {
            case .pinned(let pin):
                // The files of the pack are missing, and the pin forbids the offered version.
                let isNeeded =
                    incomplete.contains(pack.id)
                    && skipReason(for: pack, request, essentialOnly: essentialOnly) == nil
                return isNeeded ? .refuse(.pinned(pin)) : .skip(.pinned(pin))
            case .otherVersion(let required, let installed):
                return .skip(.otherVersion(required: required, installed: installed))
            default: break
            }
            if let skipReason = skipReason(for: pack, request, essentialOnly: essentialOnly) {
                let isThere = skipReason == .declined && state == nil
                return .skip(isThere ? .upToDate : skipReason)
            }
        }
        return state.map(Plan.Decision.stage) ?? .skip(.upToDate)
    }

    /// Returns the reason not to replace the staged version by the offered one, or `nil` if there is none.
    private func refusal(of pack: Pack) -> Plan.Refusal? {
        if let pin = pinned[pack.id] { return .pinned(pin) }
        guard let installed = applicationVersion, let required = pack.applicationVersion,
            !required.isMet(by: installed)
        else { return nil }
        return .otherVersion(required: required.text, installed: installed)
    }

    /// Returns the reason to stage the pack, or `nil` if it is up to date.
    private func state(of pack: Pack) -> Plan.Reason? {
        if let copy = copyElsewhere(of: pack) { return reason(toStage: pack, beside: copy) }
        guard let present = staged[pack.id], !incomplete.contains(pack.id) else { return .missing }
        if present.version != pack.version { return .outdated(staged: present.version) }
        return present.contentDigest == pack.contentDigest ? nil : .contentChanged
    }

    /// Returns the reason why the event does not require the pack, or `nil` if it does.
    private func skipReason(
        for pack: Pack,
        _ request: ContentRequest,
        essentialOnly: Bool
    ) -> Plan.SkipReason? {
        if let choices {
            guard let isEssential = choices[pack.id] else { return .declined }
            return essentialOnly && !isEssential ? .notEssential : nil
        }
        let isStaged = staged[pack.id] != nil
        switch pack.policy {
        case .essential(let events):
            return isStaged || isNamed(request, by: events) ? nil : .otherEvents(events)
        case .prefetch(let events):
            if essentialOnly { return .notEssential }
            return isStaged || isNamed(request, by: events) ? nil : .otherEvents(events)
        case .onDemand:
            if essentialOnly { return isStaged ? .notEssential : .onDemand }
            return isStaged ? nil : .onDemand
        }
    }
}
