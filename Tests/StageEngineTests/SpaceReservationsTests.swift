import StageContainer
import StageDigest
import StageModel
import Testing

@testable import StageEngine

/// The space that packs of a run reserve for archives and patches.
struct SpaceReservationsTests {
    private let first: PackID
    private let second: PackID

    init() throws { (first, second) = (try PackID("first"), try PackID("second")) }

    /// An entry of a plan that has 100 bytes and 10 inodes for the pack.
    private func entry(_ id: PackID) -> Plan.Entry {
        let digest = Digest(of: [])
        let size = ByteCount(1)
        let pack = Pack(
            id: id,
            version: 1,
            policy: .onDemand,
            archive: PackArchive(url: "a", format: .tar, size: size, digest: digest),
            installedSize: size,
            fileCount: 1
        )
        var entry = Plan.Entry(pack: pack, decision: .stage(.missing))
        entry.space = ByteCount(100)
        entry.inodes = 10
        return entry
    }

    /// The reservations with free space for the content of both packs and more.
    private func reservations(bytes: Int, inodes: Int) -> SpaceReservations {
        let available = AvailableSpace(
            bytes: Planner.reserve + ByteCount(200 + bytes),
            inodes: AvailableSpace.reservedInodes + 20 + inodes
        )
        return SpaceReservations(available, for: [entry(first), entry(second)])
    }

    private func usage(_ bytes: Int, _ inodes: Int) -> FileSystemUsage {
        FileSystemUsage(bytes: ByteCount(bytes), inodes: inodes)
    }

    /// There is room for one archive beside the content of both packs, in bytes or in inodes.
    @Test(arguments: [(1000, 5), (50, 100)])
    func roomForOneArchiveIsGivenOnce(bytes: Int, inodes: Int) {
        let reservations = reservations(bytes: bytes, inodes: inodes)
        let needed = usage(150, 15)
        #expect(reservations.reserve(needed, for: first))
        // The same pack may ask again.
        #expect(reservations.reserve(needed, for: first))
        #expect(!reservations.reserve(needed, for: second))
        // The planned content has its room nevertheless.
        #expect(reservations.reserve(usage(100, 10), for: second))
        reservations.release(first)
        #expect(reservations.reserve(needed, for: second))
        #expect(!reservations.reserve(needed, for: first))
    }

    /// The plan's space for other packs is not free, also before they reserve any.
    @Test func plannedContentIsNotFree() {
        let reservations = reservations(bytes: 50, inodes: 100)
        #expect(!reservations.reserve(usage(151, 10), for: first))
        #expect(reservations.available(for: first).shortage(for: usage(150, 10)) == nil)
        #expect(reservations.available(for: first).shortage(for: usage(151, 10)) != nil)
        #expect(reservations.reserve(usage(150, 10), for: first))
    }

    /// The free space at a time, beside the reserve.
    private func snapshot(
        of reservations: SpaceReservations,
        bytes: Int,
        inodes: Int
    ) throws -> SpaceReservations.Snapshot {
        try reservations.snapshot {
            AvailableSpace(
                bytes: Planner.reserve + ByteCount(bytes),
                inodes: AvailableSpace.reservedInodes + inodes
            )
        }
    }

    /// The first pack has used 20 bytes and 2 inodes of those that the plan has for it.
    @Test func unusedSpaceOfAnEndedPackIsFree() throws {
        let reservations = reservations(bytes: 50, inodes: 100)
        let before = try snapshot(of: reservations, bytes: 230, inodes: 118)
        #expect(!reservations.reserve(usage(151, 10), for: second, at: before))
        reservations.end(first)
        // The pack may have written more after this was read.
        #expect(!reservations.reserve(usage(151, 10), for: second, at: before))
        #expect(!reservations.reserve(usage(151, 10), for: second))
        let after = try snapshot(of: reservations, bytes: 230, inodes: 118)
        #expect(!reservations.reserve(usage(231, 10), for: second, at: after))
        #expect(!reservations.reserve(usage(230, 119), for: second, at: after))
        // A second end releases nothing.
        reservations.end(first)
        #expect(reservations.reserve(usage(230, 118), for: second, at: after))
    }

    /// The plan's space for a pack that has not ended is not free, whatever the pack has used.
    @Test func plannedContentOfRunningPacksIsNotFree() throws {
        let reservations = reservations(bytes: 50, inodes: 100)
        let third = try PackID("third")
        reservations.end(second)
        let now = try snapshot(of: reservations, bytes: 250, inodes: 120)
        #expect(!reservations.reserve(usage(151, 0), for: third, at: now))
        #expect(reservations.reserve(usage(150, 0), for: third, at: now))
        #expect(!reservations.reserve(usage(101, 10), for: first, at: now))
        #expect(reservations.reserve(usage(100, 10), for: first, at: now))
    }

    /// The archive of a pack that has failed stays on disk for the next run.
    @Test func theArchiveOfAnEndedPackIsNotFree() throws {
        let reservations = reservations(bytes: 50, inodes: 100)
        #expect(reservations.reserve(usage(150, 10), for: first))
        reservations.end(first)
        let after = try snapshot(of: reservations, bytes: 100, inodes: 100)
        #expect(!reservations.reserve(usage(101, 10), for: second, at: after))
        #expect(reservations.reserve(usage(100, 10), for: second, at: after))
    }

    @Test func everythingFitsIfTheFreeSpaceIsUnknown() {
        let reservations = SpaceReservations(.unknown, for: [entry(first)])
        let all = usage(1 << 60, 1 << 60)
        #expect(reservations.reserve(all, for: first))
        #expect(reservations.reserve(all, for: second))
    }
}
