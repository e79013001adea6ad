import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// The archive of an indexed pack: all files compressed as one stream, so that a first installation transfers
/// fewer bytes than with separate frames, in one request.
///
/// Its name is `a/<SHA-256 of the archive>.of.<SHA-256 of the decompressed index>`.
struct SolidArchive: Sendable {
    /// The compression level, 1 to 22.
    var level: Int
    /// Whether content that gains nothing is compressed fast instead.
    var triesFast: Bool
    /// The number of compression threads.
    var width: Int
    /// Called with the bytes that were read and written.
    var report: @Sendable (PackagingProgress) -> Void

    /// Returns the archive of a version in a store: an existing one, or a new one.
    ///
    /// - Returns: Its reference for the manifest, with a URL relative to the store; `nil` if a first installation
    ///   from frames, index included, downloads at most 1/49 more bytes. An existing archive is returned anyway.
    func write(
        _ evaluation: RecipeEvaluation,
        of objects: IndexObjects,
        to store: Directory
    ) async throws(PackagingError) -> PackArchive? {
        let present = try PackagingError.wrapping { () throws(FileError) in
            try StoredArchive.find(of: objects.contentDigest, in: store)
        }
        if let present { return present }
        return try await withCancellableThread { cancellation throws(PackagingError) in
            try make(evaluation, of: objects, in: store, cancellation: cancellation)
        }
    }

    private func make(
        _ evaluation: RecipeEvaluation,
        of objects: IndexObjects,
        in store: Directory,
        cancellation: Cancellation
    ) throws(PackagingError) -> PackArchive? {
        let window = StreamCompressor.window(for: evaluation.archiveBound)
        let index = objects.index
        // A client requests all frames in few ranges, including the gaps between them.
        let breakEven = ByteCount(
            RangePlan(index.frames.indices, of: index).byteCount + objects.saving
        )
        var level = level
        if triesFast, level > CompressionTrial.level {
            let trial = try CompressionTrial(
                evaluation,
                width: width,
                cancellation: cancellation,
                progress: report
            )
            if !trial.promisesGain {
                guard Self.isWorthKeeping(trial.size, below: breakEven) else { return nil }
                level = CompressionTrial.level
            }
        }
        let archive = try PackagingError.wrapping { () throws(FileError) in
            let directory = try store.makeDirectory(FilePath(StoreObjectKind.archive.folder))
            return try TemporaryArchive(
                in: directory,
                compressor: StreamCompressor(level: level, window: window, width: width)
            )
        }
        do throws(PackagingError) {
            try fill(archive, with: evaluation, of: index, cancellation: cancellation)
            guard Self.isWorthKeeping(ByteCount(archive.size), below: breakEven) else {
                archive.discard()
                return nil
            }
            return try archive.publish(of: objects.contentDigest, window: ByteCount(window))
        } catch {
            archive.discard()
            throw error
        }
    }

    /// Returns whether an archive is smaller, by more than a fiftieth, than one that saves a first installation
    /// nothing.
    private static func isWorthKeeping(_ size: ByteCount, below breakEven: ByteCount) -> Bool {
        size.rawValue * 50 < breakEven.rawValue * 49
    }

    private func fill(
        _ archive: TemporaryArchive,
        with evaluation: RecipeEvaluation,
        of index: ContentIndex,
        cancellation: Cancellation
    ) throws(PackagingError) {
        // Compares bytes: names that are canonically equivalent in Unicode are different files.
        var digests: [[UInt8]: Digest] = [:]
        for position in index.entries.indices {
            guard let file = index.entries.file(at: position) else { continue }
            digests[Array(index.entries.pathBytes(at: position))] = file.digest
        }
        var packager = ArchivePackager(format: .tar, threads: 1)
        packager.progress = report
        let size = { ByteCount(archive.size) }
        try packager.write(
            evaluation,
            cancellation: cancellation,
            expecting: digests,
            written: size
        ) {
            (bytes) throws(FileError) in try archive.append(bytes)
        }
        if cancellation.isRequested { throw .cancelled }
        try PackagingError.wrapping { () throws(FileError) in try archive.finish() }
    }
}

/// An archive under a temporary name, until it is complete.
///
/// Not thread-safe. End it with ``publish(of:window:)`` or ``discard()``.
private final class TemporaryArchive {
    private(set) var size = Int64(0)
    private let directory: Directory
    private let name = StoreObjectKind.archive.makeName()
    private let file: File
    private let compressor: SharedStreamCompressor
    private var hasher: SHA256Hasher? = SHA256Hasher()

    init(
        in directory: Directory,
        compressor: consuming StreamCompressor
    ) throws(FileError) {
        self.directory = directory
        self.compressor = SharedStreamCompressor(compressor)
        file = try directory.file(creating: FilePath(name))
    }

    /// Compresses bytes and appends them to the file.
    func append(_ bytes: Span<UInt8>) throws(FileError) {
        try compressor.write(bytes) { (made) throws(FileError) in try write(made) }
    }

    /// Writes the rest of the compressed data, and syncs the file.
    func finish() throws(FileError) {
        try compressor.finish { (made) throws(FileError) in try write(made) }
        try file.synchronize()
    }

    private func write(_ bytes: Span<UInt8>) throws(FileError) {
        try file.write(bytes, at: size)
        hasher?.update(bytes)
        size += Int64(bytes.count)
    }

    /// Renames the archive to its final name, and syncs the directory.
    func publish(
        of content: Digest,
        window: ByteCount
    ) throws(PackagingError) -> PackArchive {
        guard let hasher = hasher.take() else {
            preconditionFailure("an archive is published once")
        }
        let archive = StoredArchive.reference(
            digest: hasher.finish(),
            content: content,
            size: ByteCount(size),
            window: window
        )
        let target = FilePath.Component(
            stringLiteral: StoredArchive.name(archive.digest, of: content)
        )
        try PackagingError.wrapping { () throws(FileError) in
            try directory.rename(name, to: target, in: directory)
            try directory.synchronize()
        }
        return archive
    }

    /// Removes the temporary file.
    func discard() {
        // The first error is the one to report.
        _ = try? directory.remove(name)
    }
}
