import Glibc
import SystemPackage
import Testing

@testable import StageSystem

/// Numbers that a file system in user space may report (fuse(4)).
struct FileStatusTests {
    @Test(
        arguments: [
            (0, 0), (1, 512), (-1, 0), (.min, 0), (1 << 54 - 1, (1 << 54 - 1) * 512),
            (1 << 54, .max),
            (.max, .max),
        ] as [(Int, Int64)]
    )
    func allocatedBlocksOfAnyNumberHaveASize(blocks: Int, size: Int64) {
        var status = stat()
        status.st_blocks = blocks
        #expect(FileStatus(status).allocatedSize == size)
    }

    /// A plan would compare any other number with the files of a pack, or add to it what evictions free.
    @Test(
        arguments: [
            (0, 0, nil, nil), (1000, 10, 10, 1000), (1000, 1000, 1000, 1000),
            (999, 1_000_000, nil, nil), (5, .max, nil, nil), (.max, .max, nil, nil),
        ] as [(fsfilcnt_t, fsfilcnt_t, Int64?, Int64?)]
    )
    func filesWithoutALimitAreNotCounted(
        row: (all: fsfilcnt_t, free: fsfilcnt_t, counted: Int64?, total: Int64?)
    ) {
        var status = statvfs()
        status.f_frsize = 4096
        (status.f_files, status.f_favail) = (row.all, row.free)
        let free = FreeSpace(blocks: 2, files: row.free, of: status)
        #expect(free == FreeSpace(bytes: 8192, files: row.counted))
        #expect(FreeSpace(blocks: 2, files: row.all, of: status).files == row.total)
    }

    @Test(arguments: [(0, 0), (-1, 0), (.min, 0), (.max, .max)] as [(Int, Int64)])
    func aSizeIsNeverNegative(reported: Int, size: Int64) {
        var status = stat()
        status.st_size = reported
        #expect(FileStatus(status).size == size)
    }

    @Test(arguments: [Int.min, -1, .max])
    func timesOutOfRangeAreTaken(seconds: Int) {
        var status = stat()
        let time = timespec(tv_sec: seconds, tv_nsec: seconds)
        (status.st_atim, status.st_mtim, status.st_ctim) = (time, time, time)
        status.st_nlink = .max
        let taken = FileStatus(status)
        #expect(taken.modified == seconds && taken.accessed == seconds && taken.changed == seconds)
        #expect(!taken.wasReadSinceChange)
        let identity = FileIdentity(status)
        #expect(identity.modified == identity.changed)
    }
}
