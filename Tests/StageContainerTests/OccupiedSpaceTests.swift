import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The disk space and the inodes of trees that share files by hard links.
@Suite(.directory)
struct OccupiedSpaceTests {
    /// Returns two trees with a file of their own each, and one that they share.
    private func trees() throws -> (first: Directory, second: Directory) {
        let directory = try TemporaryDirectory.required()
        let (first, second) = (
            try directory.makeDirectory("first"), try directory.makeDirectory("second")
        )
        for tree in [first, second] {
            try tree.write([UInt8](repeating: 1, count: 10_000), to: "own", durably: true)
        }
        try first.write([UInt8](repeating: 2, count: 100_000), to: "shared", durably: true)
        try second.createHardLink("shared", to: "shared", in: first)
        return (first, second)
    }

    @Test func aSharedFileIsFreedWithItsLastLink() throws {
        let (first, second) = try trees()
        let (one, other) = (try first.occupiedSpace(), try second.occupiedSpace())
        #expect(one.size - one.freed >= ByteCount(100_000))
        #expect(one.freed >= ByteCount(10_000))
        #expect(one.inodeCount == 2 && one.freedInodeCount == 1)
        var both = one
        both.add(other)
        #expect(both.freed == both.size)
        #expect(both.size == one.size + other.freed)
        #expect(both.inodeCount == 3 && both.freedInodeCount == 3)
        both.remove(other)
        #expect(both == one)
        both.remove(one)
        #expect(both == OccupiedSpace())
    }

    @Test func aFileWithALinkElsewhereIsNotFreed() throws {
        let (first, second) = try trees()
        let third = try TemporaryDirectory.required().makeDirectory("third")
        try third.createHardLink("shared", to: "shared", in: first)
        var both = try first.occupiedSpace()
        both.add(try second.occupiedSpace())
        #expect(both.size - both.freed >= ByteCount(100_000))
        #expect(both.inodeCount == 3 && both.freedInodeCount == 2)
        var own = both
        own.removeFiles(thatRemainWithout: both)
        #expect(own.inodeCount == 2)
        both.add(try third.occupiedSpace())
        #expect(both.freed == both.size)
    }
}
