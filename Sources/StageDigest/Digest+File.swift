package import StageModel
package import StageSystem

extension Digest {
    /// Computes the digest of bytes in memory.
    package init(of bytes: [UInt8]) {
        var hasher = SHA256Hasher()
        hasher.update(bytes.span)
        self = hasher.finish()
    }

    /// Computes the digest of a file's content, reading it once, 1 MiB at a time.
    package init(of file: borrowing File) throws(FileError) {
        let size = try file.status().size
        var buffer = [UInt8](repeating: 0, count: Int(min(max(size, 1), 1 << 20)))
        try self.init(of: file, using: &buffer)
    }

    /// Computes the digest of a file's content, reading it once with the caller's buffer.
    ///
    /// For many files: allocating a buffer for each costs more than hashing a small file.
    package init(of file: borrowing File, using buffer: inout [UInt8]) throws(FileError) {
        try self.init(of: file, size: .max, using: &buffer)
    }

    /// Computes the digest of the first `size` bytes of a file, or of the whole file if it is shorter; saves
    /// the read at the end of a file of known size.
    package init(
        of file: borrowing File,
        size: Int64,
        using buffer: inout [UInt8]
    ) throws(FileError) {
        var hasher = SHA256Hasher()
        var offset: Int64 = 0
        while offset < size, case let count = try file.read(into: &buffer, at: offset), count > 0 {
            let part = Int(min(Int64(count), size - offset))
            hasher.update(buffer.span.extracting(0..<part))
            offset += Int64(part)
        }
        self = hasher.finish()
    }
}
