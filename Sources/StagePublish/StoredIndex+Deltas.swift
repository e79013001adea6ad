import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

extension StoredIndex {
    /// Finds the deltas from older indexes in its directory, and returns the number of older versions beyond
    /// the limit of a manifest.
    ///
    /// Skips damaged deltas: clients do not need them. One whose older index is not in the store is compared only by
    /// the size of what it restores.
    mutating func findDeltas(in folder: FilePath) throws(FileError) -> Int {
        let directory = try Directory.open(folder.isEmpty ? "." : folder)
        var found: [(name: FilePath.Component, base: Digest)] = []
        let prefix = "\(reference.contentDigest).from."
        for entry in try directory.entries().sorted(by: { $0.path.string < $1.path.string })
        where entry.path.string.hasPrefix(prefix) {
            let text = String(entry.path.string.dropFirst(prefix.count))
            // A file with another name does not belong to the store.
            guard let base = try? Digest(hexadecimal: text) else { continue }
            found.append((entry.name, base))
        }
        guard !found.isEmpty else { return 0 }
        let bases = try Self.indexes(Set(found.map(\.base)), in: directory)
        let all = found.count
        if all > ManifestLimits.deltas {
            func time(_ base: Digest) -> Int64 { bases[base]?.modified ?? .min }
            found.sort { time($0.base) > time($1.base) }
            found.removeLast(all - ManifestLimits.deltas)
        }
        for (name, base) in found {
            guard let file = try directory.file(reading: FilePath(name)) else { continue }
            let delta = try file.readAll(limit: IndexLimits.byteCount)
            guard try isRestored(by: delta, from: bases[base]?.path, in: directory) else {
                continue
            }
            reference.deltas.append(
                PackIndex.Delta(
                    base: base,
                    url: "i/\(name)",
                    size: ByteCount(delta.count),
                    digest: Digest(of: delta)
                )
            )
        }
        return all - found.count
    }

    /// Returns whether a delta restores this index from an older one, if that is in the directory.
    private func isRestored(
        by delta: [UInt8],
        from base: FilePath?,
        in directory: Directory
    ) throws(FileError) -> Bool {
        let size = Int(reference.contentSize.rawValue)
        // Bytes that are no frame restore nothing.
        guard (try? FrameDecompressor.contentSize(of: delta.span)) == size else { return false }
        guard let base, let file = try directory.file(reading: base) else { return true }
        let stored = try file.readAll(limit: IndexLimits.byteCount)
        guard let old = try? Self.content(of: stored) else { return true }
        var decompressor = FrameDecompressor()
        let made = try? decompressor.decompress(delta.span, after: old.span, to: size)
        return made.map { Digest(of: $0) } == reference.contentDigest
    }

    /// Finds indexes in a directory by the digests of their decompressed bytes; the later their modification time, in
    /// nanoseconds since 1970, the newer is the version.
    ///
    /// Reads the newest indexes first, until all are found.
    private static func indexes(
        _ contents: Set<Digest>,
        in directory: Directory
    ) throws(FileError) -> [Digest: (path: FilePath, modified: Int64)] {
        var candidates: [(path: FilePath, modified: Int64)] = []
        for entry in try directory.entries()
        where (try? Digest(hexadecimal: entry.path.string)) != nil {
            guard let file = try directory.file(reading: entry.path) else { continue }
            candidates.append((entry.path, try file.identity().modified))
        }
        candidates.sort { $0.modified > $1.modified }
        var found: [Digest: (path: FilePath, modified: Int64)] = [:]
        for candidate in candidates {
            guard found.count < contents.count else { break }
            guard let file = try directory.file(reading: candidate.path) else { continue }
            // A damaged index belongs to no version.
            let stored = try file.readAll(limit: IndexLimits.byteCount)
            guard let content = try? content(of: stored) else { continue }
            let digest = Digest(of: content)
            if contents.contains(digest), found[digest] == nil { found[digest] = candidate }
        }
        return found
    }

    /// Finds the delta sets to this version, and adds them to the index deltas; of two from the same version,
    /// the smaller one.
    ///
    /// Skips damaged sets: clients do not need them.
    mutating func findDeltaSets(in folder: FilePath) throws(FileError) {
        guard let directory = try Self.existing(folder) else { return }
        for entry in try directory.entries().sorted(by: { $0.path.string < $1.path.string })
        where entry.kind == .file {
            guard let (found, set) = try deltaSet(entry.name, in: directory),
                let position = reference.deltas.firstIndex(where: { $0.base == set.old }),
                reference.deltas[position].frames.map({ $0.size > found.size }) ?? true
            else { continue }
            reference.deltas[position].frames = found
            deltaSets[set.old] = set
        }
    }

    /// Opens a directory of the store; `nil` if it does not exist.
    private static func existing(_ folder: FilePath) throws(FileError) -> Directory? {
        do throws(FileError) {
            return try Directory.open(folder)
        } catch  where error.errno == .noSuchFileOrDirectory {
            return nil
        }
    }

    /// Reads the table of a delta set; `nil` for a set of other indexes or with a wrong digest.
    private func deltaSet(
        _ name: FilePath.Component,
        in directory: Directory
    ) throws(FileError) -> (PackIndex.DeltaFrames, DeltaSet)? {
        guard let file = try directory.file(reading: FilePath(name)) else { return nil }
        let start = try file.head(DeltaSet.headLength)
        // Other files are not delta sets to this version.
        guard let head = try? DeltaSet.Head(decoding: start),
            head.new == reference.contentDigest
        else { return nil }
        let size = try file.status().size
        let table = try file.head(Int(min(Int64(head.tableSize), size)))
        guard let set = try? DeltaSet(decodingTable: table),
            Int64(table.count) + set.byteCount == size,
            size <= ManifestLimits.deltaSetSize.rawValue
        else { return nil }
        let digest = try Digest(of: file)
        guard digest.description == name.string else { return nil }
        let frames = PackIndex.DeltaFrames(
            size: ByteCount(size),
            digest: digest,
            tableSize: ByteCount(table.count),
            tableDigest: Digest(of: table)
        )
        return (frames, set)
    }
}

extension StoredIndex {
    /// Finds the patches to this version, and adds them to the index deltas; of two from the same version, the
    /// smaller one.
    ///
    /// Skips damaged patches: clients do not need them.
    mutating func findPatches(in folder: FilePath) throws(FileError) {
        guard let directory = try Self.existing(folder) else { return }
        let content = reference.contentDigest
        let entries = try directory.entries().sorted { $0.path.string < $1.path.string }
        for (position, delta) in reference.deltas.enumerated() {
            for entry in entries
            where entry.kind == .file
                && entry.path.string.hasSuffix(".of.\(content).from.\(delta.base)")
            {
                guard let file = try directory.file(reading: entry.path),
                    let found = try StoredPatch.reference(of: file, to: content, from: delta.base),
                    entry.name == FilePath(found.url).lastComponent,
                    reference.deltas[position].patch.map({ $0.size > found.size }) ?? true
                else { continue }
                reference.deltas[position].patch = found
            }
        }
    }

    /// Finds the deltas of the index for clients of the patches to this version, and adds them to the patches; of two
    /// for the same patch, the smaller one.
    ///
    /// Skips damaged deltas: clients do not need them. One whose older index is not in the store is compared only by
    /// the size of what it restores.
    mutating func findPatchIndexDeltas(in folder: FilePath) throws(FileError) {
        let patched = Set(reference.deltas.filter { $0.patch != nil }.map(\.base))
        guard !patched.isEmpty,
            let directory = try Self.existing(folder.isEmpty ? "." : folder)
        else { return }
        let content = reference.contentDigest
        var bases: Set<Digest> = []
        for entry in try directory.entries() {
            guard let name = StoreObjectName(entry.path.string), name.digest != nil,
                name.content == content, let base = name.base, patched.contains(base)
            else { continue }
            bases.insert(base)
        }
        guard !bases.isEmpty else { return }
        let paths = try Self.indexes(bases, in: directory)
        let size = Int(reference.contentSize.rawValue)
        for position in reference.deltas.indices
        where bases.contains(reference.deltas[position].base) {
            let base = reference.deltas[position].base
            let old = try Self.index(at: paths[base]?.path, in: directory)
            let expected = old.flatMap { IndexForPatch(of: index, from: $0) }
            // Without omitted digests, no delta is for clients of a patch.
            guard old == nil || expected != nil else { continue }
            let found = try StoredCompanionDelta.find(of: content, from: base, in: directory) {
                (try? FrameDecompressor.contentSize(of: $0.span)) == size
                    && expected?.isRestored(by: $0) ?? true
            }
            reference.deltas[position].patch?.indexDelta = found?.reference
        }
    }

    /// Decodes an older index; `nil` for one that the store lacks, or that does not fit in memory.
    private static func index(
        at path: FilePath?,
        in directory: Directory
    ) throws(FileError) -> ContentIndex? {
        guard let path, let file = try directory.file(reading: path) else { return nil }
        let stored = try file.readAll(limit: IndexLimits.byteCount)
        return (try? decode(stored, at: directory.path.pushing(path)))?.index
    }
}
