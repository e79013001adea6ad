import CArchive
import Glibc
public import StageModel
public import StageSystem

/// Why an archive was not written.
@nonexhaustive
public indirect enum ArchiveWritingError: Error, Equatable, Sendable {
    /// The bytes could not be put where they belong.
    case output(FileError)
    /// libarchive refused, in its own words.
    case library(String)
}

/// Writes a tar archive, entry by entry, whose bytes depend on nothing but the entries and the
/// settings.
///
/// Entries have no times, owners or groups, and the mode 0644 or 0755; only names that a plain tar
/// header cannot hold get an extended one (pax). Belongs to one thread, whose locale it sets for as
/// long as it lives: libarchive converts names by it.
@safe public struct ArchiveWriter: ~Copyable {
    private let handle: OpaquePointer
    private let output: Output
    /// The locale that the thread had before.
    private let previousLocale: locale_t?

    /// Whether archives of the format can be written.
    public static func canWrite(_ format: ArchiveFormat) -> Bool { levels(of: format) != nil }

    /// The levels of compression of a format that can be written, `0...0` if it has none; `nil` if it
    /// cannot.
    ///
    /// Zstandard's ends where a reader would need more than 8 MiB for its window.
    public static func levels(of format: ArchiveFormat) -> ClosedRange<Int>? {
        switch format {
        case .tar: 0...0
        case .tarGzip: 1...9
        case .tarXZ: 0...9
        case .tarZstandard: 1...19
        case .tarBzip2, .tarLZ4, .zip, .file: nil
        }
    }

    /// Begins an archive in a format that ``canWrite(_:)``; `sink` takes its bytes, in order.
    ///
    /// Compresses with `threads` threads where the format can; the bytes are the same for any number.
    public init(
        _ format: ArchiveFormat,
        level: Int,
        threads: Int,
        sink: @escaping (Span<UInt8>) throws(FileError) -> Void
    ) throws(ArchiveWritingError) {
        guard let handle = unsafe archive_write_new() else { fatalError("out of memory") }
        unsafe self.handle = handle
        output = Output(sink)
        unsafe previousLocale = UTF8Locale.enter()
        try unsafe require(archive_write_set_format_pax_restricted(handle))
        try addFilter(format, level: level, threads: threads)
        try unsafe require(archive_write_set_bytes_per_block(handle, 1 << 18))
        // The last block is as long as it is, instead of filled with zeros.
        try unsafe require(archive_write_set_bytes_in_last_block(handle, 1))
        let context = unsafe Unmanaged.passUnretained(output).toOpaque()
        try unsafe require(archive_write_open(handle, context, nil, writeOutput, nil))
    }

    deinit {
        // What is not finished is not wanted: freeing would write the end of an archive.
        unsafe _ = archive_write_fail(handle)
        unsafe _ = archive_write_free(handle)
        unsafe UTF8Locale.leave(to: previousLocale)
    }

    /// Begins an entry; `size` bytes have to follow if it is a file.
    ///
    /// - Precondition: The entry is no copy.
    public mutating func add(
        _ entry: ContentEntry,
        size: ByteCount
    ) throws(ArchiveWritingError) {
        guard let header = unsafe archive_entry_new() else { fatalError("out of memory") }
        defer { unsafe archive_entry_free(header) }
        unsafe archive_entry_set_pathname_utf8(header, entry.path.text)
        unsafe archive_entry_set_mtime(header, 0, 0)
        unsafe archive_entry_set_size(header, size.rawValue)
        // The constants of archive_entry.h are casts, which are not importable: they are those of
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
            unsafe archive_entry_set_symlink_utf8(header, target.text)
        case .copy:
            preconditionFailure("a copy is written as a file")
        }
        try unsafe require(archive_write_header(handle, header))
    }

    /// Writes the next bytes of the entry's content.
    public mutating func write(_ bytes: Span<UInt8>) throws(ArchiveWritingError) {
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes.withUnsafeBytes { buffer in
                unsafe archive_write_data(
                    handle,
                    buffer.baseAddress?.advanced(by: written),
                    buffer.count - written
                )
            }
            // None are taken where the entry is full already.
            guard count > 0 else { throw failure }
            written += count
        }
    }

    /// Writes the end of the archive.
    public consuming func finish() throws(ArchiveWritingError) {
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
            // No time in the header.
            try unsafe require(archive_write_set_filter_option(handle, filter, "timestamp", nil))
        case .tarXZ:
            filter = "xz"
            try unsafe require(archive_write_add_filter_xz(handle))
            // One thread alone would write one block, and other bytes than two.
            try set("threads", of: filter, max(threads, 2))
        case .tarZstandard:
            filter = "zstd"
            try unsafe require(archive_write_add_filter_zstd(handle))
            // None would compress in this thread, to other bytes than one of its own.
            try set("threads", of: filter, max(threads, 1))
        case .tarBzip2, .tarLZ4, .zip, .file:
            preconditionFailure("the format '\(format.rawValue)' is not written")
        }
        try set("compression-level", of: filter, level)
    }

    private func set(
        _ option: String,
        of filter: String,
        _ value: Int
    ) throws(ArchiveWritingError) {
        try unsafe require(archive_write_set_filter_option(handle, filter, option, "\(value)"))
    }

    private func require(_ status: CInt) throws(ArchiveWritingError) {
        guard status == ARCHIVE_OK else { throw failure }
    }

    private var failure: ArchiveWritingError {
        output.failure.map(ArchiveWritingError.output) ?? .library(unsafe words(of: handle))
    }
}

/// Where the bytes of an archive go.
private final class Output {
    private let sink: (Span<UInt8>) throws(FileError) -> Void
    /// Why bytes were not taken.
    private(set) var failure: FileError?

    init(_ sink: @escaping (Span<UInt8>) throws(FileError) -> Void) { self.sink = sink }

    /// Takes all of the bytes, or returns `false`.
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
    _ archive: OpaquePointer?,
    _ context: UnsafeMutableRawPointer?,
    _ bytes: UnsafeRawPointer?,
    _ count: Int
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
