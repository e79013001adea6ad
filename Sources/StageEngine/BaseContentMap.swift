import StageContainer
import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// Lookup from content digest to location in the staged generation.
///
/// Stores hashes of digests beside the index, since it is in memory together with the index of the new version. Callers must
/// verify the content that they read.
struct BaseContentMap: Sendable {
    /// The digest of the index that the generation was made from; `nil` if it had none.
    private(set) var indexDigest: Digest?
    /// The index that the generation was made from; without one, the files of the listing, with the size 0.
    private(set) var index = ContentIndex()
    /// The entries of files by the hash of their digest.
    private var files: [Int: Int32] = [:]
    /// Locations of frames by the hash of their digest.
    private var frames: [Int: Location] = [:]

    private struct Location {
        var entry: Int32
        var offset: Int64
    }

    /// Reads the index of a generation, or its listing if it was made from an archive.
    init(of generation: Directory) throws(FileError) {
        if let bytes = try ContainerLayout.indexBytes(in: generation),
            // An index that does not decode is ignored in favour of the listing: callers verify all content
            // anyway.
            let decoded = try? ContentIndex(decoding: bytes)
        {
            indexDigest = Digest(of: bytes)
            index = decoded
            addFiles()
        } else {
            try ContentListing.forEachFile(in: generation) { path, digest in
                files[digest.hashValue] = Int32(index.entries.count)
                let file = ContentIndex.File(
                    isExecutable: false,
                    size: 0,
                    digest: digest,
                    content: .part(frame: 0, offset: 0)
                )
                let path = ContentPath(unchecked: String(decoding: path, as: UTF8.self))
                index.entries.append(ContentIndex.Entry(path: path, kind: .file(file)))
            }
        }
    }

    /// Returns the path of a file with this content.
    func path(of file: ContentIndex.File) -> String? {
        files[file.digest.hashValue].map(path)
    }

    /// Returns the location of this frame's content.
    func location(of frame: ContentIndex.Frame) -> (path: String, offset: Int64)? {
        frames[frame.digest.hashValue].map { (path($0.entry), $0.offset) }
    }

    /// Returns the file at a position of the index; `nil` without an index, or if it has no content.
    func file(at entry: Int) -> (path: String, size: Int64)? {
        guard indexDigest != nil, index.entries.indices.contains(entry) else { return nil }
        let size = index.entries.size(at: entry)
        return size > 0 ? (path(Int32(entry)), size) : nil
    }

    private func path(_ entry: Int32) -> String { index.entries.path(at: Int(entry)).text }

    private mutating func addFiles() {
        files.reserveCapacity(index.entries.count)
        for (position, file) in index.files where file.size > 0 {
            let entry = Int32(position)
            files[file.digest.hashValue] = entry
            guard case .frames(let list) = file.content else { continue }
            var offset: Int64 = 0
            for frame in list {
                let frame = index.frames[frame]
                frames[frame.digest.hashValue] = Location(entry: entry, offset: offset)
                offset += Int64(frame.length)
            }
        }
    }
}
