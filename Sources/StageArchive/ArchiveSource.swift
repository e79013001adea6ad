import CArchive
import Glibc
import StageModel
import StageSystem
import SystemPackage

/// Reads an archive file for libarchive's callbacks.
///
/// Reads at explicit offsets, so the descriptor may be shared.
@safe final class FileSource {
    let descriptor: CInt
    /// The size of the file at opening.
    let size: Int64
    private var position: Int64 = 0
    private let buffer: UnsafeMutableRawBufferPointer

    private static let bufferSize = 256 << 10

    init(_ descriptor: FileDescriptor) {
        self.descriptor = descriptor.rawValue
        size = FileStatus(of: descriptor)?.size ?? 0
        unsafe buffer = .allocate(byteCount: Self.bufferSize, alignment: 4096)
    }

    deinit {
        unsafe buffer.deallocate()
    }

    /// Sets `bytes` to the next bytes, valid until the next call, and returns their number: 0 at the end, -1
    /// with errno set on an error.
    func next(_ bytes: inout UnsafeRawPointer?) -> Int {
        while true {
            let count = unsafe pread(descriptor, buffer.baseAddress, buffer.count, Int(position))
            if count < 0 && errno == EINTR { continue }
            position += Int64(max(count, 0))
            unsafe bytes = UnsafeRawPointer(buffer.baseAddress)
            return count
        }
    }

    func skip(_ count: Int64) -> Int64 {
        let step = min(count, max(0, size - position))
        position += step
        return step
    }

    func seek(_ offset: Int64, whence: CInt) -> Int64? {
        let base: Int64 =
            switch whence {
            case SEEK_SET: 0
            case SEEK_CUR: position
            default: size
            }
        let (target, overflows) = base.addingReportingOverflow(offset)
        guard !overflows, target >= 0 else { return nil }
        position = target
        return target
    }
}

/// The decompressed bytes of a tar archive.
///
/// Uses libarchive in two layers: this one decompresses with the filter of the format and passes the blocks
/// on unchanged; the other one reads the tar archive from them. This detects what libarchive alone does not
/// report: a missing end marker, bytes after it, and a compressed stream that is not complete up to its last
/// checksum.
@safe final class DecodedSource {
    private let handle: OpaquePointer
    private let file: FileSource
    private let format: ArchiveFormat
    /// The number of bytes passed on.
    private(set) var position: Int64 = 0
    /// The end of the last byte that is not zero.
    private(set) var contentEnd: Int64 = 0
    private(set) var failure: ArchiveError?
    private var headers = TarHeaders()

    init(_ file: FileSource, format: ArchiveFormat) throws(ArchiveError) {
        guard let handle = unsafe archive_read_new() else { fatalError("out of memory") }
        unsafe self.handle = handle
        self.file = file
        self.format = format
        try unsafe require(archive_read_support_format_raw(handle))
        try supportFilter()
        let context = unsafe Unmanaged.passUnretained(file).toOpaque()
        try unsafe require(archive_read_open(handle, context, nil, readFile, nil))
        try checkFilter()
        var header: OpaquePointer?
        try unsafe require(archive_read_next_header(handle, &header))
    }

    deinit {
        unsafe _ = archive_read_free(handle)
    }

    /// Sets `bytes` to the next bytes, valid until the next call, and returns their number: 0 at the end, -1
    /// on an error, which ``failure`` describes.
    func next(_ bytes: inout UnsafeRawPointer?) -> Int {
        var count = 0
        var offset: Int64 = 0
        switch unsafe archive_read_data_block(handle, &bytes, &count, &offset) {
        case ARCHIVE_OK:
            unsafe note(UnsafeRawBufferPointer(start: bytes, count: count))
            return count
        case ARCHIVE_EOF:
            return 0
        default:
            failure = .damaged(entry: nil, unsafe errorMessage(of: handle))
            return -1
        }
    }

    /// Checks the headers of the entry that libarchive found at `start`, and returns the names in them.
    ///
    /// - Throws: ``ArchiveError`` if packs must not contain the entry, or the headers place it elsewhere.
    func checkEntry(at start: Int64, name: String?) throws(ArchiveError) -> StatedNames {
        try checkHeaders(upTo: start)
        guard headers.takeEntry(at: start) else {
            throw .damaged(entry: name, "its headers are ambiguous")
        }
        return headers.takeNames(at: start)
    }

    /// Throws the fault of the first invalid entry if its headers start at `position` or before.
    func checkHeaders(upTo position: Int64) throws(ArchiveError) {
        if let (start, error) = headers.fault, start <= position { throw error }
    }

    /// Reads to the end of the file.
    ///
    /// - Throws: ``ArchiveError/damaged(entry:_:)`` unless only zeros follow `end`, at least two blocks of
    ///   them, and nothing follows the compressed stream.
    func finish(after end: Int64) throws(ArchiveError) {
        var bytes: UnsafeRawPointer?
        while case let count = unsafe next(&bytes), count != 0 {
            if let failure { throw failure }
            guard position - end <= Self.maximumPadding else {
                throw .damaged(entry: nil, "too much padding after the end of the archive")
            }
        }
        guard contentEnd <= end else {
            throw .damaged(entry: nil, "extra bytes follow the end of the archive")
        }
        guard position - end >= 1024 else {
            throw .damaged(entry: nil, "the end of the archive is missing")
        }
        guard unsafe archive_filter_bytes(handle, -1) == file.size else {
            throw .damaged(entry: nil, "extra bytes follow the compressed data")
        }
    }

    /// The maximum padding: more than that of any blocking factor in use.
    private static let maximumPadding: Int64 = 16 << 20

    private func note(_ bytes: UnsafeRawBufferPointer) {
        unsafe headers.read(bytes)
        var count = bytes.count
        while count >= 8,
            unsafe bytes.loadUnaligned(fromByteOffset: count - 8, as: UInt64.self) == 0
        {
            count -= 8
        }
        while count > 0, unsafe bytes[count - 1] == 0 { count -= 1 }
        if count > 0 { contentEnd = position + Int64(count) }
        position += Int64(bytes.count)
    }

    /// Enables the decompression filter of the format; throws if libarchive would run an external program for
    /// it (`ARCHIVE_WARN`).
    private func supportFilter() throws(ArchiveError) {
        switch format {
        case .tarGzip: try unsafe require(archive_read_support_filter_gzip(handle))
        case .tarXZ: try unsafe require(archive_read_support_filter_xz(handle))
        case .tarZstandard: try unsafe require(archive_read_support_filter_zstd(handle))
        case .tarBzip2: try unsafe require(archive_read_support_filter_bzip2(handle))
        case .tarLZ4: try unsafe require(archive_read_support_filter_lz4(handle))
        case .tar, .zip, .file: break
        }
    }

    private func checkFilter() throws(ArchiveError) {
        let expected =
            switch format {
            case .tarGzip: ARCHIVE_FILTER_GZIP
            case .tarXZ: ARCHIVE_FILTER_XZ
            case .tarZstandard: ARCHIVE_FILTER_ZSTD
            case .tarBzip2: ARCHIVE_FILTER_BZIP2
            case .tarLZ4: ARCHIVE_FILTER_LZ4
            case .tar, .zip, .file: ARCHIVE_FILTER_NONE
            }
        let count = unsafe archive_filter_count(handle)
        let actual = unsafe archive_filter_code(handle, 0)
        guard actual == expected, count == (expected == ARCHIVE_FILTER_NONE ? 1 : 2) else {
            let name = unsafe archive_filter_name(handle, 0).map { unsafe String(cString: $0) }
            throw .wrongFormat(expected: format, "found compression '\(name ?? "unknown")'")
        }
    }

    private func require(_ status: CInt) throws(ArchiveError) {
        guard status == ARCHIVE_OK else {
            throw .wrongFormat(expected: format, unsafe errorMessage(of: handle))
        }
    }
}

/// Returns the message of libarchive's last error.
func errorMessage(of handle: OpaquePointer) -> String {
    guard let words = unsafe archive_error_string(handle) else { return "no reason given" }
    return unsafe String(cString: words).clipped
}

/// The `archive_read_callback` of a ``FileSource``.
func readFile(
    archive: OpaquePointer?,
    context: UnsafeMutableRawPointer?,
    bytes: UnsafeMutablePointer<UnsafeRawPointer?>?
) -> Int {
    guard let context = unsafe context, let bytes = unsafe bytes else { return -1 }
    let source = unsafe Unmanaged<FileSource>.fromOpaque(context).takeUnretainedValue()
    let count = unsafe source.next(&bytes.pointee)
    if count < 0 { unsafe stage_archive_set_error(archive, errno, "the file cannot be read") }
    return count
}

/// The `archive_skip_callback` of a ``FileSource``.
func skipFile(
    archive: OpaquePointer?,
    context: UnsafeMutableRawPointer?,
    count: Int64
) -> Int64 {
    guard let context = unsafe context else { return 0 }
    return unsafe Unmanaged<FileSource>.fromOpaque(context).takeUnretainedValue().skip(count)
}

/// The `archive_seek_callback` of a ``FileSource``.
func seekFile(
    archive: OpaquePointer?,
    context: UnsafeMutableRawPointer?,
    offset: Int64,
    whence: CInt
) -> Int64 {
    guard let context = unsafe context else { return Int64(ARCHIVE_FATAL) }
    let source = unsafe Unmanaged<FileSource>.fromOpaque(context).takeUnretainedValue()
    return source.seek(offset, whence: whence) ?? Int64(ARCHIVE_FATAL)
}

/// The `archive_read_callback` of a ``DecodedSource``.
func readDecoded(
    archive: OpaquePointer?,
    context: UnsafeMutableRawPointer?,
    bytes: UnsafeMutablePointer<UnsafeRawPointer?>?
) -> Int {
    guard let context = unsafe context, let bytes = unsafe bytes else { return -1 }
    let source = unsafe Unmanaged<DecodedSource>.fromOpaque(context).takeUnretainedValue()
    let count = unsafe source.next(&bytes.pointee)
    if count < 0, case .damaged(_, let words) = source.failure {
        unsafe stage_archive_set_error(archive, EIO, words)
    }
    return count
}
