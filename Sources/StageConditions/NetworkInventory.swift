import StageSystem

/// Links, addresses and routes that the kernel has reported, to distinguish new ones from repeated reports.
///
/// The kernel reports an address or a route again whenever its lifetime is extended, for instance after each router
/// advertisement. Links and entries that existed before their first report are unknown, so they count as new once.
///
/// Does no I/O.
struct NetworkInventory {
    /// Links that were reported, by their indexes, and whether they can carry packets.
    private var links: [UInt32: Bool] = [:]
    private var entries: Set<NetworkEntry> = []

    /// Maximum number of links, and of entries: a router may have a million routes.
    static let maximumCount = 4096

    /// Processes an event; returns whether hosts may be reachable that were not.
    mutating func handle(_ event: NetworkEvent) -> Bool {
        switch event {
        case .link(let link, isRunning: true):
            if links.count >= Self.maximumCount { links.removeAll() }
            return links.updateValue(true, forKey: link) != true
        case .link(let link, isRunning: false):
            if links.count >= Self.maximumCount { links.removeAll() }
            if links.updateValue(false, forKey: link) != false { entries.removeAll() }
            return false
        case .removedLink(let link):
            if links.removeValue(forKey: link) != false { entries.removeAll() }
            return false
        case .added(let entry):
            if entries.count >= Self.maximumCount { entries.removeAll() }
            return entries.insert(entry).inserted
        case .removed(let entry):
            entries.remove(entry)
            return false
        case .lost:
            self = NetworkInventory()
            return true
        }
    }
}
