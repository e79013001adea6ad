import StageModel
import Synchronization

/// The packs of a run that have the same archive: it is downloaded once, for the first of them, and removed when the last
/// one has ended.
final class ArchiveSharing: Sendable {
    private let firsts: [Digest: PackID]
    private let state: Mutex<State>

    private struct State {
        /// The packs that have not ended.
        var packs: [Digest: Set<PackID>]
        /// The packs that wait until the first one has ended.
        var waiting: [Digest: [CheckedContinuation<Void, Never>]] = [:]
        var endedFirsts: Set<Digest> = []
    }

    /// Finds the archives that more than one of the packs have.
    init(_ packs: [Pack] = []) {
        let archives = packs.compactMap { pack in pack.archive.map { ($0.digest, pack.id) } }
        let shared = Dictionary(grouping: archives, by: \.0).filter { $1.count > 1 }
        firsts = shared.compactMapValues { $0.first?.1 }
        state = Mutex(State(packs: shared.mapValues { Set($0.map(\.1)) }))
    }

    /// Returns the first pack that has the archive, where that is another one.
    func first(with digest: Digest, besides id: PackID) -> PackID? {
        guard let first = firsts[digest], first != id else { return nil }
        return first
    }

    /// Returns when the first pack that has the archive has ended, well or not.
    func waitForFirst(with digest: Digest) async {
        await withCheckedContinuation { continuation in
            let hasEnded = state.withLock { state in
                if state.endedFirsts.contains(digest) { return true }
                state.waiting[digest, default: []].append(continuation)
                return false
            }
            if hasEnded { continuation.resume() }
        }
    }

    /// Takes note that a pack does not need its archive any more, and returns whether no other one of the run does.
    func end(_ digest: Digest, for id: PackID) -> Bool {
        let (isLast, waiting) = state.withLock { state in
            state.packs[digest]?.remove(id)
            let isLast = state.packs[digest]?.isEmpty ?? true
            guard firsts[digest] == id else {
                return (isLast, [] as [CheckedContinuation<Void, Never>])
            }
            state.endedFirsts.insert(digest)
            return (isLast, state.waiting.removeValue(forKey: digest) ?? [])
        }
        for continuation in waiting { continuation.resume() }
        return isLast
    }
}
