import StageContainer
public import StageModel

/// Queue of the generations that may be evicted, in order of eviction.
public struct EvictionQueue: Equatable, Sendable {
    private let evictions: [Eviction]
    /// The position of the first generation that was not considered yet.
    private var next = 0
    /// Generations before it that were spared, in order.
    private var spared: [Eviction] = []
    /// The space of the generations that were taken.
    private var taken = EvictedSpace()
    /// The space of all generations, taken or not.
    private let sum: (size: ByteCount, freed: FileSystemUsage)

    init(_ evictions: [Eviction]) {
        var all = EvictedSpace()
        for eviction in evictions { all.add(eviction.generation) }
        sum = (all.size, all.freed)
        // Previous generations share most files with current ones, which would be counted again for each pack.
        self.evictions = evictions.map { eviction in
            var eviction = eviction
            eviction.generation.occupied?.removeFiles(thatRemainWithout: all.occupied)
            return eviction
        }
    }

    /// The space that evicting all remaining generations frees, as a quota counts it.
    public var size: ByteCount { sum.size - taken.size }

    /// The bytes and inodes that the evictions so far free on the file system.
    var freed: FileSystemUsage { taken.freed }

    /// Removes and returns generations that free at least `amount` of a quota; returns none if that much cannot be
    /// freed.
    public mutating func take(_ amount: ByteCount) -> [Eviction] {
        take(amount, freeing: FileSystemUsage.zero)
    }

    /// Removes and returns generations that free at least `amount` of a quota, and at least `usage` on the file system;
    /// returns none if that much cannot be freed.
    ///
    /// For the file system, spares those that the others make superfluous, for example because readers keep their files
    /// by other links.
    mutating func take(_ amount: ByteCount, freeing usage: FileSystemUsage) -> [Eviction] {
        let isForFileSystem = !FileSystemUsage.zero.covers(usage)
        guard amount > .zero || isForFileSystem, amount <= size,
            (sum.freed - taken.freed).covers(usage)
        else { return [] }
        let goal = (size: taken.size + amount, freed: taken.freed + usage)
        var chosen: [Eviction] = []
        var space = taken
        let count = spared.count + evictions.count - next
        while chosen.count < count, space.size < goal.size || !space.freed.covers(goal.freed) {
            let index = chosen.count
            let eviction =
                index < spared.count ? spared[index] : evictions[next + index - spared.count]
            space.add(eviction.generation)
            chosen.append(eviction)
        }
        let considered = chosen.count
        var left: [Eviction] = []
        // Keeps chosen generations that are not needed for the goal, beginning with the one that would be evicted last.
        for index in chosen.indices.reversed() where isForFileSystem {
            let generation = chosen[index].generation
            space.remove(generation)
            if space.size >= goal.size, space.freed.covers(goal.freed) {
                left.append(chosen.remove(at: index))
            } else {
                space.add(generation)
            }
        }
        next += max(0, considered - spared.count)
        spared = left.reversed() + spared.dropFirst(considered)
        return taken.add(chosen, namesFreedBytes: isForFileSystem)
    }

    /// Compares the remaining generations, and those that were taken.
    public static func == (left: Self, right: Self) -> Bool {
        left.evictions == right.evictions && left.next == right.next
            && left.spared == right.spared && left.taken == right.taken
    }
}

/// The space that evicted generations free together.
private struct EvictedSpace: Equatable, Sendable {
    /// The estimated size, which a quota counts.
    private(set) var size = ByteCount.zero
    /// The estimated size and the recorded inodes of generations that were not measured.
    private var unmeasured = FileSystemUsage.zero
    private(set) var occupied = OccupiedSpace()

    /// The bytes that become free on the file system, at most the estimated size, and the inodes.
    var freed: FileSystemUsage {
        FileSystemUsage(
            bytes: min(size, unmeasured.bytes + occupied.freed),
            inodes: unmeasured.inodes + occupied.freedInodeCount
        )
    }

    mutating func add(_ stored: StoredGeneration) {
        size += stored.size
        if let space = stored.occupied {
            occupied.add(space)
        } else {
            unmeasured = unmeasured + stored.recordedUsage
        }
    }

    mutating func remove(_ stored: StoredGeneration) {
        size -= stored.size
        if let space = stored.occupied {
            occupied.remove(space)
        } else {
            unmeasured = unmeasured - stored.recordedUsage
        }
    }

    /// Adds generations, and returns the evictions without their measurements, which take much memory, and on request
    /// with the bytes that each frees, as far as they were measured.
    mutating func add(_ evictions: [Eviction], namesFreedBytes: Bool) -> [Eviction] {
        var named: [Eviction] = []
        for var eviction in evictions {
            let before = freed.bytes
            add(eviction.generation)
            if namesFreedBytes, eviction.generation.occupied != nil {
                eviction.freed = freed.bytes - before
            }
            eviction.generation.occupied = nil
            named.append(eviction)
        }
        return named
    }
}

extension StoredGeneration {
    /// The bytes and inodes of the generation by its record.
    fileprivate var recordedUsage: FileSystemUsage {
        FileSystemUsage(bytes: size, inodes: recordedInodes)
    }
}

extension [Eviction] {
    /// The bytes that the evictions free together on the file system, at most ``size``; those that were not measured count
    /// with their estimated sizes.
    package var freedBytes: ByteCount {
        var space = EvictedSpace()
        for eviction in self { space.add(eviction.generation) }
        return space.freed.bytes
    }

    /// The evictions with the bytes that each frees after those before it, as far as their generations were measured.
    var withFreedBytes: [Eviction] {
        var space = EvictedSpace()
        return space.add(self, namesFreedBytes: true)
    }
}
