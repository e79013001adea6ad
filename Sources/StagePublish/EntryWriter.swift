import StageArchive
import StageDigest
import StageModel
import StageSystem

/// Writes entries of a recipe to an archive, with their content.
struct EntryWriter: ~Copyable {
    private var writer: ArchiveWriter
    private let cancellation: Cancellation

    /// Starts an archive as ``StageArchive/ArchiveWriter`` does.
    ///
    /// - Parameters:
    ///   - format: The archive format.
    ///   - level: The compression level; 0 for a format that has none.
    ///   - threads: The number of compression threads.
    ///   - isBuffered: Indicates whether the sink may receive bytes later than they are written.
    ///   - cancellation: Polled after each buffer.
    ///   - sink: Receives the bytes of the archive, in order.
    /// - Throws: ``PackagingError/compressor(_:)`` with the words of libarchive.
    init(
        _ format: ArchiveFormat,
        level: Int = 0,
        threads: Int = 1,
        isBuffered: Bool = true,
        cancellation: Cancellation,
        sink: @escaping (Span<UInt8>) throws(FileError) -> Void
    ) throws(PackagingError) {
        self.cancellation = cancellation
        writer = try Self.wrapping { () throws(ArchiveWritingError) in
            try ArchiveWriter(
                format,
                level: level,
                threads: threads,
                isBuffered: isBuffered,
                sink: sink
            )
        }
    }

    /// Returns a buffer for ``add(_:expecting:using:progress:)``.
    static func makeBuffer() -> [UInt8] { [UInt8](repeating: 0, count: 1 << 20) }

    /// Writes an entry, and calls `progress` with the number of bytes after each buffer of its content.
    ///
    /// - Throws: ``PackagingError/changed(source:)`` if a file has another size, was written while it was read, or has
    ///   not the digest that is expected of it.
    mutating func add(
        _ entry: RecipeEvaluation.Entry,
        expecting digest: Digest? = nil,
        using buffer: inout [UInt8],
        progress: (Int) -> Void
    ) throws(PackagingError) {
        if cancellation.isRequested { throw .cancelled }
        try Self.wrapping { () throws(ArchiveWritingError) in
            try writer.add(entry.content, size: entry.size)
        }
        guard case .file = entry.content.kind else { return }
        let file = try PackagingError.wrapping { () throws(FileError) in
            try File.open(readingRegular: entry.file)
        }
        let before = try PackagingError.wrapping { () throws(FileError) in try file.identity() }
        var hasher = digest == nil ? nil : SHA256Hasher()
        var offset: Int64 = 0
        while true {
            let count = try PackagingError.wrapping { () throws(FileError) in
                try file.read(into: &buffer, at: offset)
            }
            offset += Int64(count)
            guard count > 0, offset <= entry.size.rawValue else { break }
            if cancellation.isRequested { throw .cancelled }
            let piece = buffer.span.extracting(0..<count)
            hasher?.update(piece)
            try Self.wrapping { () throws(ArchiveWritingError) in
                try writer.write(piece)
            }
            progress(count)
        }
        let after = try PackagingError.wrapping { () throws(FileError) in try file.identity() }
        guard offset == entry.size.rawValue, after == before, hasher.take()?.finish() == digest
        else { throw .changed(source: entry.source) }
    }

    /// Ends the current entry, so that the sink of an archive without a buffer has received all of it.
    mutating func finishEntry() throws(PackagingError) {
        try Self.wrapping { () throws(ArchiveWritingError) in
            try writer.finishEntry()
        }
    }

    /// Writes the end of the archive.
    consuming func finish() throws(PackagingError) {
        if cancellation.isRequested { throw .cancelled }
        do throws(ArchiveWritingError) {
            try writer.finish()
        } catch {
            throw PackagingError(error)
        }
    }

    /// Calls `body`, and wraps its error.
    private static func wrapping<Result: ~Copyable>(
        _ body: () throws(ArchiveWritingError) -> Result
    ) throws(PackagingError) -> Result {
        do {
            return try body()
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
