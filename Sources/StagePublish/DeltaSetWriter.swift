import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// Makes the delta set between two versions whose bundles are in a store.
///
/// The same two indexes give the same bytes. Frames whose bundles, or those of their windows, are not in
/// the store are left out: clients fetch them as they are.
struct DeltaSetWriter: Sendable {
    private let old: StoredFrames
    private let new: StoredFrames
    private let width: Int

    /// The level of compression, for every set: lower ones do not find everything in a window, and
    /// higher ones take ten times as long for a fiftieth less.
    private static let level = 12
    /// How many windows a processor works on before what came of them is put together.
    private static let batch = 4

    init(
        from old: ContentIndex,
        to new: ContentIndex,
        in bundles: Directory,
        width: Int
    ) {
        self.old = StoredFrames(index: old, bundles: bundles)
        self.new = StoredFrames(index: new, bundles: bundles)
        self.width = width
    }

    /// Writes the set of the indexes with these digests into the folder `d` of a store, and returns what
    /// a manifest says of it; `nil` if there is nothing worth keeping.
    func write(
        _ set: DeltaSet,
        to store: Directory
    ) async throws(PackagingError) -> PackIndex.DeltaFrames? {
        var draft = Draft(set: set)
        var groups = DeltaPlan(from: old.index, to: new.index).groups[...]
        while !groups.isEmpty {
            if Task.isCancelled { throw .cancelled }
            let batch = Array(groups.prefix(width * Self.batch))
            groups = groups.dropFirst(batch.count)
            let results = await frames(of: batch)
            try draft.add(batch, results)
        }
        let finished = draft
        return try PackagingError.wrapping { () throws(FileError) in try finished.write(to: store) }
    }

    /// Makes the frames of some groups, each processor those of every so many.
    private func frames(of groups: [DeltaPlan.Group]) async -> [Result<[[Made]], FileError>] {
        await withTaskGroup(of: (Int, Result<[[Made]], FileError>).self) { tasks in
            for part in 0..<width {
                let own = stride(from: part, to: groups.count, by: width).map { groups[$0] }
                tasks.addTask { (part, await withBlockingThread { frames(ofOwn: own) }) }
            }
            var results = [Result<[[Made]], FileError>](repeating: .success([]), count: width)
            for await (part, result) in tasks { results[part] = result }
            return results
        }
    }

    private func frames(ofOwn groups: [DeltaPlan.Group]) -> Result<[[Made]], FileError> {
        var compressor = FrameCompressor(level: Self.level)
        var decompressor = FrameDecompressor()
        do throws(FileError) {
            var made: [[Made]] = []
            for group in groups { made.append(try frames(of: group, &compressor, &decompressor)) }
            return .success(made)
        } catch {
            return .failure(error)
        }
    }

    private func frames(
        of group: DeltaPlan.Group,
        _ compressor: inout FrameCompressor,
        _ decompressor: inout FrameDecompressor
    ) throws(FileError) -> [Made] {
        guard let window = try old.bytes(of: group.window, &decompressor) else { return [] }
        compressor.load(prefix: window.span)
        var made: [Made] = []
        for position in group.frames {
            guard let content = try new.content(of: position, &decompressor) else { continue }
            let bytes = compressor.compress(content.span)
            guard isWorthwhile(bytes.count, position) else { continue }
            // What is published has been tried.
            let tried = try? decompressor.decompress(
                bytes.span,
                after: window.span,
                to: content.count
            )
            guard tried == content else { continue }
            made.append(Made(position: position, bytes: bytes, digest: Digest(of: bytes)))
        }
        return made
    }

    /// Whether a delta frame of so many bytes, and what the table says of it, saves enough of the frame
    /// for which a client reads old bytes.
    private func isWorthwhile(_ count: Int, _ position: Int) -> Bool {
        (count + Digest.byteCount + 4) * 10 < new.index.frames[position].storedLength * 7
    }
}

/// A delta frame that is worth keeping.
private struct Made: Sendable {
    var position: Int
    var bytes: [UInt8]
    var digest: Digest
}

/// A set in the making, with the bytes of its frames.
private struct Draft {
    private var set: DeltaSet
    private var pieces: [[UInt8]] = []
    private var size = Int64(0)

    init(set: DeltaSet) { self.set = set }

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
        set.windows.append(window)
        for frame in made {
            set.frames.append(
                DeltaSet.Frame(
                    position: frame.position,
                    window: set.windows.count - 1,
                    length: frame.bytes.count,
                    digest: frame.digest
                )
            )
            pieces.append(frame.bytes)
        }
    }

    /// Writes the set, if there is anything in it, and returns what a manifest says of it.
    func write(to store: Directory) throws(FileError) -> PackIndex.DeltaFrames? {
        let table = set.encodedTable()
        guard !set.frames.isEmpty, table.count <= ManifestLimits.deltaTableSize.rawValue else {
            return nil
        }
        let directory = try store.makeDirectory("d")
        let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
        let name = FilePath.Component(stringLiteral: ".deltas.\(mark)")
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
            let final = FilePath.Component(stringLiteral: "\(digest)")
            try directory.rename(name, to: final, in: directory)
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
