import DequeModule

/// What one user has queued: a lane for everything that is the same to the rules, in order of arrival.
///
/// Finding the next transfer looks at lanes, not at transfers, so a hundred thousand of them in a few
/// lanes cost no more than a few.
struct UserQueue {
    /// What transfers of one lane have in common.
    struct Lane: Hashable {
        var session: Int64
        var host: String
        var needs: Needs
        var priority: Int
    }

    private struct Contents {
        var ids: Deque<Int64> = []
        var limit: Int
    }

    private var lanes: [Lane: Contents] = [:]
    /// The lane of each queued transfer; those taken out stay in their lane until they are met there.
    private var places: [Int64: Lane] = [:]

    /// Whether nothing is queued.
    var isEmpty: Bool { places.isEmpty }

    /// Queues a transfer.
    mutating func append(_ id: Int64, _ item: Scheduler.Item) {
        let lane = Lane(
            session: item.session,
            host: item.host,
            needs: item.needs,
            priority: item.priority
        )
        places[id] = lane
        lanes[lane, default: Contents(limit: item.sessionLimit)].limit = item.sessionLimit
        lanes[lane]?.ids.append(id)
    }

    /// Takes a transfer out.
    mutating func withdraw(_ id: Int64) { places[id] = nil }

    /// Takes out the transfer that runs next, of the lanes that may run, or returns `nil`.
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
        places[best.id] = nil
        return best.id
    }

    /// The lane of the transfer that would run next, of the lanes that may run; `nil` if there is none.
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

    /// The first transfer of a lane that is still queued there.
    private mutating func head(of lane: Lane) -> Int64? {
        while let id = lanes[lane]?.ids.first {
            if places[id] == lane { return id }
            lanes[lane]?.ids.removeFirst()
        }
        lanes[lane] = nil
        return nil
    }
}
