import StageContainer
import StageModel
import StageSystem
import Synchronization

/// The space that the packs of a run reserve for archives and patches: without it, each of several packs could find room for
/// its own where there is none for all.
///
/// Two lower bounds of the space that the packs leave each other are known, and the larger one counts:
///
/// - The free space at the start of the run, less what is planned for all packs, including those that have ended, and less the
///   reservations. It does not see what other processes write, so callers also compare the space that is free at the time.
/// - The free space at the time, which shows what the ended packs have used, less what is planned and reserved for the packs
///   that have not ended. What these have written already counts twice, as used and as planned, so this bound is never too high.
final class SpaceReservations: Sendable {
    /// The space and inodes that the plan has for the packs, by pack.
    private let planned: [PackID: FileSystemUsage]
    private let state: Mutex<State>

    private struct State {
        /// The free space at the start of the run, less what is planned for all packs and reserved.
        var available: AvailableSpace
        /// The space that is planned and reserved for the packs that have not ended.
        var outstanding = FileSystemUsage.zero
        /// The reserved space of each pack, beyond what is planned for it.
        var reserved: [PackID: FileSystemUsage] = [:]
        var ended: Set<PackID> = []
        /// The number of times that space was released.
        var releaseCount = 0

        /// Ends the reservation of a pack, if it has one.
        mutating func release(_ id: PackID) {
            guard let reserved = self.reserved.removeValue(forKey: id) else { return }
            available.take(.zero, freeing: reserved)
            outstanding = outstanding - reserved
            releaseCount += 1
        }
    }

    /// The free space at a time of the run.
    struct Snapshot: Sendable {
        /// The free space and inodes of the file system.
        let free: AvailableSpace
        /// The number of releases before ``free`` was read.
        fileprivate let releaseCount: Int
    }

    /// Creates the value for a run, without reservations.
    ///
    /// - Parameters:
    ///   - available: The free space at the start of the run; everything fits if it is unknown.
    ///   - entries: The entries of the plan.
    init(_ available: AvailableSpace, for entries: [Plan.Entry]) {
        var initial = State(available: available)
        var planned: [PackID: FileSystemUsage] = [:]
        for entry in entries {
            guard case .stage = entry.decision else { continue }
            initial.available.take(entry.usage)
            initial.outstanding = initial.outstanding + entry.usage
            planned[entry.pack.id] = entry.usage
        }
        self.planned = planned
        state = Mutex(initial)
    }

    /// Returns the free space that a function reads now.
    ///
    /// - Parameter free: Reads the free space of the file system.
    /// - Returns: The space.
    /// - Throws: The error of the function.
    func snapshot(
        reading free: () throws(FileError) -> AvailableSpace
    ) throws(FileError) -> Snapshot {
        // Before the space is read: a pack that ends after that may have written more, which the space does not show.
        let releaseCount = state.withLock { $0.releaseCount }
        return Snapshot(free: try free(), releaseCount: releaseCount)
    }

    /// Returns the space that the plan and the reservations of the other packs leave for a pack, of what was free at the start.
    func available(for id: PackID) -> AvailableSpace {
        let own = planned[id] ?? .zero
        return state.withLock { state in
            var available = state.available
            available.take(.zero, freeing: own + (state.reserved[id] ?? .zero))
            return available
        }
    }

    /// Reserves space for the content of a pack and a download beside it, and returns whether there is enough.
    ///
    /// A larger reservation that the pack has stays as it is.
    ///
    /// - Parameters:
    ///   - usage: The space and inodes of the content and of the download.
    ///   - id: A pack that has not ended.
    ///   - snapshot: The space that is free now, which shows what ended packs have not used; does not count if space was
    ///     released after it was read. `nil` if nothing has been staged since the start.
    /// - Returns: `true` if there is enough space.
    func reserve(
        _ usage: FileSystemUsage,
        for id: PackID,
        at snapshot: Snapshot? = nil
    ) -> Bool {
        let own = planned[id] ?? .zero
        return state.withLock { state in
            let before = state.reserved[id] ?? .zero
            var available = state.available
            available.take(.zero, freeing: own + before)
            if let snapshot, snapshot.releaseCount == state.releaseCount {
                var current = snapshot.free
                current.take(state.outstanding, freeing: own + before)
                available = available.larger(current)
            }
            guard available.shortage(for: usage) == nil else { return false }
            let reserved = FileSystemUsage(
                bytes: max(before.bytes, usage.bytes - own.bytes),
                inodes: max(before.inodes, usage.inodes - own.inodes)
            )
            state.available.take(reserved, freeing: before)
            state.outstanding = state.outstanding + reserved - before
            state.reserved[id] = reserved
            return true
        }
    }

    /// Ends the reservation of a pack whose download has ended or was replaced by another method.
    func release(_ id: PackID) {
        state.withLock { $0.release(id) }
    }

    /// Releases the reserved and the planned space of a pack that writes nothing any more.
    func end(_ id: PackID) {
        let own = planned[id] ?? .zero
        state.withLock { state in
            guard state.ended.insert(id).inserted else { return }
            // The archive of the pack may stay on disk, so only a later reading of the free space shows what was released.
            let reserved = state.reserved.removeValue(forKey: id) ?? .zero
            state.outstanding = state.outstanding - own - reserved
            state.releaseCount += 1
        }
    }
}
