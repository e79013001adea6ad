import FoundationEssentials
import StageDigest
import StageModel
import StageSystem

/// Open file shared by several tasks.
final class SharedFile: Sendable {
    let file: File

    init(_ file: consuming File) { self.file = file }
}

/// Cache of file digests, each computed once per state of a file.
actor DigestCache {
    private(set) var known: [FileIdentity: Digest] = [:]
    /// The states of ``known`` in order of insertion, as a ring once the cache is full.
    private var order: [FileIdentity] = []
    /// Position in ``order`` of the state that is replaced next.
    private var oldest = 0
    private var waiting: [FileIdentity: [CheckedContinuation<Result<Digest, FileError>, Never>]] =
        [:]

    /// Maximum number of cached digests.
    private let capacity: Int

    /// Creates an empty cache.
    init(capacity: Int = 10_000) { self.capacity = capacity }

    /// Returns the digest of the file's content, and the identity of the file's state.
    ///
    /// Returns `nil` if the file keeps changing.
    func digest(
        of shared: SharedFile
    ) async throws(FileError) -> (digest: Digest, identity: FileIdentity)? {
        for _ in 0..<3 {
            let before = try shared.file.identity()
            let digest = try await digest(of: shared, at: before)
            let after = try shared.file.identity()
            if before.hasSameContent(as: after) { return (digest, after) }
            known[before] = nil
        }
        return nil
    }

    private func digest(
        of shared: SharedFile,
        at identity: FileIdentity
    ) async throws(FileError) -> Digest {
        if let digest = known[identity] { return digest }
        if waiting[identity] != nil {
            // Another task is computing this digest and resumes all that wait.
            return try await withCheckedContinuation { waiting[identity, default: []].append($0) }
                .get()
        }
        waiting[identity] = []
        let isSettled = identity.hasSettled(at: Int64(Date().timeIntervalSince1970))
        let result = await Self.compute(shared)
        if isSettled, case .success(let digest) = result {
            keep(digest, of: identity)
        }
        for waiter in waiting.removeValue(forKey: identity) ?? [] {
            waiter.resume(returning: result)
        }
        return try result.get()
    }

    /// Adds a digest to the cache, in place of the oldest one if the cache is full.
    private func keep(_ digest: Digest, of identity: FileIdentity) {
        known[identity] = digest
        guard order.count == capacity else { return order.append(identity) }
        if order[oldest] != identity { known[order[oldest]] = nil }
        order[oldest] = identity
        oldest = (oldest + 1) % capacity
    }

    private static func compute(_ shared: SharedFile) async -> Result<Digest, FileError> {
        do throws(FileError) {
            return .success(
                try await withBlockingThread { () throws(FileError) in
                    try Digest(of: shared.file)
                }
            )
        } catch {
            return .failure(error)
        }
    }
}
