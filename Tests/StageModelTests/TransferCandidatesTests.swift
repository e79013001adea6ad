import StageModel
import Testing

/// The ways to transfer an update, of which the client has the index.
struct TransferCandidatesTests {
    /// The sizes of an update, and what a client transfers: content, and a table of a set for the choice.
    struct Update: Sendable {
        var archive: Int?
        var patch: Int?
        /// The bytes of the set and of its table.
        var set: (whole: Int, table: Int)
        /// The bytes of ranges of bundles and of the set.
        var withSet: Int
        var way: TransferChoice.Way
        var content: Int
        var table = 0
    }

    /// The bytes of ranges of bundles without a set.
    private static let bundles = 10_000

    /// Returns the choice of a client, and the bytes of the table that it requests for that.
    private func transfer(
        of update: Update
    ) throws -> (choice: TransferChoice, table: ByteCount) {
        let digest = try Digest(hexadecimal: Sample.digest)
        let index = PackIndex(
            url: "i/index",
            size: ByteCount(100),
            digest: digest,
            contentSize: ByteCount(200),
            contentDigest: digest,
            bundleSize: ByteCount(20_000)
        )
        var candidates = TransferCandidates(of: index, isUpdate: true, from: nil)
        candidates.archive = update.archive.map { ByteCount($0) }
        candidates.patch = update.patch.map { ByteCount($0) }
        candidates.set = TransferCandidates.SetSize(
            whole: ByteCount(update.set.whole),
            table: ByteCount(update.set.table)
        )
        return candidates.choice(
            bundles: ByteCount(Self.bundles),
            withSet: ByteCount(update.withSet)
        )
    }

    @Test(arguments: [
        // A table of a sixteenth of the archive or the patch is requested, and a larger one is not.
        Update(
            archive: 1600,
            set: (1599, 100),
            withSet: 500,
            way: .objects,
            content: 400,
            table: 100
        ),
        Update(archive: 1600, set: (1599, 101), withSet: 500, way: .archive, content: 1600),
        Update(
            archive: 1600,
            patch: 1599,
            set: (1500, 99),
            withSet: 500,
            way: .objects,
            content: 401,
            table: 99
        ),
        Update(
            archive: 1600,
            patch: 1599,
            set: (1500, 100),
            withSet: 500,
            way: .patch,
            content: 1599
        ),
        // The set alone has as many bytes as the archive.
        Update(archive: 1600, set: (1600, 100), withSet: 500, way: .archive, content: 1600),
        // The archive has more bytes than bundles, which the set replaces whatever its table has.
        Update(
            archive: 10_001,
            set: (9990, 9900),
            withSet: 9995,
            way: .objects,
            content: 9995
        ),
        Update(set: (10_001, 10_000), withSet: 10_001, way: .objects, content: 10_000),
    ])
    func theSetIsRequestedWhereItCanHaveFewerBytes(update: Update) throws {
        let (choice, table) = try transfer(of: update)
        #expect(choice.way == update.way)
        #expect(choice.byteCount == ByteCount(update.content))
        #expect(table == ByteCount(update.table))
    }

    /// A set of few frames, whose table is requested in vain.
    @Test(arguments: [1600, 1615, 9600])
    func anUpdateTransfersAtMostASixteenthMoreThanTheLeastOtherWay(archive: Int) throws {
        let most = archive / 16
        for (size, table) in [(1, 1), (most, most), (most + 1, 0), (archive - 1, 0)] {
            let update = Update(
                archive: archive,
                set: (size, size),
                withSet: size + 9999,
                way: .archive,
                content: archive
            )
            let found = try transfer(of: update)
            #expect(found.choice.way == .archive)
            #expect(found.table == ByteCount(table))
        }
    }
}
