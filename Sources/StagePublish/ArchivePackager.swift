import StageArchive
import StageDigest
package import StageModel
import StageSystem
package import SystemPackage

/// Creates an archive of the files that a recipe selects; equal files give equal archives.
///
/// The output does not depend on times, owners, the order of directory entries or the number of processors.
/// Another version of a compressor may produce other bytes.
package struct ArchivePackager: Sendable {
    /// The archive format, one that ``StageArchive/ArchiveWriter`` supports.
    package var format: ArchiveFormat
    /// The compression level; `nil` for one that compresses slowly and decompresses fast, or for the fastest if a fast
    /// compression of the files gains nothing.
    package var level: Int?
    /// The number of compression threads, if the format supports them; memory grows with them.
    package var threads: Int
    /// Called on a thread of the packager after each buffer that was read or written.
    package var progress: @Sendable (PackagingProgress) -> Void = { _ in }

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
        try await withCancellableThread { cancellation throws(PackagingError) in
            try write(evaluation, to: output, cancellation: cancellation)
        }
    }

    /// Returns the level to use for the files of a recipe.
    private func level(
        for evaluation: RecipeEvaluation,
        cancellation: Cancellation
    ) throws(PackagingError) -> Int {
        if let level { return level }
        let usual = Self.usualLevel(of: format)
        guard let fastest = ArchiveWriter.levels(of: format)?.lowerBound, fastest < usual else {
            return usual
        }
        let trial = try CompressionTrial(
            evaluation,
            width: threads,
            cancellation: cancellation,
            progress: progress
        )
        return trial.promisesGain ? usual : fastest
    }

    private static func usualLevel(of format: ArchiveFormat) -> Int {
        switch format {
        case .tarZstandard: 19
        case .tarGzip: 9
        case .tarXZ: 6
        default: 0
        }
    }

    private func write(
        _ evaluation: RecipeEvaluation,
        to output: FilePath,
        cancellation: Cancellation
    ) throws(PackagingError) -> PackagedArchive {
        let target = try OutputFile(output)
        let digest: Digest
        do throws(PackagingError) {
            let size = { target.size }
            try write(
                evaluation,
                level: try level(for: evaluation, cancellation: cancellation),
                cancellation: cancellation,
                written: size,
                to: { (bytes) throws(FileError) in try target.append(bytes) }
            )
            // Compressors read much input before they write: most of the time passes at the end.
            if cancellation.isRequested { throw .cancelled }
            // Without a record while the archive is replaced: one of another archive would refuse the new one.
            try PackagingError.wrapping { () throws(FileError) in
                try PackRecord.remove(beside: output)
            }
            digest = try target.publish()
            try PackagingError.wrapping { () throws(FileError) in
                try PackRecord(of: digest, from: evaluation.recipe).write(beside: output)
            }
        } catch {
            target.discard()
            throw error
        }
        return PackagedArchive(
            pack: evaluation.recipe.pack,
            policy: evaluation.recipe.policy,
            userInfo: evaluation.recipe.userInfo,
            format: format,
            size: target.size,
            digest: digest,
            installedSize: evaluation.installedSize,
            fileCount: evaluation.fileCount
        )
    }

    /// Writes the archive to a sink, which receives its bytes in order.
    ///
    /// - Parameters:
    ///   - evaluation: The entries to archive.
    ///   - level: The compression level; 0 for a format that has none.
    ///   - cancellation: Polled after each buffer.
    ///   - digests: The expected digests of files, by the bytes of their paths; other files are not verified.
    ///   - written: Returns the bytes that the sink has written.
    ///   - sink: Receives the bytes.
    /// - Throws: ``PackagingError``; the sink's output is incomplete then.
    func write(
        _ evaluation: RecipeEvaluation,
        level: Int = 0,
        cancellation: Cancellation,
        expecting digests: [[UInt8]: Digest] = [:],
        written: @escaping () -> ByteCount,
        to sink: @escaping (Span<UInt8>) throws(FileError) -> Void
    ) throws(PackagingError) {
        var count = PackagingProgress()
        var archive = try Archive(format, level: level, threads: threads) {
            (bytes) throws(FileError) in
            try sink(bytes)
            count.written = written()
            progress(count)
        }
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        for entry in evaluation.entries {
            if cancellation.isRequested { throw .cancelled }
            try archive.add(entry)
            guard case .file = entry.content.kind else { continue }
            let digest = digests[Array(entry.content.path.text.utf8)]
            try archive.addContent(
                of: entry,
                expecting: digest,
                cancellation: cancellation,
                using: &buffer
            ) {
                count.read = count.read + ByteCount($0)
                progress(count)
            }
        }
        try archive.finish()
    }
}

/// The progress of writing an archive.
package struct PackagingProgress: Equatable, Sendable {
    /// True while the files are compressed in a trial, which decides the archive's level and whose output is not kept.
    package var isTrial = false
    /// The bytes of files that have been read, of which the compressor may still have most.
    package var read = ByteCount.zero
    /// The bytes of the archive that have been written.
    package var written = ByteCount.zero
}

/// An archive writer that throws ``PackagingError``.
private struct Archive: ~Copyable {
    private var writer: ArchiveWriter

    init(
        _ format: ArchiveFormat,
        level: Int,
        threads: Int,
        sink: @escaping (Span<UInt8>) throws(FileError) -> Void
    ) throws(PackagingError) {
        do throws(ArchiveWritingError) {
            writer = try ArchiveWriter(format, level: level, threads: threads, sink: sink)
        } catch {
            throw PackagingError(error)
        }
    }

    mutating func add(_ entry: RecipeEvaluation.Entry) throws(PackagingError) {
        do throws(ArchiveWritingError) {
            try writer.add(entry.content, size: entry.size)
        } catch {
            throw PackagingError(error)
        }
    }

    /// Writes the content of a file entry, whose size must match; with a digest, its content must match too.
    mutating func addContent(
        of entry: RecipeEvaluation.Entry,
        expecting digest: Digest?,
        cancellation: Cancellation,
        using buffer: inout [UInt8],
        progress: (Int) -> Void
    ) throws(PackagingError) {
        let file = try PackagingError.wrapping { () throws(FileError) in
            try File.open(readingRegular: entry.file)
        }
        var hasher = digest == nil ? nil : SHA256Hasher()
        var offset: Int64 = 0
        while true {
            let count: Int
            do throws(FileError) {
                count = try file.read(into: &buffer, at: offset)
            } catch {
                throw .file(error)
            }
            offset += Int64(count)
            guard count > 0, offset <= entry.size.rawValue else { break }
            if cancellation.isRequested { throw .cancelled }
            let piece = buffer.span.extracting(0..<count)
            hasher?.update(piece)
            try write(piece)
            progress(count)
        }
        guard offset == entry.size.rawValue, hasher.take()?.finish() == digest else {
            throw .changed(source: entry.source)
        }
    }

    mutating func write(_ bytes: Span<UInt8>) throws(PackagingError) {
        do throws(ArchiveWritingError) {
            try writer.write(bytes)
        } catch {
            throw PackagingError(error)
        }
    }

    consuming func finish() throws(PackagingError) {
        do throws(ArchiveWritingError) {
            try writer.finish()
        } catch {
            throw PackagingError(error)
        }
    }
}

extension PackagingError {
    fileprivate init(_ error: ArchiveWritingError) {
        switch error {
        case .output(let error): self = .file(error)
        case .library(let words): self = .compressor(words)
        }
    }
}
