import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

extension StoredIndex {
    /// Finds what leads to this index from older ones, among the names of its folder.
    mutating func findDeltas(named names: [String], in folder: FilePath) throws(FileError) {
        for name in names.sorted() where name.hasPrefix("\(reference.contentDigest).from.") {
            let base = try? Digest(hexadecimal: String(name.suffix(2 * Digest.byteCount)))
            guard let base, let component = FilePath.Component(name) else { continue }
            let delta = try File.open(readingRegular: folder.appending(component))
                .readAll(limit: IndexLimits.byteCount)
            reference.deltas.append(
                PackIndex.Delta(
                    base: base,
                    url: "i/\(name)",
                    size: ByteCount(delta.count),
                    digest: Digest(of: delta)
                )
            )
        }
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
