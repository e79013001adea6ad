public import StageContainer
public import StageModel

/// What may go from a container to make room, and in which order: a pure value.
///
/// First generations that are not current, the obsolete ones before the previous ones. Then packs that
/// an application fetches when it wants them, then packs of the policy `prefetch`; of each kind those
/// that were not loaded for the longest time, then those of lower priority. Never what somebody reads,
/// what is pinned, what is essential to any application, what no manifest tells the policy of, and what was staged for an
/// application whose manifest is in a format of its own.
public struct Retention: Equatable, Sendable {
    /// What is on disk.
    public private(set) var generations: [StoredGeneration]
    private let offers: [PackID: Offer]
    private let keptPacks: Set<PackID>

    /// What the manifests of all applications together say of a pack.
    private struct Offer: Equatable {
        var rank: Rank
        var priority: Int
    }

    /// How much a pack matters: the higher, the longer it stays.
    private enum Rank: Int {
        case onDemand
        case prefetch
        case essential
    }

    /// Creates the value of what is on disk and what is offered.
    ///
    /// - Parameters:
    ///   - generations: All generations of the container.
    ///   - manifests: The manifests of all applications of the container; `nil` where one of them cannot
    ///     be read, so that no pack's policy is known.
    ///   - keptPacks: Packs that stay staged whatever the manifests say of them.
    public init(
        generations: [StoredGeneration],
        manifests: [Manifest]?,
        keeping keptPacks: Set<PackID> = []
    ) {
        self.generations = generations
        self.keptPacks = keptPacks
        var offers: [PackID: Offer] = [:]
        for pack in (manifests ?? []).flatMap(\.packs) {
            let rank: Rank =
                switch pack.policy {
                case .essential: .essential
                case .prefetch: .prefetch
                case .onDemand: .onDemand
                }
            let known = offers[pack.id]
            offers[pack.id] = Offer(
                rank: known.map { $0.rank.rawValue > rank.rawValue ? $0.rank : rank } ?? rank,
                priority: max(known?.priority ?? .min, pack.priority)
            )
        }
        self.offers = offers
    }

    /// What all generations take on disk.
    public var size: ByteCount { generations.reduce(.zero) { $0 + $1.size } }

    /// The current generations of the packs that are staged.
    public var current: [PackID: StoredGeneration] {
        Dictionary(
            generations.lazy.filter { $0.role == .current }.map { ($0.id, $0) },
            uniquingKeysWith: { first, _ in first }
        )
    }

    /// Takes out what goes so that at least `amount` is freed, in the order in which it goes.
    ///
    /// Where that much cannot be freed, it is everything that may go.
    ///
    /// - Parameters:
    ///   - amount: What is to be freed; nothing goes if it is not above zero.
    ///   - spared: Packs that stay staged, because they are asked for.
    /// - Returns: What goes.
    public mutating func evict(
        _ amount: ByteCount,
        sparing spared: Set<PackID> = []
    ) -> [Eviction] {
        var queue = queue(sparing: spared)
        let evictions = queue.take(min(amount, queue.size))
        remove(evictions)
        return evictions
    }

    /// Returns everything that may go, in the order in which it goes.
    ///
    /// Costs sorting all generations; making room for one pack after the other from one queue costs no more.
    ///
    /// - Parameter spared: Packs that stay staged, because they are asked for.
    /// - Returns: The queue.
    public func queue(sparing spared: Set<PackID> = []) -> EvictionQueue {
        EvictionQueue(candidates(sparing: spared))
    }

    /// Returns what is on disk once the packs of a plan are staged, without their new generations.
    ///
    /// The replaced generations are the previous ones then, of which one is kept for each pack.
    ///
    /// - Parameters:
    ///   - plan: The plan, whose evictions are gone.
    ///   - removed: The packs that are removed beside.
    /// - Returns: What is on disk.
    public func after(_ plan: Plan, removing removed: Set<PackID>) -> Retention {
        var later = self
        later.remove(plan.evictions)
        let replaced = Set(plan.packsToStage.map(\.id))
        later.generations = later.generations.compactMap { stored in
            var stored = stored
            if removed.contains(stored.id) {
                stored.role = .obsolete
                return stored.isLeased ? stored : nil
            }
            guard replaced.contains(stored.id) else { return stored }
            if stored.role == .current {
                stored.role = .previous
                stored.isPinned = false
                return stored
            }
            stored.role = .obsolete
            return stored.isLeased || current[stored.id] == nil ? stored : nil
        }
        return later
    }

    private mutating func remove(_ evictions: [Eviction]) {
        let gone = Set(evictions.map { Key($0.generation) })
        if !gone.isEmpty { generations.removeAll { gone.contains(Key($0)) } }
    }

    /// The names by which a generation differs from all others of the container.
    private struct Key: Hashable {
        var id: PackID
        var name: GenerationName

        init(_ stored: StoredGeneration) { (id, name) = (stored.id, stored.name) }
    }

    /// Takes out the generations that nobody needs, the previous ones among them if that is wanted.
    public mutating func collect(includingPrevious: Bool) -> [Eviction] {
        let evictions = candidates(sparing: []).filter { eviction in
            eviction.reason == .obsolete || includingPrevious && eviction.reason == .previous
        }
        remove(evictions)
        return evictions
    }

    /// Everything that may go, first what goes first.
    private func candidates(sparing spared: Set<PackID>) -> [Eviction] {
        generations.compactMap { stored -> (place: Place, eviction: Eviction)? in
            guard !stored.isLeased, let reason = reason(for: stored, spared) else { return nil }
            let priority = stored.role == .current ? offers[stored.id]?.priority ?? 0 : 0
            let place = Place(
                key: (reason.order, stored.lastUsed, priority, stored.id, stored.name)
            )
            return (place, Eviction(generation: stored, reason: reason))
        }
        .sorted { $0.place.key < $1.place.key }.map(\.eviction)
    }

    /// The place of a candidate: by reason, last use, priority, and then in any fixed order.
    private struct Place {
        var key: (Int, Int64, Int, PackID, GenerationName)
    }

    /// Why the generation may go, or `nil` if it may not.
    private func reason(
        for stored: StoredGeneration,
        _ spared: Set<PackID>
    ) -> EvictionReason? {
        switch stored.role {
        case .obsolete: return .obsolete
        case .previous: return .previous
        case .current:
            guard !stored.isPinned, !spared.contains(stored.id), !keptPacks.contains(stored.id)
            else { return nil }
            switch offers[stored.id]?.rank {
            case .onDemand: return .onDemand
            case .prefetch: return .prefetch
            case .essential, nil: return nil
            }
        }
    }
}

/// Generations that may go to make room, first what goes first.
public struct EvictionQueue: Equatable, Sendable {
    private let evictions: [Eviction]
    private var next = 0
    /// The bytes that are freed when all generations that are left go.
    public private(set) var size: ByteCount

    init(_ evictions: [Eviction]) {
        self.evictions = evictions
        size = evictions.size
    }

    /// Takes out what goes so that at least `amount` is freed; nothing where that much cannot be freed.
    public mutating func take(_ amount: ByteCount) -> [Eviction] {
        guard amount <= size else { return [] }
        let start = next
        var freed = ByteCount.zero
        while freed < amount {
            freed += evictions[next].generation.size
            next += 1
        }
        size = size - freed
        return Array(evictions[start..<next])
    }
}

/// A generation that goes to make room, and the pack with it where it is the current one.
public struct Eviction: Equatable, Sendable {
    /// What goes.
    public var generation: StoredGeneration
    /// Why it may.
    public var reason: EvictionReason

    /// Creates the value from its parts.
    public init(generation: StoredGeneration, reason: EvictionReason) {
        self.generation = generation
        self.reason = reason
    }

    /// Whether the pack is not staged any more then.
    public var isOfPack: Bool { generation.role == .current }
}

extension EvictionReason {
    /// The place among the reasons: generations of the first one go first.
    fileprivate var order: Int { Self.allCases.firstIndex(of: self) ?? 0 }
}

extension [Eviction] {
    /// What is freed.
    public var size: ByteCount { reduce(.zero) { $0 + $1.generation.size } }
}

extension Retention {
    /// What is on disk in a container, and what its manifests say, at this moment.
    ///
    /// - Parameters:
    ///   - reader: The container.
    ///   - offered: What holds for its application in the place of the manifest that is stored.
    /// - Throws: ``StageError/container(_:)`` if the container cannot be read.
    public init(
        _ reader: ContainerReader,
        offering offered: Manifest? = nil
    ) throws(StageError) {
        let (generations, catalogue) = try StageError.wrapping { () throws(ContainerError) in
            (try reader.inventory(), try reader.manifestCatalogue(replacing: offered))
        }
        self.init(
            generations: generations,
            manifests: catalogue?.manifests,
            keeping: catalogue?.keptPacks ?? []
        )
    }
}

extension Container {
    /// Removes what was decided to go, in its order, and returns what is gone.
    ///
    /// What somebody has begun to read, pinned or changed since then stays, and so does a pack that
    /// another process works on.
    public func evict(_ evictions: [Eviction]) throws(StageError) -> [Eviction] {
        try StageError.wrapping { () throws(ContainerError) in
            var gone: [Eviction] = []
            for eviction in evictions {
                let stored = eviction.generation
                guard let lock = try attemptLock(stored.id),
                    try evict(stored.name, isCurrent: eviction.isOfPack, lock)
                else { continue }
                gone.append(eviction)
            }
            return gone
        }
    }
}
