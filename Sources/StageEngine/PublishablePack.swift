import StageContainer
import StageModel
import StageSystem
import SystemPackage

/// A pack that is ready to publish: its staging area holds as many files and bytes as the manifest declares,
/// and a listing with their digests.
///
/// Only ``check(_:as:listing:)`` creates it, for every source of content, so code that publishes
/// unchecked content does not compile.
struct PublishablePack: ~Copyable, Sendable {
    let area: StagingArea
    let record: StagedPack

    private init(area: StagingArea, record: StagedPack) {
        self.area = area
        self.record = record
    }

    /// The size from which a pack is written back to disk before its files are read for the listing.
    private static let largeSize = ByteCount.mebibytes(8)

    /// Compares the content of a staging area with the declaration of its record, writes the listing, and adds the number of
    /// directories to the record.
    ///
    /// Counts the files on disk: the process that unpacks an archive is not trusted, and a resumed area may
    /// contain other files.
    static func check(
        _ area: StagingArea,
        as record: StagedPack,
        listing digests: ContentListing.DigestSource
    ) async throws(StageError) -> PublishablePack {
        // The disk writes a large pack while the listing reads it, so that publishing has less to wait for.
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
        try record.declaredFigures.check(actual: found.figures)
        var complete = record
        complete.directoryCount = found.directoryCount
        return PublishablePack(area: area, record: complete)
    }

    private static func synchronize(_ directory: Directory) async -> Result<Void, FileError> {
        await withBlockingThread {
            Result { () throws(FileError) in try directory.synchronizeFileSystem() }
        }
    }
}

extension ContentFigures {
    /// Throws unless `actual` equals these figures, which the manifest declares.
    func check(actual: ContentFigures) throws(StageError) {
        guard actual == self else { throw .incompleteContent(declared: self, actual: actual) }
    }
}

extension StagedPack {
    fileprivate var declaredFigures: ContentFigures {
        ContentFigures(fileCount: fileCount, size: installedSize)
    }
}
