import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// A delta set that does not know yet of which indexes it is, with the bytes of its frames.
struct DeltaDraft: Sendable {
    /// A delta frame that is worth keeping.
    struct Made: Sendable {
        /// The frame that it makes.
        var position: Int
        var bytes: [UInt8]
        var digest: Digest
    }

    private var windows: [DeltaSet.Window] = []
    private var frames: [DeltaSet.Frame] = []
    private var pieces: [[UInt8]] = []
    private var size = Int64(0)

    /// The frames that the set makes, by their positions in the newer index.
    var positions: Set<Int> { Set(frames.map(\.position)) }

    /// Adds what came of groups: each result has those of every so many.
    mutating func add(
        _ groups: [DeltaPlan.Group],
        _ results: [Result<[[Made]], FileError>]
    ) throws(PackagingError) {
        do throws(FileError) {
            var parts: [[[Made]]] = []
            for result in results { parts.append(try result.get()) }
            for (position, group) in groups.enumerated() {
                add(parts[position % parts.count][position / parts.count], of: group.window)
            }
        } catch {
            throw .file(error)
        }
    }

    private mutating func add(_ made: [Made], of window: DeltaSet.Window) {
        let count = made.reduce(Int64(0)) { $0 + Int64($1.bytes.count) }
        // Half of what there may be at most is left to the table, far more than it takes.
        guard !made.isEmpty, size + count <= ManifestLimits.deltaSetSize.rawValue / 2 else {
            return
        }
        size += count
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

    /// Whether there is a set to write: something is in it, and its table is one that clients read.
    var isSet: Bool {
        // The table is as long whatever the digests are.
        let some = Digest(of: [])
        return !frames.isEmpty
            && set(from: some, to: some).encodedTable().count
                <= ManifestLimits.deltaTableSize.rawValue
    }

    /// The table of the set from and to the indexes with these digests.
    func set(from old: Digest, to new: Digest) -> DeltaSet {
        DeltaSet(new: new, old: old, windows: windows, frames: frames)
    }

    /// The size of the object with this table.
    func size(of set: DeltaSet) -> ByteCount { ByteCount(Int64(set.encodedTable().count) + size) }

    /// Writes the object with this table into the folder `d` of a store, and returns what a manifest says
    /// of it.
    func write(
        _ set: DeltaSet,
        in store: Directory
    ) throws(FileError) -> PackIndex.DeltaFrames {
        let table = set.encodedTable()
        let directory = try store.makeDirectory(FilePath(StoreDraft.deltas.folder))
        let name = StoreDraft.deltas.makeName()
        let file = try directory.file(creating: FilePath(name))
        var hasher = SHA256Hasher()
        var size = Int64(0)
        do throws(FileError) {
            for piece in [table] + pieces {
                try file.write(piece.span, at: size)
                hasher.update(piece.span)
                size += Int64(piece.count)
            }
            let digest = hasher.finish()
            try file.synchronize()
            try StoreObjects(directory: directory).publish(name, digest: digest)
            try directory.synchronize()
            return PackIndex.DeltaFrames(
                size: ByteCount(size),
                digest: digest,
                tableSize: ByteCount(table.count),
                tableDigest: Digest(of: table)
            )
        } catch {
            // The error that counts is the one that led here.
            _ = try? directory.remove(name)
            throw error
        }
    }
}
