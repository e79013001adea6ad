import StageContainer
import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// Lookup from content digest to location in the staged generation.
///
/// Stores hashes of digests instead of digests, since it is in memory together with the index of the new
/// version. Callers must verify the content that they read.
struct BaseContentMap: Sendable {
    /// The digest of the index that the generation was made from; `nil` if it had none.
    private(set) var indexDigest: Digest?
    /// The paths of the files, one after the other.
    private var paths: [UInt8] = []
    private var list: [File] = []
    /// Files by the hash of their digest.
    private var files: [Int: Int32] = [:]
    /// Locations of frames by the hash of their digest.
    private var frames: [Int: Location] = [:]

    private struct File {
        /// The position in the index; -1 without an index.
        var entry: Int32
        /// The end of the path in `paths`.
        var end: UInt32
        var size: Int64
    }

    private struct Location {
        var file: Int32
        var offset: Int64
    }

    /// Reads the index of a generation, or its listing if it was made from an archive.
    init(of generation: Directory) throws(FileError) {
        if let bytes = try ContainerLayout.indexBytes(in: generation),
            // An index that does not decode is ignored in favour of the listing: callers verify all content
            // anyway.
            let index = try? ContentIndex(decoding: bytes)
        {
            indexDigest = Digest(of: bytes)
            add(index)
        } else {
            try ContentListing.forEachFile(in: generation) { path, digest in
                files[digest.hashValue] = add(path, entry: -1, size: 0)
            }
        }
    }

    /// Returns the path of a file with this content.
    func path(of file: ContentIndex.File) -> String? {
        files[file.digest.hashValue].map(path)
    }

    /// Returns the location of this frame's content.
    func location(of frame: ContentIndex.Frame) -> (path: String, offset: Int64)? {
        frames[frame.digest.hashValue].map { (path($0.file), $0.offset) }
    }

    /// Returns the file at a position of the index, by binary search.
    func file(at entry: Int) -> (path: String, size: Int64)? {
        let position = list.partitioningIndex { Int($0.entry) >= entry }
        guard position < list.count, Int(list[position].entry) == entry else { return nil }
        return (path(Int32(position)), list[position].size)
    }

    private func path(_ file: Int32) -> String {
        let start = file == 0 ? 0 : Int(list[Int(file) - 1].end)
        return String(decoding: paths[start..<Int(list[Int(file)].end)], as: UTF8.self)
    }

    private mutating func add(_ path: some Sequence<UInt8>, entry: Int, size: Int64) -> Int32 {
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
            let number = add(
                index.entries.pathBytes(at: position),
                entry: position,
                size: file.size
            )
            files[file.digest.hashValue] = number
            guard case .frames(let list) = file.content else { continue }
            var offset: Int64 = 0
            for frame in list {
                let frame = index.frames[frame]
                frames[frame.digest.hashValue] = Location(file: number, offset: offset)
                offset += Int64(frame.length)
            }
        }
    }
}
