import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

extension StoredIndex {
    /// Finds what leads to this index from older ones in its folder, and returns the number of older versions above
    /// those that a manifest may name.
    mutating func findDeltas(in folder: FilePath) throws(FileError) -> Int {
        let directory = try Directory.open(folder.isEmpty ? "." : folder)
        var found: [(name: FilePath.Component, base: Digest)] = []
        let prefix = "\(reference.contentDigest).from."
        for entry in try directory.entries().sorted(by: { $0.name.string < $1.name.string })
        where entry.name.string.hasPrefix(prefix) {
            let text = String(entry.name.string.dropFirst(prefix.count))
            // A name that is no object's is none of the store's.
            guard let base = try? Digest(hexadecimal: text) else { continue }
            found.append((entry.name, base))
        }
        let all = found.count
        if all > ManifestLimits.deltas {
            let times = try Self.times(of: Set(found.map(\.base)), in: directory)
            func time(_ base: Digest) -> Int64 { times[base] ?? .min }
            found.sort { time($0.base) > time($1.base) }
            found.removeLast(all - ManifestLimits.deltas)
        }
        for (name, base) in found {
            guard let file = try directory.file(reading: FilePath(name)) else { continue }
            let delta = try file.readAll(limit: IndexLimits.byteCount)
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

    /// The times at which indexes were written into a folder, in nanoseconds since 1970, by the digests that they
    /// have decompressed: a later one is that of a newer version.
    private static func times(
        of indexes: Set<Digest>,
        in directory: Directory
    ) throws(FileError) -> [Digest: Int64] {
        var times: [Digest: Int64] = [:]
        for entry in try directory.entries()
        where (try? Digest(hexadecimal: entry.name.string)) != nil {
            guard let file = try directory.file(reading: FilePath(entry.name)) else { continue }
            let stored = try file.readAll(limit: IndexLimits.byteCount)
            // A damaged file is the index of no version.
            guard let content = try? content(of: stored) else { continue }
            let digest = Digest(of: content)
            if indexes.contains(digest) { times[digest] = try file.identity().modified }
        }
        return times
    }

    /// Finds the delta sets that make this version, and names them beside the deltas of the index; of
    /// two from one version, the smaller.
    ///
    /// What is not whole is passed over: clients do without.
    mutating func findDeltaSets(in folder: FilePath) throws(FileError) {
        let directory: Directory
        do throws(FileError) {
            directory = try Directory.open(folder)
        } catch  where error.errno == .noSuchFileOrDirectory {
            return
        }
        for entry in try directory.entries().sorted(by: { $0.name.string < $1.name.string })
        where entry.kind == .file {
            guard let (found, set) = try deltaSet(entry.name, in: directory),
                let place = reference.deltas.firstIndex(where: { $0.base == set.old }),
                reference.deltas[place].frames.map({ $0.size > found.size }) ?? true
            else { continue }
            reference.deltas[place].frames = found
            deltaSets[set.old] = set
        }
    }

    /// Reads the table of a delta set; `nil` for one of other indexes, or that is not what its name
    /// says.
    private func deltaSet(
        _ name: FilePath.Component,
        in directory: Directory
    ) throws(FileError) -> (PackIndex.DeltaFrames, DeltaSet)? {
        guard let file = try directory.file(reading: FilePath(name)) else { return nil }
        var bytes = [UInt8](repeating: 0, count: DeltaSet.headLength)
        let count = try file.read(into: &bytes, at: 0)
        // What is no delta set is none of this version's.
        guard let head = try? DeltaSet.Head(decoding: Array(bytes[..<count])),
            head.new == reference.contentDigest
        else { return nil }
        let size = try file.status().size
        bytes = [UInt8](repeating: 0, count: Int(min(Int64(head.tableSize), size)))
        let tableSize = try file.read(into: &bytes, at: 0)
        guard let set = try? DeltaSet(decodingTable: Array(bytes[..<tableSize])),
            Int64(tableSize) + set.byteCount == size,
            size <= ManifestLimits.deltaSetSize.rawValue
        else { return nil }
        let digest = try Digest(of: file)
        guard digest.description == name.string else { return nil }
        let frames = PackIndex.DeltaFrames(
            size: ByteCount(size),
            digest: digest,
            tableSize: ByteCount(tableSize),
            tableDigest: Digest(of: Array(bytes[..<tableSize]))
        )
        return (frames, set)
    }
}
