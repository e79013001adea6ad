import StageDigest
import StageIndex
import StageModel
import StageSystem

/// Writes frames to consecutive bundles.
struct BundleWriter: ~Copyable {
    /// The largest bundle in bytes, a size that mirrors and caches handle well.
    static let size = Int64(64 << 20)

    /// A bundle that is being written.
    private struct Open: ~Copyable {
        let file: File
        var hasher = SHA256Hasher()
        var size: Int64 = 0
    }

    private var newBundles: TemporaryBundles
    private var open: Open?

    init(directory: Directory) { newBundles = TemporaryBundles(directory: directory) }

    /// Writes a stored frame, and returns its bundle's position among those of this writer and its offset
    /// there.
    mutating func append(_ bytes: [UInt8]) throws(FileError) -> (bundle: Int, offset: Int64) {
        if let size = open?.size, size > 0, size + Int64(bytes.count) > Self.size { try close() }
        if open == nil { open = Open(file: try newBundles.makeFile()) }
        guard var current = open.take() else { preconditionFailure("a bundle is open") }
        let offset = current.size
        try current.file.write(bytes.span, at: offset)
        current.hasher.update(bytes.span)
        current.size += Int64(bytes.count)
        open = consume current
        return (newBundles.bundles.count, offset)
    }

    /// Syncs and returns the bundles.
    consuming func finish() throws(FileError) -> TemporaryBundles {
        try close()
        return newBundles
    }

    private mutating func close() throws(FileError) {
        guard let current = open.take() else { return }
        let size = current.size
        try current.file.synchronize()
        newBundles.add(ContentIndex.Bundle(digest: current.hasher.finish(), size: size))
    }
}
