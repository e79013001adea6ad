import CArchive
import Glibc
package import StageModel
package import StageSystem

/// The reason why an archive could not be written.
@nonexhaustive
package indirect enum ArchiveWritingError: Error, Equatable, Sendable {
    /// The archive's bytes could not be written to their destination.
    case output(FileError)
    /// The error message of libarchive.
    case library(String)
}

/// Writes a reproducible tar archive: its bytes depend only on the entries and the settings.
///
/// Entries have no times, owners or groups, and the mode 0644 or 0755; only names that do not fit a plain tar
/// header get an extended one (pax). Must stay on one thread, whose locale it sets during its lifetime:
/// libarchive converts names according to the locale.
@safe package struct ArchiveWriter: ~Copyable {
    private let handle: OpaquePointer
    private let output: Output
    /// The previous locale of the thread.
    private let previousLocale: locale_t?

    /// Returns the compression levels of a format, `0...0` if it has none; `nil` if the format cannot be
    /// written.
    package static func levels(of format: ArchiveFormat) -> ClosedRange<Int>? {
        switch format {
        case .tar: 0...0
        case .tarGzip: 1...9
        case .tarXZ: 0...9
        case .tarZstandard, .tarBzip2, .tarLZ4, .zip, .file: nil
        }
    }

    /// Starts an archive in a format that has ``levels(of:)``; `sink` receives its bytes in order.
    ///
    /// Compresses with `threads` threads if the format supports them; the bytes do not depend on their
    /// number. Without a buffer, `sink` receives the bytes of each call before that returns.
    package init(
        _ format: ArchiveFormat,
        level: Int,
        threads: Int,
        isBuffered: Bool = true,
        sink: @escaping (Span<UInt8>) throws(FileError) -> Void
    ) throws(ArchiveWritingError) {
        guard let handle = unsafe archive_write_new() else { fatalError("out of memory") }
        unsafe self.handle = handle
        output = Output(sink)
        unsafe previousLocale = UTF8Locale.enter()
        try unsafe require(archive_write_set_format_pax_restricted(handle))
        try addFilter(format, level: level, threads: threads)
        try unsafe require(archive_write_set_bytes_per_block(handle, isBuffered ? 1 << 18 : 0))
        // The last block is not padded with zeros.
        try unsafe require(archive_write_set_bytes_in_last_block(handle, 1))
        let context = unsafe Unmanaged.passUnretained(output).toOpaque()
        try unsafe require(archive_write_open(handle, context, nil, writeOutput, nil))
    }

    deinit {
        // An unfinished archive is discarded: freeing alone would write the end of an archive.
        unsafe _ = archive_write_fail(handle)
        unsafe _ = archive_write_free(handle)
        unsafe UTF8Locale.leave(to: previousLocale)
    }

    /// Starts an entry; for a file, `size` bytes of content must follow.
    ///
    /// - Precondition: The entry is not a copy.
    package mutating func add(
        _ entry: ContentEntry,
        size: ByteCount
    ) throws(ArchiveWritingError) {
        guard let header = unsafe archive_entry_new() else { fatalError("out of memory") }
        defer { unsafe archive_entry_free(header) }
        // This function copies the bytes, because the thread's character set is UTF-8. Functions for UTF-8 names would
        // convert them to Unicode normalization form C.
        unsafe archive_entry_set_pathname(header, entry.path.text)
        unsafe archive_entry_set_mtime(header, 0, 0)
        unsafe archive_entry_set_size(header, size.rawValue)
        // The constants of archive_entry.h are casts, which Swift cannot import; their values are those of
        // stat(2).
        switch entry.kind {
        case .file(let isExecutable):
            unsafe archive_entry_set_filetype(header, 0o100000)
            unsafe archive_entry_set_perm(header, isExecutable ? 0o755 : 0o644)
        case .directory:
            unsafe archive_entry_set_filetype(header, 0o040000)
            unsafe archive_entry_set_perm(header, 0o755)
        case .link(let target):
            unsafe archive_entry_set_filetype(header, 0o120000)
            unsafe archive_entry_set_perm(header, 0o777)
            unsafe archive_entry_set_symlink(header, target.text)
        case .copy:
            preconditionFailure("a copy is written as a file")
        }
        try unsafe require(archive_write_header(handle, header))
    }

    /// Writes the next bytes of the current entry's content.
    package mutating func write(_ bytes: Span<UInt8>) throws(ArchiveWritingError) {
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes.withUnsafeBytes { buffer in
                unsafe archive_write_data(
                    handle,
                    buffer.baseAddress?.advanced(by: written),
                    buffer.count - written
                )
            }
            // libarchive accepts no bytes beyond the declared size.
            guard count > 0 else { throw failure }
            written += count
        }
    }

    /// Ends the current entry, so that the sink of an archive without a buffer has received all of it.
    package mutating func finishEntry() throws(ArchiveWritingError) {
        try unsafe require(archive_write_finish_entry(handle))
    }

    /// Writes the end of the archive.
    package consuming func finish() throws(ArchiveWritingError) {
        try unsafe require(archive_write_close(handle))
    }

    private func addFilter(
        _ format: ArchiveFormat,
        level: Int,
        threads: Int
    ) throws(ArchiveWritingError) {
        let filter: String
        switch format {
        case .tar:
            return
        case .tarGzip:
            filter = "gzip"
            try unsafe require(archive_write_add_filter_gzip(handle))
            // No timestamp in the header.
            try unsafe require(archive_write_set_filter_option(handle, filter, "timestamp", nil))
        case .tarXZ:
            filter = "xz"
            try unsafe require(archive_write_add_filter_xz(handle))
            // A single thread would write a single block, and so other bytes than two threads.
            try set("threads", of: filter, to: max(threads, 2))
        case .tarZstandard, .tarBzip2, .tarLZ4, .zip, .file:
            preconditionFailure("the format '\(format.rawValue)' is not written")
        }
        try set("compression-level", of: filter, to: level)
    }

    private func set(
        _ option: String,
        of filter: String,
        to value: Int
    ) throws(ArchiveWritingError) {
        try unsafe require(archive_write_set_filter_option(handle, filter, option, "\(value)"))
    }

    private func require(_ status: CInt) throws(ArchiveWritingError) {
        guard status == ARCHIVE_OK else { throw failure }
    }

    private var failure: ArchiveWritingError {
        output.failure.map(ArchiveWritingError.output) ?? .library(unsafe errorMessage(of: handle))
    }
}

/// The destination of an archive's bytes.
private final class Output {
    private let sink: (Span<UInt8>) throws(FileError) -> Void
    /// The first error of the sink.
    private(set) var failure: FileError?

    init(_ sink: @escaping (Span<UInt8>) throws(FileError) -> Void) { self.sink = sink }

    /// Passes all bytes to the sink; returns `false` after an error.
    func take(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        guard failure == nil else { return false }
        do {
            try sink(unsafe bytes.span)
            return true
        } catch {
            failure = error
            return false
        }
    }
}

private func writeOutput(
    archive: OpaquePointer?,
    context: UnsafeMutableRawPointer?,
    bytes: UnsafeRawPointer?,
    count: Int
) -> Int {
    guard let context = unsafe context else { return -1 }
    let output = unsafe Unmanaged<Output>.fromOpaque(context).takeUnretainedValue()
    let raw = unsafe UnsafeRawBufferPointer(start: bytes, count: count)
    let isTaken = unsafe raw.withMemoryRebound(to: UInt8.self) { unsafe output.take($0) }
    guard isTaken else {
        if let archive = unsafe archive {
            unsafe stage_archive_set_error(archive, EIO, "the archive could not be written")
        }
        return -1
    }
    return count
}
