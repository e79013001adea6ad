import Logging
import StageContainer
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

extension IndexSource {
    /// The archive of a first installation that was taken before the index.
    struct UnpackedArchive: Sendable {
        /// The index that was restored from the files; `nil` if they are not those that the publisher packed.
        var index: VerifiedIndex?
        /// The directory of the files; `nil` if the archive could not be downloaded.
        var directory: Directory?
        /// `true` if the files are exactly those of the index.
        var isVerified = false
    }

    /// Takes the archive of a first installation before the index, and restores the index from the file table of
    /// what was unpacked.
    ///
    /// - Parameters:
    ///   - area: The staging area, which stores the index and the unpacked files.
    ///   - base: The staged generation.
    ///   - figures: Receives the number of bytes transferred and their source.
    /// - Returns: The result; `nil` if a version is staged, the area has content, or another way transfers fewer bytes.
    /// - Throws: ``StageError`` if the index is too large for the pack's files, if no server can be reached and a part
    ///   of the archive has arrived, or if the files cannot be written.
    func takeArchiveFirst(
        in area: StagingArea,
        base: Base?,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> UnpackedArchive? {
        guard let archive = work.pack.archive, base == nil,
            let fileTableDelta = reference.fileTableDelta,
            try await !hasContent(area)
        else { return nil }
        var candidates = indexFetch.candidates(from: nil)
        candidates.archive = try await remaining(archive, in: area)
        guard let choice = indexFetch.choiceBeforeIndex(among: candidates) else { return nil }
        try indexFetch.checkSize()
        work.report(.chose(choice))
        let (fetched, directory) = try await fetch(fileTableDelta, countingIn: &figures) {
            (figures) async throws(StageError) in
            try await unpack(archive, in: area, countingIn: &figures)
        }
        var result = UnpackedArchive(directory: try directory.get())
        guard let delta = try fetched.get(), let unpacked = result.directory else { return result }
        let table = try await fileTable(of: unpacked)
        if let table {
            result.index = try await indexFetch.index(from: delta, after: table, in: area.directory)
        }
        if let index = result.index {
            result.isVerified = index.content.encodedFileTable() == table
        } else {
            work.stager.logger.warning(
                "the index of a pack cannot be restored from its archive, and is downloaded",
                metadata: ["pack.id": "\(work.pack.id)"]
            )
        }
        return result
    }

    /// Returns the file table of an unpacked archive; `nil` if the archive has an entry that no pack may have.
    private func fileTable(of unpacked: Directory) async throws(StageError) -> [UInt8]? {
        let (files, isStopped) = try await withCancellableThread {
            cancellation throws(StageError) in
            try StageError.wrapping { () throws(FileError) in
                let files = try ContentIndex.withoutFrames(of: unpacked) {
                    cancellation.isRequested
                }
                return (files, cancellation.isRequested)
            }
        }
        if isStopped { throw .cancelled }
        return files?.encodedFileTable()
    }

    /// Returns whether the container has the index, or single files of this version.
    func hasContent(_ area: StagingArea) async throws(StageError) -> Bool {
        if try await indexFetch.hasIndex(in: area.directory) { return true }
        let path = FilePath("\(ContainerLayout.files)/\(reference.contentDigest)")
        let root = work.container.root
        return try await StageError.blocking { () throws(FileError) in
            try root.status(path) != nil
        }
    }
}
