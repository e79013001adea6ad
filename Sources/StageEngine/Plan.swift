import StageContainer
public import StageModel

/// What is to be done with each pack of a manifest, and why: a pure value that can be shown before
/// anything is done.
public struct Plan: Equatable, Sendable {
    /// The packs, in the order in which they are staged; those that are left alone come last.
    public var entries: [Entry]
    /// What goes first, to make room for the packs that are staged.
    public var evictions: [Eviction]

    package init(entries: [Entry], evictions: [Eviction] = []) {
        self.entries = entries
        self.evictions = evictions
    }

    /// One pack and what is done with it.
    public struct Entry: Equatable, Sendable {
        /// The pack as the manifest offers it.
        public var pack: Pack
        /// What is done.
        public var decision: Decision
        /// The ways in which the content of an indexed pack that is staged comes here; `nil` otherwise.
        public var transfer: TransferChoice?
        /// The bytes that staging the pack transfers, the index of an indexed pack included; zero for other packs.
        public var transferSize = ByteCount.zero
        /// Whether ``transferSize`` is what is transferred, and not the most that it can be.
        public var isTransferSizeExact = true
    }

    /// What is done with a pack.
    public enum Decision: Equatable, Sendable {
        /// It is fetched and published.
        case stage(Reason)
        /// Nothing is done.
        case leave(Excuse)
        /// It ought to be staged and cannot be.
        case refuse(Refusal)
        /// It is staged, and goes to make room for others.
        case evict(Eviction)
    }

    /// Why a pack is staged.
    public enum Reason: Equatable, Sendable {
        /// It is not staged.
        case missing
        /// Another version is staged.
        case outdated(staged: Int)
        /// Other content is staged under the same version.
        case contentChanged
        /// It was asked for although it is staged.
        case repair
    }

    /// Why a pack is left alone.
    public enum Excuse: Equatable, Sendable {
        /// It is staged already.
        case upToDate
        /// Its policy is to be fetched when the application asks for it.
        case onDemand
        /// Its policy names other events.
        case otherEvents(Set<InstallationEvent>)
        /// Only essential packs were asked for.
        case notEssential
        /// Other packs were asked for by name.
        case notSelected
        /// The application's downloader extension did not ask for it.
        case declined
        /// It is held at the version that is staged.
        case pinned(Planner.PinnedVersion)
        /// It is for other versions of the application than the one that is installed.
        case otherVersion(required: String, installed: String)
        /// Another container has a newer version, which readers get.
        case newerElsewhere(version: Int)
    }

    /// Why a pack that ought to be staged cannot be.
    public enum Refusal: Equatable, Sendable {
        /// It does not fit, with the packs before it, on the file system of the container.
        case noSpace(needed: ByteCount, available: ByteCount)
        /// It does not fit, with the packs before it, into what the container may hold.
        case exceedsQuota(needed: ByteCount, remaining: ByteCount)
        /// It exceeds what may be spent before the application has loaded a pack.
        case exceedsAllowance(Allowance, needed: ByteCount, remaining: ByteCount)
        /// None of its hosts is one that content may come from before that.
        case disallowedDomain([String])
        /// It was asked for by name, and is held at another version.
        case pinned(Planner.PinnedVersion)
        /// It was asked for by name, and is for other versions of the application.
        case otherVersion(required: String, installed: String)
    }

    /// The packs that are staged, in order.
    public var packsToStage: [Pack] {
        entries.compactMap { entry in
            if case .stage = entry.decision { entry.pack } else { nil }
        }
    }

    /// The bytes of the archives of the packs that are staged.
    public var downloadSize: ByteCount {
        packsToStage.reduce(.zero) { $0 + $1.downloadSize }
    }

    /// The bytes of the files of the packs that are staged.
    public var installedSize: ByteCount {
        packsToStage.reduce(.zero) { $0 + $1.installedSize }
    }
}

/// Which packs somebody wants.
public enum PackSelection: Equatable, Sendable {
    /// Those that the policies of the manifest name for an event; staged packs of which there is
    /// another version count as named.
    case event(ContentRequest, essentialOnly: Bool)
    /// These, whatever their policy.
    case packs(Set<PackID>)
    /// These, even where they are staged already: what is there is damaged.
    case repair(Set<PackID>)
}

/// Everything that a plan depends on.
public struct Planner: Sendable {
    /// What the publisher offers.
    public var manifest: Manifest
    /// What the container holds.
    public var staged: [PackID: StagedVersion]
    /// The copies that readers may get from another container, by pack.
    package var elsewhere: [PackID: CopyElsewhere] = [:]
    /// The staged packs that are held as they are.
    public var pinned: [PackID: PinnedVersion] = [:]
    /// Bytes of archives that are in part files already.
    public var downloaded: [Digest: ByteCount]
    /// What the file system may still be filled with; `nil` stands for "not known".
    public var freeSpace: ByteCount?
    /// What the container may hold; `nil` for whatever the file system has room for.
    public var quota: ByteCount?
    /// What may go from the container to make room; `nil` where nothing may.
    public var retention: Retention?
    /// The version of the application that is installed; `nil` where it is not known.
    public var applicationVersion: String?
    /// What may be spent; `nil` for whatever it takes.
    public var budget: InitialBudget?
    /// The installation or update that a periodic request completes; `nil` for none.
    public var pending: ContentRequest?
    /// The packs that a downloader extension asked for, and whether it called them essential; `nil`
    /// where policies decide.
    public var choices: [PackID: Bool]?
    /// Packs that do not go to make room, beside those that are asked for.
    public var spared: Set<PackID> = []

    /// The staged generation of a pack, as far as a plan depends on it.
    public struct StagedVersion: Equatable, Sendable {
        /// The publisher's version.
        public var version: Int
        /// The digest of the archive it came from.
        public var contentDigest: Digest

        /// Creates the value from its parts.
        public init(version: Int, contentDigest: Digest) {
            self.version = version
            self.contentDigest = contentDigest
        }
    }

    /// The version that a pack is held at.
    public struct PinnedVersion: Equatable, Sendable {
        /// The version that is held.
        public var version: Int
        /// The version that a rollback has replaced; `nil` where somebody asked for the pin.
        public var rolledBackFrom: Int?

        /// Creates the value from its parts.
        public init(version: Int, rolledBackFrom: Int? = nil) {
            self.version = version
            self.rolledBackFrom = rolledBackFrom
        }
    }

    /// What is left free on the file system beside everything that is counted.
    public static let reserve = ByteCount.mebibytes(16)

    /// Creates a planner for a manifest and what is staged.
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

    /// The request that the state of the container calls for.
    ///
    /// An installation lasts until every pack that is essential to it is staged; from then on there
    /// are updates.
    public var request: ContentRequest {
        if let pending { return pending }
        let isMissing = manifest.packs.contains { pack in
            guard case .essential(let events) = pack.policy else { return false }
            return events.contains(.firstInstallation) && staged[pack.id] == nil
                && elsewhere[pack.id] == nil
                && pack.isFor(applicationVersion: applicationVersion)
        }
        return isMissing || staged.isEmpty && elsewhere.isEmpty ? .install : .update
    }

    /// Decides what is done with each pack.
    ///
    /// Essential packs come first, then those of the policy `prefetch`, then the others; within each
    /// by priority, then in the order of the manifest. A pack that does not fit what is left, of space
    /// or of an allowance, does not keep smaller ones after it from being staged.
    public func plan(for selection: PackSelection) -> Plan {
        let order = manifest.packs.enumerated().sorted { left, right in
            // The higher priority first: its sides are swapped, since not every number has a negative.
            let a = (rank(of: left.element), right.element.priority, left.offset)
            let b = (rank(of: right.element), left.element.priority, right.offset)
            return a < b
        }
        var entries: [Plan.Entry] = []
        var left: [Plan.Entry] = []
        var budget = budget
        // What an application asks for by name is not restricted: it runs.
        if case .event = selection {} else { budget = nil }
        var room = Room(self, for: selection)
        var archives: Set<Digest> = []
        for (_, pack) in order {
            var entry = Plan.Entry(pack: pack, decision: decision(on: pack, selection))
            guard case .stage = entry.decision else {
                left.append(entry)
                continue
            }
            if let refusal = budget?.refusal(of: pack, isEssential: isEssential(pack)) {
                entry.decision = .refuse(refusal)
            } else if let refusal = room.take(pack) {
                entry.decision = .refuse(refusal)
            } else {
                budget?.spend(pack, isEssential: isEssential(pack))
                entry.transfer = transferChoice(for: pack)
                entry.isTransferSizeExact = entry.transfer == nil
                // What is here of an archive serves the first of the packs that share it.
                let isFirst = archives.insert(pack.contentDigest).inserted
                entry.transferSize = transferSize(of: pack, by: entry.transfer, isFirst)
            }
            entries.append(entry)
        }
        let gone = Dictionary(
            room.evictions.lazy.filter(\.isOfPack).map { ($0.generation.id, $0) },
            uniquingKeysWith: { first, _ in first }
        )
        for index in left.indices {
            if let eviction = gone[left[index].pack.id] { left[index].decision = .evict(eviction) }
        }
        return Plan(entries: entries + left, evictions: room.evictions)
    }

    /// The packs that the selection asks for, staged or not: they do not go to make room for each other.
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

    /// Whether the pack is one that the first launch waits for.
    public func isEssential(_ pack: Pack) -> Bool {
        if let choice = choices?[pack.id] { return choice }
        if case .essential = pack.policy { return true }
        return false
    }

    /// The place of the pack in the order of staging.
    private func rank(of pack: Pack) -> Int {
        if isEssential(pack) { return 0 }
        if pack.policy == .onDemand, choices?[pack.id] == nil { return 2 }
        return 1
    }

    /// The space that staging a pack takes at its height: the rest of the archive, the files, and
    /// what a file system adds to each.
    ///
    /// The generation that stays is counted as used already.
    public func space(for pack: Pack) -> ByteCount {
        // Of an indexed pack nothing has to be on disk but the files: its archive is taken only where there
        // is room for that as well.
        let archive =
            pack.index == nil
            ? pack.downloadSize - (downloaded[pack.contentDigest] ?? .zero) : .zero
        return max(archive, .zero)
            + StoredGeneration.size(pack.installedSize, fileCount: pack.fileCount)
    }

    /// The most bytes that staging the pack transfers, from a server that still has what was begun: what of its archive is
    /// not here, or its index and its content.
    private func transferSize(
        of pack: Pack,
        by choice: TransferChoice?,
        _ isFirst: Bool
    ) -> ByteCount {
        if let choice { return (pack.index?.size ?? .zero) + choice.byteCount }
        guard isFirst else { return pack.downloadSize }
        return max(.zero, pack.downloadSize - (downloaded[pack.contentDigest] ?? .zero))
    }

    private func decision(on pack: Pack, _ selection: PackSelection) -> Plan.Decision {
        if let decision = decisionElsewhere(on: pack, selection) { return decision }
        let state = state(of: pack)
        switch selection {
        case .packs(let ids):
            guard ids.contains(pack.id) else { return .leave(.notSelected) }
            if state != nil, let refusal = refusal(of: pack) { return .refuse(refusal) }
        case .repair(let ids):
            guard ids.contains(pack.id) else { return .leave(.notSelected) }
            if state != nil, let refusal = refusal(of: pack) { return .refuse(refusal) }
            return .stage(state ?? .repair)
        case .event(let request, let essentialOnly):
            switch state == nil ? nil : refusal(of: pack) {
            case .pinned(let pin): return .leave(.pinned(pin))
            case .otherVersion(let required, let installed):
                return .leave(.otherVersion(required: required, installed: installed))
            default: break
            }
            if let excuse = excuse(for: pack, request, essentialOnly: essentialOnly) {
                let isThere = excuse == .declined && state == nil
                return .leave(isThere ? .upToDate : excuse)
            }
        }
        return state.map(Plan.Decision.stage) ?? .leave(.upToDate)
    }

    /// Why what is offered may not take the place of what is staged, or `nil` if it may.
    private func refusal(of pack: Pack) -> Plan.Refusal? {
        if let pin = pinned[pack.id] { return .pinned(pin) }
        guard let installed = applicationVersion, let required = pack.applicationVersion,
            !required.isMet(by: installed)
        else { return nil }
        return .otherVersion(required: required.text, installed: installed)
    }

    /// Why the pack would be staged, or `nil` if it is there.
    private func state(of pack: Pack) -> Plan.Reason? {
        if let copy = copyElsewhere(of: pack) { return reason(toStage: pack, beside: copy) }
        guard let present = staged[pack.id] else { return .missing }
        if present.version != pack.version { return .outdated(staged: present.version) }
        return present.contentDigest == pack.contentDigest ? nil : .contentChanged
    }

    /// Why the event does not call for the pack, or `nil` if it does.
    private func excuse(
        for pack: Pack,
        _ request: ContentRequest,
        essentialOnly: Bool
    ) -> Plan.Excuse? {
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

    /// Whether a policy names the event; a periodic request stands for the one that is not complete.
    private func isNamed(_ request: ContentRequest, by events: Set<InstallationEvent>) -> Bool {
        switch request {
        case .install: events.contains(.firstInstallation)
        case .update: events.contains(.subsequentUpdate)
        case .periodic:
            switch pending {
            case .install: events.contains(.firstInstallation)
            case .update: events.contains(.subsequentUpdate)
            case .periodic, nil: false
            }
        }
    }
}
