import SystemPackage

/// Space that is kept free on a file system that an untrusted program writes to: a twentieth of its bytes, at
/// most 1 GiB, and a twentieth of its files, at most 65,536.
struct SpaceReserve {
    private let directory: Directory
    private let kept: FreeSpace

    /// Creates the reserve of the file system that contains a directory.
    init(at path: FilePath) throws(FileError) {
        directory = try Directory.open(path)
        let total = try directory.totalSpace()
        kept = FreeSpace(
            bytes: min(total.bytes / 20, 1 << 30),
            files: total.files.map { min($0 / 20, 1 << 16) }
        )
    }

    /// Returns the bytes that can be written before the reserve is reached.
    func writableBytes() throws(FileError) -> Int64 {
        let free = try directory.freeSpace()
        if let files = free.files, let kept = kept.files, files < kept { return 0 }
        return max(free.bytes - kept.bytes, 0)
    }
}

extension [SpaceReserve] {
    /// Returns the bytes that can be written before the first reserve is reached.
    func writableBytes() throws(FileError) -> Int64 {
        var bytes = Int64.max
        for reserve in self { bytes = Swift.min(bytes, try reserve.writableBytes()) }
        return bytes
    }

    /// Indicates whether a reserve is reached, or its free space cannot be read.
    var areReached: Bool {
        do throws(FileError) {
            return try writableBytes() == 0
        } catch {
            return true
        }
    }
}
