import CArchive
package import StageModel

/// A failure of libarchive while a test's archive was written.
package struct CompressionError: Error {
    /// The message of libarchive.
    package var words: String
}

extension ArchiveFormat {
    /// Returns the bytes compressed as the format says; as they are for formats without a filter.
    package func compress(_ bytes: [UInt8]) throws(CompressionError) -> [UInt8] {
        guard let handle = unsafe archive_write_new() else {
            throw CompressionError(words: "out of memory")
        }
        defer { unsafe _ = archive_write_free(handle) }
        func require(_ status: CInt) throws(CompressionError) {
            guard status == ARCHIVE_OK else {
                let words = unsafe archive_error_string(handle).map { unsafe String(cString: $0) }
                throw CompressionError(words: words ?? "no reason given")
            }
        }
        try unsafe require(archive_write_set_format_raw(handle))
        switch self {
        case .tarGzip: try unsafe require(archive_write_add_filter_gzip(handle))
        case .tarXZ: try unsafe require(archive_write_add_filter_xz(handle))
        case .tarZstandard: try unsafe require(archive_write_add_filter_zstd(handle))
        case .tarBzip2: try unsafe require(archive_write_add_filter_bzip2(handle))
        case .tarLZ4: try unsafe require(archive_write_add_filter_lz4(handle))
        case .tar, .zip, .file: return bytes
        }
        try unsafe require(archive_write_set_bytes_per_block(handle, 0))
        let capacity = bytes.count * 2 + 65536
        var count = 0
        return try unsafe withUnsafeTemporaryAllocation(byteCount: capacity, alignment: 1) {
            buffer throws(CompressionError) in
            try unsafe require(
                archive_write_open_memory(handle, buffer.baseAddress, buffer.count, &count)
            )
            let entry = unsafe archive_entry_new()
            defer { unsafe archive_entry_free(entry) }
            unsafe archive_entry_set_filetype(entry, 0o100000)
            try unsafe require(archive_write_header(handle, entry))
            let written = unsafe bytes.withUnsafeBytes {
                unsafe archive_write_data(handle, $0.baseAddress, $0.count)
            }
            try require(written == bytes.count ? ARCHIVE_OK : ARCHIVE_FATAL)
            try unsafe require(archive_write_close(handle))
            return unsafe Array(buffer[..<count])
        }
    }
}
