import StageDigest
import StageFrame
public import StageIndex
public import StageModel
public import StageSystem
public import SystemPackage

/// Why a tree could not be packaged.
public enum PackageError: Error, Equatable, Sendable {
    /// A file has other bytes than when it was looked at.
    case changed(FilePath)
    /// The file system refused.
    case file(FileError)
}

extension PackageError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .changed(let path): "'\(path)' changed while it was packaged"
        case .file(let error): error.description
        }
    }
}

/// What packaging a tree has made.
public struct IndexedPack: Equatable, Sendable {
    /// The index.
    public var index: ContentIndex
    /// What a manifest says of it; the URLs are relative to the store.
    public var reference: PackIndex
    /// The bytes that no earlier version had, as they are stored: what is to be uploaded beside the
    /// index.
    public var newBytes: ByteCount
}

/// Packages a tree as an indexed pack: bundles `b/<SHA-256>` and the index `i/<SHA-256>` in a store,
/// which is a directory that any web server can serve.
///
/// Objects are written under names that nobody asks for, made durable, and then renamed; what there is
/// is never changed. The same tree and the same previous index give the same bytes.
public struct IndexedPackWriter: Sendable {
    /// The level of compression, 1 to 22.
    public var level = 19
    /// How many processors are used.
    public var width: Int
    /// The index of the version before; an empty one for none.
    public var previous = ContentIndex()
    /// Told how many bytes of files are done.
    public var report: @Sendable (ByteCount) -> Void = { _ in }

    /// Files under this size are gathered with others into frames.
    static let smallSize = Int64(64 << 10)
    /// The most bytes of a frame of gathered files.
    static let clusterSize = 256 << 10

    /// Creates a writer that uses so many processors.
    public init(width: Int) { self.width = max(width, 1) }

    /// Writes the objects of a pack that are not there yet.
    public func write(
        _ tree: SourceTree,
        to store: Directory
    ) async throws(PackageError) -> IndexedPack {
        let bundles: Directory
        do throws(FileError) {
            bundles = try store.makeDirectory("b")
        } catch {
            throw .file(error)
        }
        var run = IndexedPackRun(
            writer: self,
            packer: FramePacker(
                level: level,
                width: width,
                previous: previous,
                writer: BundleWriter(directory: bundles, after: previous.bundles)
            )
        )
        do throws(PackageError) {
            for entry in tree.entries { try await run.add(entry) }
        } catch {
            run.abandon()
            throw error
        }
        do throws(FileError) {
            let (index, newBytes) = try await run.finish()
            try bundles.synchronize()
            let reference = try writeIndex(index, to: store)
            return IndexedPack(index: index, reference: reference, newBytes: ByteCount(newBytes))
        } catch {
            throw .file(error)
        }
    }

    /// Writes the index, and the delta from the previous one.
    private func writeIndex(
        _ index: ContentIndex,
        to store: Directory
    ) throws(FileError) -> PackIndex {
        let directory = try store.makeDirectory("i")
        var compressor = FrameCompressor(level: 19)
        let content = index.encoded()
        let digest = Digest(of: content)
        let stored = compressor.compress(content.span)
        let name = Digest(of: stored)
        try directory.write(stored, to: FilePath.Component(stringLiteral: "\(name)"), durably: true)
        var reference = PackIndex(
            url: "i/\(name)",
            size: ByteCount(stored.count),
            digest: name,
            contentSize: ByteCount(content.count),
            contentDigest: digest,
            bundleSize: index.storedSize
        )
        guard !previous.entries.isEmpty else { return reference }
        let old = previous.encoded()
        let base = Digest(of: old)
        let delta = compressor.compress(content.span, after: old.span)
        guard base != digest, delta.count < stored.count else { return reference }
        let deltaName = "\(digest).from.\(base)"
        try directory.write(delta, to: FilePath.Component(stringLiteral: deltaName), durably: true)
        reference.deltas = [
            PackIndex.Delta(
                base: base,
                url: "i/\(deltaName)",
                size: ByteCount(delta.count),
                digest: Digest(of: delta)
            )
        ]
        return reference
    }
}
