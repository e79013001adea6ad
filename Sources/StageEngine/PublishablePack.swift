import StageContainer
import StageModel
import StageSystem
import SystemPackage

/// A pack that is ready to publish: its staging area holds as many files, bytes and directories as the manifest declares,
/// and a listing with the digests of the files.
///
/// Only ``check(_:as:declaring:listing:)`` creates it, for every source of content, so code that publishes
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

    /// Compares the content of a staging area with the figures that the manifest declares, writes the listing, and adds the
    /// number of directories to the record.
    ///
    /// Counts the files on disk, and checks unpacked entries by the rules for packs: the process that unpacks an archive is
    /// not trusted, and a resumed area may contain other files.
    static func check(
        _ area: StagingArea,
        as record: StagedPack,
        declaring declared: ContentFigures,
        listing digests: ContentListing.DigestSource
    ) async throws(StageError) -> PublishablePack {
        // The disk writes a large pack while the listing reads it, so that publishing has less to wait for.
        let writesAhead = digests == .files && record.installedSize >= largeSize
        async let writing: Result<Void, FileError> =
            writesAhead ? synchronize(area.content) : .success(())
        let listing = await withBlockingThread {
            Result { () throws(StageError) in
                try ContentListing.write(for: area, digests: digests)
            }
        }
        let written = await writing
        try StageError.wrapping { () throws(FileError) in try written.get() }
        let found = try listing.get()
        try declared.check(actual: found)
        var complete = record
        complete.directoryCount = found.directoryCount ?? 0
        return PublishablePack(area: area, record: complete)
    }

    private static func synchronize(_ directory: Directory) async -> Result<Void, FileError> {
        await withBlockingThread {
            Result { () throws(FileError) in try directory.synchronizeFileSystem() }
        }
    }
}

extension ContentFigures {
    /// Throws unless `actual` equals these figures, which the manifest declares; ignores its directories if the manifest does
    /// not state their number.
    func check(actual: ContentFigures) throws(StageError) {
        var actual = actual
        if directoryCount == nil { actual.directoryCount = nil }
        guard actual == self else { throw .incompleteContent(declared: self, actual: actual) }
    }
}

extension Pack {
    /// The figures of the content that the manifest declares.
    var declaredFigures: ContentFigures {
        ContentFigures(
            fileCount: fileCount,
            size: installedSize,
            directoryCount: directoryCount
        )
    }
}
