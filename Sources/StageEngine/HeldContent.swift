import StageContainer
import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// What a staged generation has, by content: small, since it is held beside the index of a new version.
///
/// It says only where to look: what is found there is compared with the digest that it ought to have. So
/// digests are remembered by their hashes alone.
struct HeldContent: Sendable {
    /// The digest of the index that the generation was made from, if there was one.
    private(set) var indexDigest: Digest?
    /// The paths of the files, one after the other.
    private var paths: [UInt8] = []
    private var list: [File] = []
    /// A file with this content, by the hash of its digest.
    private var files: [Int: Int32] = [:]
    /// Where the content of a frame is, by the hash of its digest.
    private var frames: [Int: Place] = [:]

    private struct File {
        /// Its position in the index; -1 without one.
        var entry: Int32
        /// Where in `paths` its path ends.
        var end: UInt32
        var size: Int64
    }

    private struct Place {
        var file: Int32
        var offset: Int64
    }

    /// Finds out what a generation has: from its index, or from its listing where it was an archive.
    init(of generation: Directory) throws(FileError) {
        if let bytes = try ContainerLayout.indexBytes(in: generation),
            // Each byte that it leads to is verified, and without it the listing does.
            let index = try? ContentIndex(decoding: bytes)
        {
            indexDigest = Digest(of: bytes)
            add(index)
        } else {
            try ContentListing.forEachFile(in: generation) { path, digest in
                files[digest.hashValue] = add(path, -1, 0)
            }
        }
    }

    /// A file that had this content.
    func path(of file: ContentIndex.File) -> String? {
        files[file.digest.hashValue].map(path)
    }

    /// Where the content of this frame was.
    func place(of frame: ContentIndex.Frame) -> (path: String, offset: Int64)? {
        frames[frame.digest.hashValue].map { (path($0.file), $0.offset) }
    }

    /// The file at a position of the index.
    func file(at entry: Int) -> (path: String, size: Int64)? {
        var (low, high) = (0, list.count)
        while low < high {
            let middle = (low + high) / 2
            if Int(list[middle].entry) < entry { low = middle + 1 } else { high = middle }
        }
        guard low < list.count, Int(list[low].entry) == entry else { return nil }
        return (path(Int32(low)), list[low].size)
    }

    private func path(_ file: Int32) -> String {
        let start = file == 0 ? 0 : Int(list[Int(file) - 1].end)
        return String(decoding: paths[start..<Int(list[Int(file)].end)], as: UTF8.self)
    }

    private mutating func add(_ path: some Sequence<UInt8>, _ entry: Int, _ size: Int64) -> Int32 {
        paths += path
        list.append(File(entry: Int32(entry), end: UInt32(paths.count), size: size))
        return Int32(list.count - 1)
    }

    private mutating func add(_ index: ContentIndex) {
        let length = index.files.reduce(0) { $0 + index.entries.pathBytes(at: $1.position).count }
        paths.reserveCapacity(length)
        list.reserveCapacity(index.entries.count)
        files.reserveCapacity(index.entries.count)
        for (position, file) in index.files where file.size > 0 {
            let number = add(index.entries.pathBytes(at: position), position, file.size)
            files[file.digest.hashValue] = number
            guard case .frames(let list) = file.content else { continue }
            var offset: Int64 = 0
            for frame in list {
                let frame = index.frames[frame]
                frames[frame.digest.hashValue] = Place(file: number, offset: offset)
                offset += Int64(frame.length)
            }
        }
    }
}
