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
    /// The paths of the files, one after the other.
    private var paths: [UInt8] = []
    /// Where in `paths` each file's ends.
    private var ends: [Int] = []
    /// A file with this content, by the hash of its digest.
    private var files: [Int: Int32] = [:]
    /// Where the content of a frame is, by the hash of its digest.
    private var frames: [Int: Place] = [:]

    private struct Place {
        var file: Int32
        var offset: Int64
    }

    /// Finds out what a generation has: from its index, or from its listing where it was an archive.
    init(of generation: Directory) throws(FileError) {
        if let index = try IndexedWork.storedIndex(in: generation) {
            add(index)
        } else {
            try ContentListing.forEachFile(in: generation) { path, digest in
                files[digest.hashValue] = add(path)
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

    private func path(_ file: Int32) -> String {
        let start = file == 0 ? 0 : ends[Int(file) - 1]
        return String(decoding: paths[start..<ends[Int(file)]], as: UTF8.self)
    }

    private mutating func add(_ path: some Sequence<UInt8>) -> Int32 {
        paths += path
        ends.append(paths.count)
        return Int32(ends.count - 1)
    }

    private mutating func add(_ index: ContentIndex) {
        let length = index.files.reduce(0) { $0 + $1.path.text.utf8.count }
        paths.reserveCapacity(length)
        for (_, path, file) in index.files where file.size > 0 {
            let number = add(path.text.utf8)
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
