import StageArchive
import StageContainer
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// An archive or a patch of a pack, in `downloads/`, with the size and the digest that the manifest names.
///
/// Only ``fetch(_:size:from:for:)`` creates it, so code that uses an unverified download does not compile. Holds
/// the download lock until ``end()``: no other process or task downloads or removes the object before.
struct VerifiedDownload: Sendable {
    private let lock: DownloadLock
    private let part: PartialFile
    private let receipt: DownloadReceipt

    /// Downloads an object, or resumes the download of an earlier run.
    static func fetch(
        _ digest: Digest,
        size: ByteCount,
        from url: String,
        for work: PackWork
    ) async throws(StageError) -> VerifiedDownload {
        // Other packs, possibly of other applications, may have the same object.
        let lock = try await work.downloadLock(digest)
        do throws(StageError) {
            let (part, receipt) = try await work.download(
                digest,
                size: size,
                from: work.mirrors(of: url)
            )
            work.report(.verified)
            return VerifiedDownload(lock: lock, part: part, receipt: receipt)
        } catch {
            lock.end()
            throw error
        }
    }

    /// The transfer figures.
    var figures: StagingFigures {
        StagingFigures(
            transferred: receipt.bytesReceived,
            reused: receipt.bytesReused,
            source: receipt.url
        )
    }

    /// The path of the file.
    var path: FilePath { part.path }

    /// Removes the file.
    func remove() throws(StageError) {
        try StageError.wrapping { () throws(TransferError) in try part.remove() }
    }

    /// Releases the download lock.
    func end() { lock.end() }
}

/// The archive of a pack, whose size and digest were verified.
///
/// Only ``fetch(_:for:)`` creates it, so code that unpacks an unverified archive does not compile. Holds the
/// download lock until ``end()``.
struct VerifiedArchive: Sendable {
    let reference: PackArchive
    private let work: PackWork
    private let download: VerifiedDownload

    /// Downloads the archive, or resumes the download of an earlier run.
    static func fetch(
        _ reference: PackArchive,
        for work: PackWork
    ) async throws(StageError) -> VerifiedArchive {
        let download = try await VerifiedDownload.fetch(
            reference.digest,
            size: reference.size,
            from: reference.url,
            for: work
        )
        return VerifiedArchive(reference: reference, work: work, download: download)
    }

    /// Unpacks the archive into an empty staging area.
    func unpack(into area: StagingArea) async throws(StageError) -> ContentSource.Filling {
        try await unpack(into: area.content)
        return ContentSource.Filling(figures: figures, digests: .files)
    }

    /// The transfer figures of the archive.
    var figures: StagingFigures { download.figures }

    /// Unpacks the archive into an empty directory.
    func unpack(into directory: Directory) async throws(StageError) {
        let archive: File
        do throws(FileError) {
            archive = try File.open(readingRegular: download.path)
        } catch {
            throw .transfer(.storage(error))
        }
        let request = UnpackRequest(
            archive: archive.descriptor,
            destination: directory,
            format: reference.format,
            fileName: reference.fileName ?? reference.lastComponent,
            limits: UnpackLimits(
                entries: work.pack.fileCount,
                bytes: work.pack.installedSize,
                window: reference.windowSize ?? ManifestLimits.windowSize,
                statedDirectories: work.pack.directoryCount
            )
        )
        let (unpacker, report) = (work.stager.unpacker, work.report)
        do throws(ArchiveError) {
            _ = try await work.stager.unpacking.run { () throws(ArchiveError) in
                try await unpacker.unpack(request) { report(.unpacked($0)) }
            }
        } catch {
            throw error.stageError
        }
        // The request holds the descriptor only, so the file must stay open until here.
        _ = consume archive
    }

    /// Removes the archive.
    func remove() throws(StageError) { try download.remove() }

    /// Releases the download lock.
    func end() { download.end() }
}

extension PackArchive {
    /// The last component of the URL's path: the default name of a single file.
    fileprivate var lastComponent: String? {
        url.withoutQuery.pathComponents.last.map { String($0) }
    }
}
