package import StageModel

/// An estimate of the transfer for an update between two versions, from their indexes: assumes that all files
/// of the old version are present and that servers support ranges.
package struct UpdateEstimate: Equatable, Sendable {
    /// The bytes requested from bundles, gaps included.
    package var bundleBytes: ByteCount
    /// The bytes requested from a delta set, table and gaps included.
    package var deltaBytes: ByteCount
    /// The number of requests.
    package var requests: Int
    /// The number of files that are reused as they are.
    package var reusedFiles: Int
    /// The number of files that need downloaded frames or parts of old files.
    package var changedFiles: Int
    /// The number of files of the old version whose paths do not exist in the new one.
    package var removedFiles: Int

    /// Compares two versions; `deltas` is the delta set between them, if any.
    package init(from old: ContentIndex, to new: ContentIndex, using deltas: DeltaSet? = nil) {
        let difference = IndexDifference(from: old, to: new)
        reusedFiles = difference.reusedFiles
        changedFiles = difference.changedFiles
        var missing = difference.frames
        deltaBytes = .zero
        requests = 0
        if let deltas {
            let tableSize = deltas.encodedTable().count
            let plan = RangePlan(missing, of: deltas, tableSize: tableSize)
            let made = Set(deltas.frames.lazy.map(\.position))
            missing.removeAll { made.contains($0) }
            deltaBytes = ByteCount(Int64(tableSize) + plan.byteCount)
            requests = plan.requests.count + 1
        }
        let plan = RangePlan(missing, of: new)
        bundleBytes = ByteCount(plan.byteCount)
        requests += plan.requests.count
        removedFiles = old.entries.indices.count { position in
            new.position(of: old.entries.pathBytes(at: position)) == nil
        }
    }
}

/// The frames of a new version that an old version does not contain.
package struct IndexDifference: Equatable, Sendable {
    /// The frames that are missing, by their positions in the newer index, in their order.
    package var frames: [Int]
    /// The number of files that are reused as they are.
    package var reusedFiles = 0
    /// The number of files that are not reused.
    package var changedFiles = 0

    /// Compares two versions.
    package init(from old: ContentIndex, to new: ContentIndex) {
        var files: Set<Digest> = []
        var held: Set<Digest> = []
        for case let file? in old.entries.indices.lazy.map({ old.entries.file(at: $0) }) {
            files.insert(file.digest)
            if case .frames(let list) = file.content {
                held.formUnion(list.lazy.map { old.frames[$0].digest })
            }
        }
        var wanted: Set<Int> = []
        for case let file? in new.entries.indices.lazy.map({ new.entries.file(at: $0) }) {
            if file.size == 0 || files.contains(file.digest) {
                reusedFiles += 1
                continue
            }
            changedFiles += 1
            switch file.content {
            case .part(let frame, _): wanted.insert(frame)
            case .frames(let list): wanted.formUnion(list)
            }
        }
        frames = wanted.filter { !held.contains(new.frames[$0].digest) }.sorted()
    }
}
