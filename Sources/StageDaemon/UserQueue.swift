import DequeModule

/// Queue of one user's runnable transfers, divided into lanes whose transfers are equivalent to the scheduler.
///
/// Finding the next transfer inspects lanes, not transfers, so a hundred thousand transfers in a few lanes cost no
/// more than a few.
struct UserQueue {
    /// Properties that the transfers of a lane share.
    struct Lane: Hashable {
        var session: Int64
        var host: String
        var constraints: TransferConstraints
        var priority: Int
        var ignoresHostDelays: Bool
    }

    private struct Contents {
        var ids: Deque<Int64> = []
        var limit: Int
    }

    private var lanes: [Lane: Contents] = [:]
    /// Lane of each queued transfer.
    ///
    /// Withdrawn transfers stay in the lane's list until they reach its front.
    private var laneOf: [Int64: Lane] = [:]
    /// Number of entries in all lists, including those of withdrawn transfers.
    private(set) var entryCount = 0

    /// Set if no transfer is queued.
    var isEmpty: Bool { laneOf.isEmpty }

    /// Queues a transfer.
    mutating func append(_ id: Int64, as item: Scheduler.Item) {
        let lane = Lane(
            session: item.session,
            host: item.host,
            constraints: item.constraints,
            priority: item.priority,
            ignoresHostDelays: item.ignoresHostDelays
        )
        laneOf[id] = lane
        lanes[lane, default: Contents(limit: item.sessionLimit)].limit = item.sessionLimit
        lanes[lane]?.ids.append(id)
        entryCount += 1
        if entryCount > 2 * laneOf.count + 1024 { prune() }
    }

    /// Withdraws a transfer.
    mutating func withdraw(_ id: Int64) { laneOf[id] = nil }

    /// Removes and returns the next transfer of all lanes for which `mayRun` returns `true`; `nil` if there is none.
    mutating func next(where mayRun: (Lane, Int) -> Bool) -> Int64? {
        var best: (lane: Lane, id: Int64)?
        for lane in Array(lanes.keys) {
            guard let id = head(of: lane) else { continue }
            if let best, (best.lane.priority, -best.id) > (lane.priority, -id) { continue }
            guard mayRun(lane, lanes[lane]?.limit ?? 1) else { continue }
            best = (lane, id)
        }
        guard let best else { return nil }
        lanes[best.lane]?.ids.removeFirst()
        entryCount -= 1
        laneOf[best.id] = nil
        return best.id
    }

    /// Returns the lane of highest priority for which `mayRun` returns `true`; `nil` if there is none.
    mutating func firstLane(where mayRun: (Lane, Int) -> Bool) -> Lane? {
        var best: Lane?
        for lane in Array(lanes.keys) {
            guard head(of: lane) != nil, best.map({ $0.priority < lane.priority }) ?? true,
                mayRun(lane, lanes[lane]?.limit ?? 1)
            else { continue }
            best = lane
        }
        return best
    }

    /// Returns the first transfer of a lane that was not withdrawn.
    private mutating func head(of lane: Lane) -> Int64? {
        while let id = lanes[lane]?.ids.first {
            if laneOf[id] == lane { return id }
            lanes[lane]?.ids.removeFirst()
            entryCount -= 1
        }
        lanes[lane] = nil
        return nil
    }

    /// Removes the entries of withdrawn transfers, and all but the first of each other one.
    private mutating func prune() {
        for (lane, contents) in lanes {
            var known: Set<Int64> = []
            let ids = contents.ids.filter { laneOf[$0] == lane && known.insert($0).inserted }
            lanes[lane] = ids.isEmpty ? nil : Contents(ids: Deque(ids), limit: contents.limit)
        }
        entryCount = lanes.values.reduce(0) { $0 + $1.ids.count }
    }
}
