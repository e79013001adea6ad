import StageContainer
import StageModel
import StageSystem
import SystemPackage

/// A pack that may be published: its staging area holds as many files and bytes as the manifest declares,
/// and a listing of them with their digests.
///
/// Made by ``check(_:as:listing:)`` alone, whatever the content comes from, so publishing content that is
/// not checked does not compile.
struct PublishablePack: ~Copyable, Sendable {
    let area: StagingArea
    let record: StagedPack

    private init(area: StagingArea, record: StagedPack) {
        self.area = area
        self.record = record
    }

    /// From this size on, a pack begins to be written to disk before its files are read for the listing.
    private static let largeSize = ByteCount.mebibytes(8)

    /// Compares what is in a staging area with what its record declares, and lists it.
    ///
    /// The files are counted on disk: the process that unpacked an archive is not trusted, and a continued
    /// area may hold files that no run of this program made.
    static func check(
        _ area: StagingArea,
        as record: StagedPack,
        listing digests: ContentListing.DigestSource
    ) async throws(StageError) -> PublishablePack {
        // The processor reads a large pack once more while the disk writes it: publishing waits for the disk
        // in any case, and has less to wait for then.
        let writesAhead = digests == .files && record.installedSize >= largeSize
        async let writing: Result<Void, FileError> =
            writesAhead ? synchronize(area.content) : .success(())
        let listing = await withBlockingThread {
            Result { () throws(FileError) in try ContentListing.write(for: area, digests: digests) }
        }
        let written = await writing
        let found = try StageError.wrapping { () throws(FileError) in
            try written.get()
            return try listing.get()
        }
        try record.declaredFigures.check(actual: found)
        return PublishablePack(area: area, record: record)
    }

    private static func synchronize(_ directory: Directory) async -> Result<Void, FileError> {
        await withBlockingThread {
            Result { () throws(FileError) in try directory.synchronizeFileSystem() }
        }
    }
}

extension ContentFigures {
    /// Checks the figures of content against these, which the manifest declares.
    func check(actual: ContentFigures) throws(StageError) {
        guard actual == self else { throw .incompleteContent(declared: self, actual: actual) }
    }
}

extension StagedPack {
    fileprivate var declaredFigures: ContentFigures {
        ContentFigures(fileCount: fileCount, size: installedSize)
    }
}
