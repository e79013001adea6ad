public import StageModel

/// What an update from one version to another transfers, as far as the indexes tell: with everything
/// of the old version in place, from servers that give ranges.
public struct UpdateEstimate: Equatable, Sendable {
    /// The bytes of bundles that are asked for, gaps included.
    public var bundleBytes: ByteCount
    /// The bytes of a delta set that are asked for, its table and gaps included.
    public var deltaBytes: ByteCount
    /// How many requests ask for them.
    public var requests: Int
    /// How many files are taken over whole.
    public var reusedFiles: Int
    /// How many files are made of what is fetched, or of parts of old ones.
    public var changedFiles: Int
    /// How many files of the old version the new one does not have at their places.
    public var removedFiles: Int

    /// Compares two versions; `deltas` is the set that leads from the one to the other, if there is one.
    public init(from old: ContentIndex, to new: ContentIndex, using deltas: DeltaSet? = nil) {
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

/// What one version has that another one has not.
public struct IndexDifference: Equatable, Sendable {
    /// The frames that are missing, by their positions in the newer index, in their order.
    public var frames: [Int]
    /// How many files are taken over whole.
    public var reusedFiles = 0
    /// How many files are not.
    public var changedFiles = 0

    /// Compares two versions.
    public init(from old: ContentIndex, to new: ContentIndex) {
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
