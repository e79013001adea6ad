import StageContainer
import StageModel

/// The space and the inodes left for packs while a plan is made, and the evictions that increase it.
struct DiskSpaceBudget {
    /// The evictions, in order.
    private(set) var evictions: [Eviction] = []
    private let planner: Planner
    /// The generations that may be evicted; `nil` if none may.
    private var queue: EvictionQueue?
    /// The current generations, without the evicted ones.
    private var current: [PackID: StoredGeneration] = [:]
    /// The free space and inodes of the file system, without the packs that have been taken.
    private var available: AvailableSpace
    /// The unused part of the quota; `nil` for no limit.
    private var remaining: ByteCount?

    init(_ planner: Planner, for selection: PackSelection) {
        self.planner = planner
        available = planner.available
        // Without a policy, as without a container, nothing is staged.
        remaining = planner.quota.map { $0 - (planner.evictionPolicy?.lastingSize ?? .zero) }
        guard let policy = planner.evictionPolicy else { return }
        let requested = planner.packsAskedFor(selection)
        queue = policy.queue(
            sparing: requested,
            keeping: planner.kept.filter { requested.contains($0.key) }
        )
        current = policy.current
    }

    /// Reserves space for a pack, with evictions if necessary, or returns the reason to refuse it.
    ///
    /// Nothing is evicted if the pack would not fit in the end.
    mutating func take(_ pack: Pack) -> Plan.Refusal? {
        let needed = planner.usage(for: pack)
        let shortage = available.shortage(for: needed)
        let growth = growth(of: pack)
        let missing = available.missing(for: needed)
        // An update that takes no more than it replaces is never refused for the quota.
        let excess = growth > .zero ? max(.zero, remaining.map { growth - $0 } ?? .zero) : .zero
        let freedBefore = queue?.freed ?? .zero
        let made = queue?.take(excess, freeing: missing) ?? []
        guard !made.isEmpty || missing == .zero && excess == .zero else {
            if let shortage { return Plan.Refusal(shortage) }
            return .exceedsQuota(needed: growth, remaining: max(remaining ?? .zero, .zero))
        }
        for eviction in made where eviction.isOfPack { current[eviction.generation.id] = nil }
        evictions += made
        let freed = (queue?.freed ?? .zero) - freedBefore
        available.take(needed, freeing: freed)
        remaining = remaining.map { $0 + made.size - growth }
        return nil
    }

    /// Returns the growth of the container when the pack is staged.
    ///
    /// The replaced generation does not count: with a quota it is removed first, once no process reads it.
    private func growth(of pack: Pack) -> ByteCount {
        let size = StoredGeneration.size(of: pack)
        guard let replaced = current[pack.id] else { return size }
        return size - replaced.size
    }
}
