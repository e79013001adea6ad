import SystemPackage

/// The space that stays free of a file system that an untrusted program writes to: a twentieth of its
/// bytes, 1 GiB at most, and a twentieth of its files, 65,536 at most.
struct SpaceReserve {
    private let directory: Directory
    private let kept: FreeSpace

    /// Creates the reserve of the file system that a directory is on.
    init(at path: FilePath) throws(FileError) {
        directory = try Directory.open(path)
        let total = try directory.totalSpace()
        kept = FreeSpace(
            bytes: min(total.bytes / 20, 1 << 30),
            files: total.files.map { min($0 / 20, 1 << 16) }
        )
    }

    /// Returns the bytes that may be written until the reserve is reached; 0 where it is.
    func room() throws(FileError) -> Int64 {
        let free = try directory.freeSpace()
        if let files = free.files, let kept = kept.files, files < kept { return 0 }
        return max(free.bytes - kept.bytes, 0)
    }
}

extension [SpaceReserve] {
    /// Returns the bytes that may be written to all of them until the first reserve is reached.
    func room() throws(FileError) -> Int64 {
        var room = Int64.max
        for reserve in self { room = Swift.min(room, try reserve.room()) }
        return room
    }

    /// Whether a reserve is reached, or cannot be looked at any more.
    var areReached: Bool {
        do throws(FileError) {
            return try room() == 0
        } catch {
            return true
        }
    }
}
