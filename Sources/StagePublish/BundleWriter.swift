import StageDigest
import StageIndex
import StageModel
import StageSystem

/// Writes frames into bundles, one after the other.
struct BundleWriter: ~Copyable {
    /// What a bundle has at most: a mirror or a cache takes objects of this size gladly.
    static let size = Int64(64 << 20)

    /// A bundle that is being written.
    private struct Open: ~Copyable {
        let file: File
        var hasher = SHA256Hasher()
        var size: Int64 = 0
    }

    private var drafts: BundleDrafts
    private var open: Open?

    init(directory: Directory) { drafts = BundleDrafts(directory: directory) }

    /// Writes a frame as it is stored, and returns its bundle, among those of this writer, and its place
    /// there.
    mutating func append(_ bytes: [UInt8]) throws(FileError) -> (bundle: Int, offset: Int64) {
        if let size = open?.size, size > 0, size + Int64(bytes.count) > Self.size { try close() }
        if open == nil { open = Open(file: try drafts.makeFile()) }
        guard var current = open.take() else { preconditionFailure("a bundle is open") }
        let offset = current.size
        try current.file.write(bytes.span, at: offset)
        current.hasher.update(bytes.span)
        current.size += Int64(bytes.count)
        open = consume current
        return (drafts.bundles.count, offset)
    }

    /// Returns the bundles when all of them are on disk.
    consuming func finish() throws(FileError) -> BundleDrafts {
        try close()
        return drafts
    }

    private mutating func close() throws(FileError) {
        guard let current = open.take() else { return }
        let size = current.size
        try current.file.synchronize()
        drafts.add(ContentIndex.Bundle(digest: current.hasher.finish(), size: size))
    }
}
