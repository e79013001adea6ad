public import StageModel

/// What an update from one version to another transfers, as far as the indexes tell: with everything
/// of the old version in place, from servers that give ranges.
public struct UpdateEstimate: Equatable, Sendable {
    /// The bytes of bundles that are asked for, gaps included.
    public var bundleBytes: ByteCount
    /// How many requests ask for them.
    public var requests: Int
    /// How many files are taken over whole.
    public var reusedFiles: Int
    /// How many files are made of what is fetched, or of parts of old ones.
    public var changedFiles: Int
    /// How many files of the old version the new one does not have at their places.
    public var removedFiles: Int

    /// Compares two versions.
    public init(from old: ContentIndex, to new: ContentIndex) {
        var files: Set<Digest> = []
        var frames: Set<Digest> = []
        for case .file(let file) in old.entries.lazy.map(\.kind) {
            files.insert(file.digest)
            if case .frames(let list) = file.content {
                frames.formUnion(list.lazy.map { old.frames[$0].digest })
            }
        }
        var wanted: Set<Int> = []
        (reusedFiles, changedFiles) = (0, 0)
        for case .file(let file) in new.entries.lazy.map(\.kind) {
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
        let plan = RangePlan(wanted.filter { !frames.contains(new.frames[$0].digest) }, of: new)
        bundleBytes = ByteCount(plan.byteCount)
        requests = plan.requests.count
        let paths = Set(new.entries.lazy.map(\.path))
        removedFiles = old.entries.count { !paths.contains($0.path) }
    }
}
