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
