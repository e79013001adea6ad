import StageContainer
import StageModel
import Synchronization

/// The space that the packs of a run reserve for archives and patches: without it, each of several packs could find room for
/// its own where there is none for all.
///
/// The base is the free space at the start of the run, less the content of all packs of the plan. It does not see what other
/// processes write, so callers also compare the space that is free at the time.
final class SpaceReservations: Sendable {
    /// The space and inodes that the plan has for the packs, by pack.
    private let planned: [PackID: FileSystemUsage]
    private let state: Mutex<State>

    private struct State {
        /// The free space, less what is planned and reserved.
        var available: AvailableSpace
        /// The reserved space of each pack, beyond what is planned for it.
        var reserved: [PackID: FileSystemUsage] = [:]
    }

    /// Creates the value for a run, without reservations.
    ///
    /// - Parameters:
    ///   - available: The free space at the start of the run; everything fits if it is unknown.
    ///   - entries: The entries of the plan.
    init(_ available: AvailableSpace, for entries: [Plan.Entry]) {
        var rest = available
        var planned: [PackID: FileSystemUsage] = [:]
        for entry in entries {
            guard case .stage = entry.decision else { continue }
            rest.take(entry.usage)
            planned[entry.pack.id] = entry.usage
        }
        self.planned = planned
        state = Mutex(State(available: rest))
    }

    /// Returns the space that the plan and the reservations of the other packs leave for a pack.
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
    func reserve(_ usage: FileSystemUsage, for id: PackID) -> Bool {
        let own = planned[id] ?? .zero
        return state.withLock { state in
            let before = state.reserved[id] ?? .zero
            var available = state.available
            available.take(.zero, freeing: own + before)
            guard available.shortage(for: usage) == nil else { return false }
            let reserved = FileSystemUsage(
                bytes: max(before.bytes, usage.bytes - own.bytes),
                inodes: max(before.inodes, usage.inodes - own.inodes)
            )
            state.available.take(reserved, freeing: before)
            state.reserved[id] = reserved
            return true
        }
    }

    /// Ends the reservation of a pack, which has no download any more or takes another way.
    func release(_ id: PackID) {
        state.withLock { state in
            guard let reserved = state.reserved.removeValue(forKey: id) else { return }
            state.available.take(.zero, freeing: reserved)
        }
    }
}
