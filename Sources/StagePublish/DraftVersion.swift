import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// A version whose new frames are in bundles that nobody asks for yet.
struct DraftVersion: ~Copyable {
    /// The index; its last bundles are the drafts.
    private(set) var index: ContentIndex
    /// The bundles of the frames that no earlier version had.
    var drafts: BundleDrafts
    /// The bytes of these frames, as they are stored.
    private(set) var newBytes: Int64

    init(index: ContentIndex, drafts: consuming BundleDrafts, newBytes: Int64) {
        self.index = index
        self.drafts = drafts
        self.newBytes = newBytes
    }

    /// Takes the index of the previous version as it is, without a draft, where no file has changed since.
    ///
    /// Files may have other places in an index that was made anew, and then clients would fetch the index to
    /// learn that.
    mutating func keep(_ previous: ContentIndex) {
        guard index.hasFiles(of: previous) else { return }
        drafts = BundleDrafts(directory: drafts.directory)
        index = previous
        newBytes = 0
    }

    /// The frames, in the store and in the drafts.
    var frames: StoredFrames {
        StoredFrames(index: index, bundles: drafts.directory, drafts: drafts.names)
    }

    /// Puts the new frames at these positions behind all other new ones, so that neither lie in between
    /// for who wants only the others.
    ///
    /// Drafts are written anew where that changes anything, which takes their size on disk once more
    /// meanwhile. The order of the frames in the index stays.
    mutating func putLast(_ positions: Set<Int>) throws(PackagingError) {
        let first = index.bundles.count - drafts.bundles.count
        // They came in the order of the index.
        let new = index.frames.indices.filter { index.frames[$0].bundle >= first }
        let order = new.filter { !positions.contains($0) } + new.filter { positions.contains($0) }
        guard order != new else { return }
        let frames = frames
        var arranged = index
        var writer = BundleWriter(directory: drafts.directory)
        for position in order {
            if Task.isCancelled { throw .cancelled }
            let place = try PackagingError.wrapping { () throws(FileError) in
                try writer.append(try Self.bytes(of: position, in: frames))
            }
            arranged.frames[position].bundle = first + place.bundle
            arranged.frames[position].offset = place.offset
        }
        do throws(FileError) {
            // The ones before are removed with that.
            drafts = try writer.finish()
        } catch {
            throw .file(error)
        }
        arranged.bundles.replaceSubrange(first..., with: drafts.bundles)
        index = arranged
    }

    /// Reads a frame as it is stored.
    private static func bytes(
        of position: Int,
        in frames: StoredFrames
    ) throws(FileError) -> [UInt8] {
        // The digest of the bundle that it goes into says nothing about what it was.
        guard let bytes = try frames.stored(position),
            Digest(of: bytes) == frames.index.frames[position].storedDigest
        else {
            throw FileError("read", frames.bundles.path, .ioError)
        }
        return bytes
    }
}

extension ContentIndex {
    /// Whether the entries have the paths, kinds and contents of another index, wherever these are stored.
    fileprivate func hasFiles(of other: ContentIndex) -> Bool {
        entries.count == other.entries.count
            && entries.indices.allSatisfy { position in
                guard entries.pathBytes(at: position) == other.entries.pathBytes(at: position)
                else { return false }
                guard let file = entries.file(at: position),
                    let older = other.entries.file(at: position)
                else { return entries.kind(at: position) == other.entries.kind(at: position) }
                return file.isExecutable == older.isExecutable && file.size == older.size
                    && file.digest == older.digest
            }
    }
}
