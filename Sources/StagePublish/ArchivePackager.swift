import StageArchive
import StageDigest
import StageFrame
package import StageModel
import StageSystem
import Synchronization
package import SystemPackage

/// Creates an archive of the files that a recipe selects; equal files give equal archives.
///
/// The output does not depend on times, owners, the order of directory entries or the number of processors.
/// Another version of a compressor may produce other bytes.
package struct ArchivePackager: Sendable {
    /// The archive format, one that has ``levels(of:)``.
    package var format: ArchiveFormat
    /// The compression level; `nil` for one that compresses slowly and decompresses fast, and with Zstandard for the
    /// fastest of incompressible files.
    package var level: Int?
    /// The number of compression threads, if the format supports them; memory grows with them.
    package var threads: Int
    /// Called after each buffer that was read or written, and in a trial after some megabytes.
    package var progress: @Sendable (PackagingProgress) -> Void = { _ in }

    /// The window of Zstandard in bytes, which every decoder of the archive keeps in memory.
    private static let window = 8 << 20

    /// Returns the compression levels of a format, `0...0` if it has none; `nil` if the format cannot be
    /// written.
    package static func levels(of format: ArchiveFormat) -> ClosedRange<Int>? {
        format == .tarZstandard ? 1...19 : ArchiveWriter.levels(of: format)
    }

    /// Creates a packager.
    package init(format: ArchiveFormat, level: Int? = nil, threads: Int) {
        self.format = format
        self.level = level
        self.threads = threads
    }

    /// Writes the archive to `output`, which is replaced atomically once the archive is on disk, and its ``PackRecord``
    /// beside it.
    ///
    /// Leaves no file on failure or cancellation.
    package func write(
        _ evaluation: RecipeEvaluation,
        to output: FilePath
    ) async throws(PackagingError) -> PackagedArchive {
        // Created first, so that a path that cannot be written is an error before any work. Only this task and the thread
        // that it waits for lock it.
        let target = Mutex(try OutputFile(output))
        do throws(PackagingError) {
            let archive = format == .tarZstandard ? try await zstandard(for: evaluation) : nil
            return try await withCancellableThread { cancellation throws(PackagingError) in
                try target.withLock { target throws(PackagingError) in
                    let target = target
                    if let archive {
                        try archive.write(evaluation, cancellation: cancellation) {
                            (bytes) throws(FileError) in
                            try target.append(bytes)
                            return target.size
                        }
                    } else {
                        try fill(target, with: evaluation, cancellation: cancellation)
                    }
                    // Compressors read much before they write: most of the time may have passed since the last check.
                    if cancellation.isRequested { throw .cancelled }
                    return try publish(target, of: evaluation)
                }
            }
        } catch {
            target.withLock { $0.discard() }
            throw error
        }
    }

    private func zstandard(
        for evaluation: RecipeEvaluation
    ) async throws(PackagingError) -> ZstandardArchive {
        try await ZstandardArchive(
            of: evaluation,
            level: level ?? Self.usualLevel(of: format),
            triesFast: level == nil,
            largestWindow: Self.window,
            width: threads,
            report: progress
        )
    }

    private static func usualLevel(of format: ArchiveFormat) -> Int {
        switch format {
        case .tarZstandard: 19
        case .tarGzip: 9
        case .tarXZ: 6
        default: 0
        }
    }

    /// Writes an archive in a format that libarchive compresses.
    private func fill(
        _ target: OutputFile,
        with evaluation: RecipeEvaluation,
        cancellation: Cancellation
    ) throws(PackagingError) {
        var count = PackagingProgress()
        var writer = try EntryWriter(
            format,
            level: level ?? Self.usualLevel(of: format),
            threads: threads,
            cancellation: cancellation
        ) { (bytes) throws(FileError) in
            try target.append(bytes)
            count.written = target.size
            progress(count)
        }
        var buffer = EntryWriter.makeBuffer()
        for entry in evaluation.entries {
            try writer.add(entry, using: &buffer) {
                count.read = count.read + ByteCount($0)
                progress(count)
            }
        }
        try writer.finish()
    }

    private func publish(
        _ target: OutputFile,
        of evaluation: RecipeEvaluation
    ) throws(PackagingError) -> PackagedArchive {
        let digest = try PackagingError.wrapping { () throws(FileError) -> Digest in
            let digest = try target.complete()
            try PackRecord(of: digest, from: evaluation.recipe)
                .write(beside: target.path) { () throws(FileError) in try target.publish() }
            return digest
        }
        return PackagedArchive(
            pack: evaluation.recipe.pack,
            policy: evaluation.recipe.policy,
            userInfo: evaluation.recipe.userInfo,
            format: format,
            size: target.size,
            digest: digest,
            installedSize: evaluation.installedSize,
            fileCount: evaluation.fileCount,
            directoryCount: evaluation.directoryCount
        )
    }
}

/// The progress of writing an archive.
package struct PackagingProgress: Equatable, Sendable {
    /// `true` during a trial, which compresses the files only to measure their compressed sizes.
    package var isTrial = false
    /// The bytes of files that have been read, of which the compressor may still have most.
    package var read = ByteCount.zero
    /// The bytes of the archive that have been written.
    package var written = ByteCount.zero
}
