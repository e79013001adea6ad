public import StageContainer
public import StageModel

/// Eviction policy of a container, as a pure value: the generations that may be evicted, and their order.
///
/// Generations that are not current go first, obsolete ones before previous ones. Then packs with the policy
/// `onDemand`, then packs with `prefetch`; within each group the least recently used first, then those of
/// lower priority.
///
/// A generation is never evicted if it is leased or pinned, if its pack is essential to any application or has no policy
/// in any manifest, if it was staged for an application whose manifest is in a format of its own, or if the repair of a
/// copied container needs it.
public struct EvictionPolicy: Equatable, Sendable {
    /// The generations on disk.
    public private(set) var generations: [StoredGeneration]
    private let offers: [PackID: Offer]
    private let keptPacks: Set<PackID>

    /// The policy and priority of a pack, combined over the manifests of all applications.
    private struct Offer: Equatable {
        var rank: Rank
        var priority: Int
    }

    /// The policy of a pack; higher values are evicted later.
    private enum Rank: Int {
        case onDemand
        case prefetch
        case essential
    }

    /// Creates the policy for generations on disk and the manifests that offer them.
    ///
    /// - Parameters:
    ///   - generations: All generations of the container.
    ///   - manifests: The manifests of all applications of the container; `nil` if one of them cannot be read,
    ///     so that the policy of no pack is known.
    ///   - keptPacks: Packs that stay staged even if no manifest offers them.
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

    /// The space that all generations occupy on disk.
    public var size: ByteCount { generations.reduce(.zero) { $0 + $1.size } }

    /// The space that counts for a quota: that of all generations but those that are on disk only because
    /// processes read them.
    public var lastingSize: ByteCount {
        generations.reduce(.zero) { sum, stored in
            stored.role != .current && stored.isLeased ? sum : sum + stored.size
        }
    }

    /// Returns the bytes to evict so that the container keeps a quota, also with so many bytes more; negative if none are.
    package func excess(over quota: ByteCount, adding size: ByteCount = .zero) -> ByteCount {
        lastingSize + size - quota
    }

    /// The current generations of the packs that are staged.
    public var current: [PackID: StoredGeneration] {
        Dictionary(
            generations.lazy.filter { $0.role == .current }.map { ($0.id, $0) },
            uniquingKeysWith: { first, _ in first }
        )
    }

    /// Removes and returns the generations to evict in order to free at least `amount`, in order of eviction.
    ///
    /// If that much cannot be freed, evicts all generations that are not current, and no current one.
    ///
    /// - Parameters:
    ///   - amount: The space to free; nothing is evicted if it is not positive.
    ///   - spared: Packs that must stay, because they are requested.
    /// - Returns: The evictions.
    public mutating func evict(
        _ amount: ByteCount,
        sparing spared: Set<PackID> = []
    ) -> [Eviction] {
        var queue = queue(sparing: spared)
        guard amount <= queue.size else {
            let evictions = notCurrent(includingPrevious: true)
            remove(evictions)
            return evictions
        }
        let evictions = queue.take(amount)
        remove(evictions)
        return evictions
    }

    /// Returns all generations that may be evicted, in order of eviction.
    ///
    /// Sorts all generations once; the queue then serves any number of packs.
    ///
    /// - Parameters:
    ///   - spared: Packs that must stay, because they are requested.
    ///   - kept: Generations that must stay although they are not current, because they will be.
    /// - Returns: The queue.
    public func queue(
        sparing spared: Set<PackID> = [],
        keeping kept: [PackID: GenerationName] = [:]
    ) -> EvictionQueue {
        let candidates = candidates(sparing: spared).filter { eviction in
            kept[eviction.generation.id] != eviction.generation.name
        }
        return EvictionQueue(candidates)
    }

    /// Returns the state on disk after a plan is carried out, without the new generations.
    ///
    /// The replaced generations become the previous ones, of which one per pack is kept.
    ///
    /// - Parameters:
    ///   - plan: The plan, including its evictions.
    ///   - removed: The packs that are removed in addition.
    /// - Returns: The state on disk.
    public func after(_ plan: Plan, removing removed: Set<PackID>) -> EvictionPolicy {
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

    /// The identity of a generation in its container.
    private struct Key: Hashable {
        var id: PackID
        var name: GenerationName

        init(_ stored: StoredGeneration) { (id, name) = (stored.id, stored.name) }
    }

    /// Removes and returns the obsolete generations, and optionally the previous ones, with the bytes that each frees if
    /// they were measured.
    public mutating func collect(includingPrevious: Bool) -> [Eviction] {
        let evictions = notCurrent(includingPrevious: includingPrevious)
        remove(evictions)
        return evictions.withFreedBytes
    }

    /// Returns the evictions of obsolete generations, and optionally those of previous ones.
    private func notCurrent(includingPrevious: Bool) -> [Eviction] {
        candidates(sparing: []).filter { eviction in
            eviction.reason == .obsolete || includingPrevious && eviction.reason == .previous
        }
    }

    /// Measures the disk space of the generations that may be evicted; reads the status of each of their files.
    ///
    /// - Parameters:
    ///   - reader: The container.
    ///   - includingPacks: Pass `false` to measure only generations that are not current.
    ///   - spared: Packs that must stay, which are not measured.
    /// - Throws: ``StageError/container(_:)`` if the container cannot be read.
    package mutating func measure(
        in reader: ContainerReader,
        includingPacks: Bool = true,
        sparing spared: Set<PackID> = []
    ) throws(StageError) {
        for index in generations.indices {
            let stored = generations[index]
            guard includingPacks || stored.role != .current, !stored.isLeased,
                reason(for: stored, spared) != nil
            else { continue }
            generations[index].occupied = try StageError.wrapping { () throws(ContainerError) in
                try reader.occupiedSpace(of: stored)
            }
        }
    }

    /// Returns all generations that may be evicted, in order of eviction.
    package func candidates(sparing spared: Set<PackID>) -> [Eviction] {
        generations.compactMap { stored -> (sortKey: SortKey, eviction: Eviction)? in
            guard !stored.isLeased, let reason = reason(for: stored, spared) else { return nil }
            let priority = stored.role == .current ? offers[stored.id]?.priority ?? 0 : 0
            let sortKey = SortKey(
                values: (reason.order, stored.lastUsed, priority, stored.id, stored.name)
            )
            return (sortKey, Eviction(generation: stored, reason: reason))
        }
        .sorted { $0.sortKey.values < $1.sortKey.values }.map(\.eviction)
    }

    /// The sort key of a candidate: reason, last use, priority, and then an arbitrary fixed order.
    private struct SortKey {
        var values: (Int, Int64, Int, PackID, GenerationName)
    }

    /// Returns the reason why the generation may be evicted, or `nil` if it may not.
    private func reason(
        for stored: StoredGeneration,
        _ spared: Set<PackID>
    ) -> EvictionReason? {
        if stored.isCopied { return nil }
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

/// Eviction of a generation; if it is the current one, its pack is no longer staged.
public struct Eviction: Equatable, Sendable {
    /// The generation.
    public var generation: StoredGeneration
    /// The reason why it may be evicted.
    public var reason: EvictionReason
    /// The bytes that the eviction frees on the file system, after the evictions before it.
    ///
    /// `nil` if it was not measured, or if the eviction is for a quota alone: a quota counts the estimated size of the
    /// generation.
    public var freed: ByteCount?

    /// Creates the value from its parts.
    public init(generation: StoredGeneration, reason: EvictionReason) {
        self.generation = generation
        self.reason = reason
    }

    /// `true` if the eviction removes the pack.
    public var isOfPack: Bool { generation.role == .current }
}

extension EvictionReason {
    /// The position in the order of eviction: generations with the first reason go first.
    fileprivate var order: Int { Self.allCases.firstIndex(of: self) ?? 0 }
}

extension [Eviction] {
    /// The space that the evictions free.
    public var size: ByteCount { reduce(.zero) { $0 + $1.generation.size } }
}

extension EvictionPolicy {
    /// Creates the policy from the current state of a container and its manifests.
    ///
    /// - Parameters:
    ///   - reader: The container.
    ///   - offered: The manifest to use for its application instead of the stored one.
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
    /// Carries out evictions in order, and returns those that took place, with the first error.
    ///
    /// Skips generations that have been leased, pinned or replaced since the decision, and packs that another
    /// process works on; continues after an error. A pack whose files cannot all be deleted is evicted if it is
    /// not staged any more.
    public func evict(_ evictions: [Eviction]) -> (gone: [Eviction], failure: StageError?) {
        var gone: [Eviction] = []
        var failure: StageError?
        for eviction in evictions {
            let stored = eviction.generation
            do throws(ContainerError) {
                // An earlier attempt or another process has removed it since the decision.
                guard try !isGone(eviction), let lock = try attemptLock(stored.id) else { continue }
                do throws(ContainerError) {
                    guard try evict(stored.name, isCurrent: eviction.isOfPack, holding: lock) else {
                        continue
                    }
                } catch {
                    failure = failure ?? .container(error)
                    guard try isGone(eviction) else { continue }
                }
                gone.append(eviction)
            } catch {
                failure = failure ?? .container(error)
            }
        }
        return (gone, failure)
    }

    /// Returns whether the pack of an eviction is not staged any more, or the generation is not on disk.
    private func isGone(_ eviction: Eviction) throws(ContainerError) -> Bool {
        let stored = eviction.generation
        guard !eviction.isOfPack else { return try reader.currentGeneration(of: stored.id) == nil }
        return try !reader.generations(of: stored.id).contains(stored.name)
    }
}
