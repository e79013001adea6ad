import StageModel
import Synchronization

/// Packs of a run that share an archive: the run downloads the archive once, for the first of them, and
/// deletes it after the last one has ended.
final class ArchiveSharing: Sendable {
    private let firsts: [Digest: PackID]
    private let state: Mutex<State>

    private struct State {
        /// The packs that have not ended, by the digest of their archive.
        var packs: [Digest: Set<PackID>]
        /// The continuations that resume when the first pack has ended.
        var waiting: [Digest: [CheckedContinuation<Void, Never>]] = [:]
        var endedFirsts: Set<Digest> = []
    }

    /// Creates the state for the archives that at least two of the packs share.
    init(_ packs: [Pack] = []) {
        let archives = packs.compactMap { pack in pack.archive.map { ($0.digest, pack.id) } }
        let shared = Dictionary(grouping: archives, by: \.0).filter { $1.count > 1 }
        firsts = shared.compactMapValues { $0.first?.1 }
        state = Mutex(State(packs: shared.mapValues { Set($0.map(\.1)) }))
    }

    /// Returns the first pack that has the archive, or `nil` if that is `id` itself or the archive is not
    /// shared.
    func first(with digest: Digest, besides id: PackID) -> PackID? {
        guard let first = firsts[digest], first != id else { return nil }
        return first
    }

    /// Waits until the first pack that has the archive has ended, successfully or not.
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

    /// Records that a pack has ended, resumes the packs that wait for it if it was the first, and returns
    /// whether no other pack of the run needs the archive.
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
