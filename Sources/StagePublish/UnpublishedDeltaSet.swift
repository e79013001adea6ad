import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// A delta set with the bytes of its frames, before the digests of its indexes are known.
struct UnpublishedDeltaSet: Sendable {
    /// A delta frame to keep.
    struct DeltaFrame: Sendable {
        /// The position of the frame that it restores.
        var position: Int
        /// The number of bytes that it decompresses to.
        var contentLength: Int
        var bytes: [UInt8]
        var digest: Digest
    }

    private var windows: [DeltaSet.Window] = []
    private var frames: [DeltaSet.Frame] = []
    private var pieces: [[UInt8]] = []
    private var size = Int64(0)
    /// The number of bytes of all windows.
    private var windowSize = Int64(0)
    /// The number of bytes that all frames decompress to.
    private var contentSize = Int64(0)

    /// The positions in the newer index of the frames that the set restores.
    var positions: Set<Int> { Set(frames.map(\.position)) }

    /// Adds the results of groups; of `n` results, each contains every `n`th group.
    mutating func add(
        _ groups: [DeltaPlan.Group],
        results: [Result<[[DeltaFrame]], FileError>]
    ) throws(PackagingError) {
        do throws(FileError) {
            var parts: [[[DeltaFrame]]] = []
            for result in results { parts.append(try result.get()) }
            for (position, group) in groups.enumerated() {
                add(parts[position % parts.count][position / parts.count], of: group.window)
            }
        } catch {
            throw .file(error)
        }
    }

    private mutating func add(_ made: [DeltaFrame], of window: DeltaSet.Window) {
        let count = made.reduce(Int64(0)) { $0 + Int64($1.bytes.count) }
        let restored = contentSize + made.reduce(Int64(0)) { $0 + Int64($1.contentLength) }
        let read = windowSize + Int64(window.length)
        // The other half of the limit is left for the table, which needs far less.
        guard !made.isEmpty, size + count <= ManifestLimits.deltaSetSize.rawValue / 2,
            read <= DeltaSet.maximumWindowBytes(forContentOf: restored)
        else { return }
        size += count
        (windowSize, contentSize) = (read, restored)
        windows.append(window)
        for frame in made {
            frames.append(
                DeltaSet.Frame(
                    position: frame.position,
                    window: windows.count - 1,
                    length: frame.bytes.count,
                    digest: frame.digest
                )
            )
            pieces.append(frame.bytes)
        }
    }

    /// Indicates whether the set is worth writing: it is not empty, and its table is within the clients'
    /// limit.
    var isSet: Bool {
        // The length of the table does not depend on the digests.
        let some = Digest(of: [])
        return !frames.isEmpty
            && set(from: some, to: some).encodedTable().count
                <= ManifestLimits.deltaTableSize.rawValue
    }

    /// Returns the table of the set between the indexes with these digests.
    func set(from old: Digest, to new: Digest) -> DeltaSet {
        DeltaSet(new: new, old: old, windows: windows, frames: frames)
    }

    /// Returns the size of the object with this table.
    func size(of set: DeltaSet) -> ByteCount { ByteCount(Int64(set.encodedTable().count) + size) }

    /// Writes the object with this table to the directory `d` of a store, and returns its reference for the
    /// manifest.
    func write(
        _ set: DeltaSet,
        in store: Directory
    ) throws(FileError) -> PackIndex.DeltaFrames {
        let table = set.encodedTable()
        let directory = try store.makeDirectory(FilePath(StoreObjectKind.deltas.folder))
        let digest = try StoreObjects(directory: directory).create(.deltas) {
            (file) throws(FileError) in
            var hasher = SHA256Hasher()
            var offset = Int64(0)
            for piece in [table] + pieces {
                try file.write(piece.span, at: offset)
                hasher.update(piece.span)
                offset += Int64(piece.count)
            }
            return hasher.finish()
        }
        return PackIndex.DeltaFrames(
            size: ByteCount(Int64(table.count) + size),
            digest: digest,
            tableSize: ByteCount(table.count),
            tableDigest: Digest(of: table)
        )
    }
}
