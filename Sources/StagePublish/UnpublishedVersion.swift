import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// A version whose new frames are in temporary bundles.
struct UnpublishedVersion: ~Copyable {
    /// The index; its last bundles are the temporary ones.
    private(set) var index: ContentIndex
    /// The bundles of the frames that no earlier version has, followed by those of copied frames.
    var newBundles: TemporaryBundles
    /// The stored bytes of the frames that no earlier version has.
    private(set) var newBytes: Int64
    /// The stored bytes of frames that were copied from bundles of earlier versions.
    private(set) var repackedBytes: Int64 = 0

    init(index: ContentIndex, newBundles: consuming TemporaryBundles, newBytes: Int64) {
        self.index = index
        self.newBundles = newBundles
        self.newBytes = newBytes
    }

    /// Keeps the previous index, without temporary bundles, if no file has changed since.
    ///
    /// A newly created index may reference other locations, and clients would have to download it to learn
    /// that nothing has changed.
    mutating func keep(_ previous: ContentIndex) {
        guard index.hasFiles(of: previous) else { return }
        newBundles = TemporaryBundles(directory: newBundles.directory)
        index = previous
        newBytes = 0
    }

    /// The frames in the store and in the temporary bundles.
    var frames: StoredFrames {
        StoredFrames(index: index, bundles: newBundles.directory, temporaryNames: newBundles.names)
    }

    /// Moves the new frames at these positions after all other new ones, so that ranges over the others do
    /// not include them.
    ///
    /// Rewrites the temporary bundles if the order changes, which temporarily takes their size again on disk.
    /// The order of frames in the index does not change.
    mutating func putLast(_ positions: Set<Int>) throws(PackagingError) {
        let first = index.bundles.count - newBundles.bundles.count
        // New frames were stored in the order of the index.
        let new = index.frames.indices.filter { index.frames[$0].bundle >= first }
        let order = new.filter { !positions.contains($0) } + new.filter { positions.contains($0) }
        guard order != new else { return }
        let frames = frames
        var arranged = index
        var writer = BundleWriter(directory: newBundles.directory)
        for position in order {
            if Task.isCancelled { throw .cancelled }
            let location = try PackagingError.wrapping { () throws(FileError) in
                try writer.append(try Self.bytes(of: position, in: frames))
            }
            arranged.frames[position].bundle = first + location.bundle
            arranged.frames[position].offset = location.offset
        }
        // Assigning the new bundles removes the previous ones.
        newBundles = try Self.finish(writer)
        arranged.bundles.replaceSubrange(first..., with: newBundles.bundles)
        index = arranged
    }

    /// Copies the frames of sparsely used bundles of earlier versions to new bundles, and no longer names the old
    /// ones.
    ///
    /// Frames are copied as they are stored, to bundles without new frames: otherwise an update from the previous version would
    /// receive the copies as gaps between new frames. The index still names a bundle that is missing in the store. Not for an
    /// unchanged version, which keeps the previous index.
    mutating func repackBundles() throws(PackagingError) {
        let first = index.bundles.count - newBundles.bundles.count
        let frames = frames
        // A bundle that cannot be examined counts as missing.
        let present = (0..<first).filter { (try? frames.hasBundle($0)) == true }
        let planned = Set(RepackingPlan(for: index, available: present).bundles)
        var copied: [Int: [Int]] = [:]
        for position in index.frames.indices {
            let bundle = index.frames[position].bundle
            if planned.contains(bundle) { copied[bundle, default: []].append(position) }
        }
        var repacked = index
        var writer = BundleWriter(directory: newBundles.directory)
        var bytes: Int64 = 0
        for bundle in planned.sorted() {
            if Task.isCancelled { throw .cancelled }
            let positions = copied[bundle, default: []]
                .sorted { index.frames[$0].offset < index.frames[$1].offset }
            do throws(FileError) {
                for position in positions {
                    let location = try writer.append(try Self.bytes(of: position, in: frames))
                    repacked.frames[position].bundle = index.bundles.count + location.bundle
                    repacked.frames[position].offset = location.offset
                    bytes += Int64(index.frames[position].storedLength)
                }
            } catch {
                // The version is complete without copies. The next access reports what is wrong with the disk.
                return
            }
        }
        guard bytes > 0 else { return }
        var copies = try Self.finish(writer)
        repacked.bundles += copies.bundles
        repacked.dropUnusedBundles()
        newBundles.append(&copies)
        index = repacked
        repackedBytes = bytes
    }

    private static func finish(
        _ writer: consuming BundleWriter
    ) throws(PackagingError) -> TemporaryBundles {
        do throws(FileError) {
            return try writer.finish()
        } catch {
            throw .file(error)
        }
    }

    /// Reads a frame's stored bytes, and verifies them.
    private static func bytes(
        of position: Int,
        in frames: StoredFrames
    ) throws(FileError) -> [UInt8] {
        // The digest of the new bundle cannot detect corruption that happened before.
        guard let bytes = try frames.intact(position) else {
            throw FileError("read", path: frames.bundles.path, errno: .ioError)
        }
        return bytes
    }
}

extension ContentIndex {
    /// Returns whether the entries have the paths, kinds and contents of another index, independent of where
    /// frames are stored.
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
