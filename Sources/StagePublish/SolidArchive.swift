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
    /// `true` to compress incompressible files fast.
    var triesFast: Bool
    /// The number of compression threads.
    var width: Int
    /// Called with the bytes that were read and written.
    var report: @Sendable (PackagingProgress) -> Void

    /// Returns the archive of a version in a store: an existing one, or a new one.
    ///
    /// - Returns: The reference to the archive for the manifest, with a URL relative to the store; `nil` if a first installation
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
        let archive = try await ZstandardArchive(
            of: evaluation,
            level: level,
            triesFast: triesFast,
            width: width,
            report: report
        )
        return try await withCancellableThread { cancellation throws(PackagingError) in
            if archive.isIncompressible {
                // Compressed twice, since a file that is not kept would take the space of all content for a moment.
                let size = try archive.size(
                    of: evaluation,
                    comparedWith: objects.index,
                    cancellation: cancellation
                )
                guard Self.isWorthKeeping(size, besides: objects) else { return nil }
            }
            return try make(
                archive,
                of: evaluation,
                and: objects,
                in: store,
                cancellation: cancellation
            )
        }
    }

    private func make(
        _ archive: ZstandardArchive,
        of evaluation: RecipeEvaluation,
        and objects: IndexObjects,
        in store: Directory,
        cancellation: Cancellation
    ) throws(PackagingError) -> PackArchive? {
        let file = try PackagingError.wrapping { () throws(FileError) in
            try TemporaryArchive(
                in: try store.makeDirectory(FilePath(StoreObjectKind.archive.folder))
            )
        }
        do throws(PackagingError) {
            try archive.write(
                evaluation,
                comparedWith: objects.index,
                cancellation: cancellation
            ) { (bytes) throws(FileError) in try file.append(bytes) }
            guard Self.isWorthKeeping(file.size, besides: objects) else {
                file.discard()
                return nil
            }
            return try file.publish(
                of: objects.contentDigest,
                window: ByteCount(archive.window)
            )
        } catch {
            file.discard()
            throw error
        }
    }

    /// Returns whether a first installation downloads over 2 % fewer bytes with an archive of a size than with frames.
    private static func isWorthKeeping(_ size: ByteCount, besides objects: IndexObjects) -> Bool {
        let index = objects.index
        // A client requests all frames in few ranges, including the gaps between them.
        let frames = RangePlan(index.frames.indices, of: index).byteCount
        return size.rawValue * 50 < ByteCount(frames + objects.saving).rawValue * 49
    }
}

/// An archive under a temporary name, until it is complete.
///
/// Not thread-safe. End it with ``publish(of:window:)`` or ``discard()``.
private final class TemporaryArchive {
    private(set) var size = ByteCount.zero
    private let directory: Directory
    private let name = StoreObjectKind.archive.makeName()
    private let file: File
    private var hasher: SHA256Hasher? = SHA256Hasher()

    init(in directory: Directory) throws(FileError) {
        self.directory = directory
        file = try directory.file(creating: FilePath(name), for: nil)
    }

    /// Appends bytes, and returns the size of the file.
    func append(_ bytes: Span<UInt8>) throws(FileError) -> ByteCount {
        try file.write(bytes, at: size.rawValue)
        hasher?.update(bytes)
        size = size + ByteCount(bytes.count)
        return size
    }

    /// Syncs the archive, renames it to its final name, and syncs the directory.
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
            size: size,
            window: window
        )
        let target = FilePath.Component(
            stringLiteral: StoredArchive.name(archive.digest, of: content)
        )
        try PackagingError.wrapping { () throws(FileError) in
            try file.synchronize()
            try directory.rename(FilePath(name), over: target)
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
