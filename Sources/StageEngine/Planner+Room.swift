import StageContainer
import StageModel

/// The room that is left for packs while a plan is made, and what goes to make more of it.
struct Room {
    /// What goes, in this order.
    private(set) var evictions: [Eviction] = []
    private let planner: Planner
    /// The generations that may go; `nil` where none may.
    private var queue: EvictionQueue?
    /// The generations that are current, without those that go.
    private var current: [PackID: StoredGeneration] = [:]
    /// What the file system may still be filled with; `nil` where that is not known.
    private var free: ByteCount?
    /// What the container may still take; `nil` for any amount.
    private var remaining: ByteCount?

    init(_ planner: Planner, for selection: PackSelection) {
        self.planner = planner
        free = planner.freeSpace
        guard let retention = planner.retention else { return }
        queue = retention.queue(sparing: planner.packsAskedFor(selection))
        current = retention.current
        if let quota = planner.quota { remaining = quota - retention.size }
    }

    /// Takes the room for a pack, evicting for it what may go, or returns why it cannot be had.
    ///
    /// Nothing goes for a pack that does not fit in the end.
    mutating func take(_ pack: Pack) -> Plan.Refusal? {
        let space = planner.space(for: pack) + Planner.reserve
        let growth = growth(of: pack)
        let missing = max(
            free.map { space - $0 } ?? .zero,
            remaining.map { growth - $0 } ?? .zero
        )
        let made = missing > .zero ? queue?.take(missing) ?? [] : []
        for eviction in made where eviction.isOfPack { current[eviction.generation.id] = nil }
        guard made.size >= missing else {
            if let free, space > free { return .noSpace(needed: space, available: free) }
            return .exceedsQuota(needed: growth, remaining: remaining ?? .zero)
        }
        evictions += made
        free = free.map { $0 + made.size - (space - Planner.reserve) }
        remaining = remaining.map { $0 + made.size - growth }
        return nil
    }

    /// What the container holds more once the pack is staged, without the generation that it replaces:
    /// where there is a quota, that one goes before anything else.
    private func growth(of pack: Pack) -> ByteCount {
        let size = StoredGeneration.size(pack.installedSize, fileCount: pack.fileCount)
        guard let replaced = current[pack.id], !replaced.isLeased else { return size }
        return size - replaced.size
    }
}
