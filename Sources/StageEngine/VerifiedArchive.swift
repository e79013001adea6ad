import StageArchive
import StageContainer
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// The archive of a pack, in `downloads/`, with the size and the digest that the manifest names.
///
/// Only ``fetch(_:for:)`` creates it, so code that unpacks an unverified archive does not compile. Holds the
/// download lock until ``end()``: no other process or task downloads or removes the archive before.
struct VerifiedArchive: Sendable {
    let reference: PackArchive
    private let work: PackWork
    private let lock: DownloadLock
    private let part: PartialFile
    private let receipt: DownloadReceipt

    /// Downloads the archive, or resumes the download of an earlier run.
    static func fetch(
        _ reference: PackArchive,
        for work: PackWork
    ) async throws(StageError) -> VerifiedArchive {
        // Other packs, possibly of other applications, may have the same archive.
        let lock = try await work.downloadLock(reference.digest)
        do throws(StageError) {
            let (part, receipt) = try await work.download(
                reference.digest,
                size: reference.size,
                from: work.mirrors(of: reference.url),
                reportsBytes: true
            )
            work.report(.verified)
            return VerifiedArchive(
                reference: reference,
                work: work,
                lock: lock,
                part: part,
                receipt: receipt
            )
        } catch {
            lock.end()
            throw error
        }
    }

    /// Unpacks the archive into an empty staging area.
    func unpack(into area: StagingArea) async throws(StageError) -> ContentSource.Filling {
        try await unpack(into: area.content)
        return ContentSource.Filling(figures: figures, digests: .files)
    }

    /// The transfer figures of the archive.
    var figures: StagingFigures {
        StagingFigures(
            transferred: receipt.bytesReceived,
            reused: receipt.bytesReused,
            source: receipt.url
        )
    }

    /// Unpacks the archive into an empty directory.
    func unpack(into directory: Directory) async throws(StageError) {
        let archive: File
        do throws(FileError) {
            archive = try File.open(readingRegular: part.path)
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
                window: reference.windowSize ?? ManifestLimits.windowSize
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
    func remove() throws(StageError) {
        try StageError.wrapping { () throws(TransferError) in try part.remove() }
    }

    /// Releases the download lock.
    func end() { lock.end() }
}

extension PackArchive {
    /// The last component of the URL's path: the default name of a single file.
    fileprivate var lastComponent: String? {
        let path = url.prefix { $0 != "?" && $0 != "#" }
        return path.split(separator: "/").last.map(String.init)
    }
}
