import Logging
import StageContainer
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

extension IndexSource {
    /// State of the search for a delta set.
    enum Deltas: Sendable {
        /// The table has not been requested.
        case unknown
        /// The table has been requested; `nil` if the set is absent or unusable.
        case known(DeltaSource?)
    }

    /// Returns the delta set, and the bytes received to obtain it.
    func source(
        of deltas: Deltas,
        for missing: [Int],
        of tree: IndexedTree,
        _ base: Base?
    ) async throws(StageError) -> (source: DeltaSource?, received: ByteCount) {
        switch deltas {
        case .unknown: try await indexFetch.deltas(for: missing, of: tree.index, base)
        case .known(let source): (source, .zero)
        }
    }

    /// Compares the sizes of the transfer from objects, from the archive and by the patch.
    func chooseTransfer(
        for run: Run,
        reusing local: ReusableContent,
        archive: PackArchive?,
        patch: UsablePatch?,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> (TransferChoice, Deltas) {
        var candidates = indexFetch.candidates(from: run.base)
        candidates.archive = try await remaining(archive, in: run.area)
        candidates.patch = try await remaining(patch, in: run, reusing: local)
        let found = try await indexFetch.choose(
            among: candidates,
            for: local.missing,
            of: run.tree.index,
            run.base
        )
        if found.choice.way == .objects { work.reservations.release(work.pack.id) }
        figures.transferred = figures.transferred + found.received
        return (found.choice, found.deltas)
    }

    /// Returns the choice of the archive after objects have failed.
    ///
    /// - Throws: The error of the objects, unless the archive may replace them and there is space for it. It may if the server
    ///   supports no ranges and the needed bundles are larger than the archive, or if all servers lack an object or have
    ///   another one.
    func choice(
        of archive: PackArchive?,
        after error: StageError,
        insteadOf choice: TransferChoice,
        for missing: [Int],
        in run: Run
    ) async throws(StageError) -> TransferChoice {
        var choice = choice
        if case .transfer(.unacceptable(_, .ranges)) = error {
            choice.objects = run.tree.index.bundleSize(of: missing)
            // If other packs have the space by now, the bundles come whole.
            choice.archive = try await remaining(archive, in: run.area)
            return choice
        }
        guard error.isOfMissingObject, work.mayReplaceObjects,
            let size = try await remaining(archive, in: run.area)
        else { throw error }
        work.fetching.log(
            error,
            as: "objects of a pack cannot be used, and its archive replaces them"
        )
        choice.archive = size
        choice.lacksObjects = true
        return choice
    }

    /// Returns the bytes of an archive still to download; `nil` if there is no archive, or not enough space or inodes for it
    /// and its content.
    func remaining(
        _ archive: PackArchive?,
        in area: StagingArea
    ) async throws(StageError) -> ByteCount? {
        guard let archive else { return nil }
        return try await remaining(
            archive.size,
            of: archive.digest,
            with: work.pack.contentUsageByArchive,
            in: area
        )
    }

    /// Returns the bytes of a download that are not in the container yet, and reserves space for it; `nil` if there is not enough
    /// space or too few inodes for them and for the content made of it, besides the other packs of the run.
    func remaining(
        _ size: ByteCount,
        of digest: Digest,
        with content: FileSystemUsage,
        in area: StagingArea
    ) async throws(StageError) -> ByteCount? {
        let container = work.container
        let held = try await StageError.blocking { () throws(ContainerError) in
            try container.reader.downloadedSizes()[digest] ?? .zero
        }
        let reservations = work.reservations
        let remaining = max(.zero, size - held)
        let usage = content + FileSystemUsage(bytes: remaining, inodes: Planner.inodesOfRecords)
        // Twice: if a pack ends between the two calls, what it releases shows in the next snapshot.
        for _ in 0..<2 {
            let snapshot = try await StageError.blocking {
                () throws(FileError) -> SpaceReservations.Snapshot in
                try reservations.snapshot { () throws(FileError) in
                    AvailableSpace(try area.directory.freeSpace())
                }
            }
            guard snapshot.free.shortage(for: usage) == nil else { return nil }
            if reservations.reserve(usage, for: work.pack.id, at: snapshot) { return remaining }
        }
        return nil
    }

    /// Moves the missing files out of the archive, and returns the updated local content.
    ///
    /// A bad archive or a failing server is not an error: the files concerned are fetched from objects.
    func takeArchive(
        _ archive: PackArchive,
        in run: Run,
        reusing local: ReusableContent,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> ReusableContent {
        guard let unpacked = try await unpack(archive, in: run.area, countingIn: &figures) else {
            return local
        }
        return try await takeFiles(from: unpacked, in: run, reusing: local, areVerified: false)
    }

    /// Downloads the archive, and unpacks it into a directory of the area of its own.
    ///
    /// - Returns: The directory, with the complete files if the archive is damaged; `nil` if the archive cannot be
    ///   downloaded.
    func unpack(
        _ archive: PackArchive,
        in area: StagingArea,
        countingIn figures: inout StagingFigures
    ) async throws(StageError) -> Directory? {
        let verified: VerifiedArchive
        do throws(StageError) {
            verified = try await .fetch(archive, for: work)
        } catch {
            // Falls back to other sources only if no part of the archive has arrived: a later run resumes a part.
            if error.isOfSource, try await holdsNothing(of: archive.digest) {
                work.fetching.log(error, as: "the archive of an indexed pack cannot be used")
            } else {
                try note(error)
            }
            return nil
        }
        defer { verified.end() }
        figures.add(verified.figures)
        let directory = area.directory
        let unpacked = try await StageError.blocking { () throws(FileError) in
            try directory.removeTree(Self.unpacked)
            return try directory.makeDirectory(
                FilePath(Self.unpacked),
                exactly: .ownerReadWriteExecute
            )
        }
        do throws(StageError) {
            try await verified.unpack(into: unpacked)
        } catch {
            // Keeps the complete files; the index verifies each of them.
            try note(error)
        }
        return unpacked
    }

    /// Moves the missing files out of an unpacked archive, removes the rest, and returns the updated local content.
    ///
    /// With `areVerified`, all files were compared with the index, and are not read again.
    func takeFiles(
        from unpacked: Directory,
        in run: Run,
        reusing local: ReusableContent,
        areVerified: Bool
    ) async throws(StageError) -> ReusableContent {
        let done = try await withCancellableThread { cancellation throws(StageError) in
            try StageError.wrapping { () throws(FileError) in
                try run.tree.moveFiles(
                    from: unpacked,
                    to: local.areaInventory.done,
                    except: local.expected.done,
                    areVerified: areVerified
                ) { cancellation.isRequested }
            }
        }
        guard let done else { throw .cancelled }
        try await removeUnpacked(in: run.area)
        return local.adding(IndexedTree.Inventory(done: done, frames: local.areaInventory.frames))
    }

    /// Removes the directory that the archive was unpacked to.
    func removeUnpacked(in area: StagingArea) async throws(StageError) {
        let directory = area.directory
        _ = try await StageError.blocking { () throws(FileError) in
            try directory.removeTree(Self.unpacked)
        }
    }

    /// The directory of the staging area for the files of the archive; a run that continues the area removes it at once.
    private static let unpacked: FilePath.Component = "unpacked"

    /// Returns whether the container has no part of a download.
    private func holdsNothing(of digest: Digest) async throws(StageError) -> Bool {
        let container = work.container
        return try await StageError.blocking { () throws(ContainerError) in
            try container.reader.downloadedSizes()[digest] ?? .zero == .zero
        }
    }

    /// Logs that the archive cannot be used; throws an error that does not concern the archive.
    func note(_ error: StageError) throws(StageError) {
        guard error.isOfArchive else { throw error }
        work.fetching.log(error, as: "the archive of an indexed pack cannot be used")
    }

    /// Removes the archive and the patches of a staged pack, unless another process holds the download lock.
    func removeDownloads() throws(StageError) {
        let container = work.container
        let held = try StageError.wrapping { () throws(ContainerError) in
            try container.reader.downloadedSizes()
        }
        for digest in work.pack.downloads where held[digest] != nil {
            let name = ContainerLayout.downloadName(of: digest)
            let lock = try StageError.wrapping { () throws(ContainerError) in
                try container.attemptDownloadLock(name)
            }
            guard let lock else { continue }
            defer { lock.end() }
            try StageError.wrapping { () throws(TransferError) in
                try PartialFile.open(name, in: container.downloads).remove()
            }
        }
    }
}

extension StagingFigures {
    /// Adds the figures of an archive or a patch.
    mutating func add(_ download: StagingFigures) {
        transferred = transferred + download.transferred
        reused = reused + download.reused
        source = download.source ?? source
    }
}

extension StageError {
    /// `true` if the error concerns a source of content, or the way to it.
    ///
    /// Errors of this machine's files count as well: if its disk fails, the other ways to transfer the content fail, too.
    var isOfSource: Bool {
        guard case .transfer(let error) = self else { return false }
        return switch error {
        case .outOfSpace, .cancelled: false
        default: true
        }
    }

    /// `true` if all servers lack an object or have another one, so that a later request needs a correction by the publisher.
    fileprivate var isOfMissingObject: Bool {
        guard case .transfer(let error) = self else { return false }
        return error.isOfObject && !error.isWorthRetrying
    }

    /// `true` if the error concerns an archive, its server, its decoder or the space that it needs, so
    /// that another way may still succeed.
    fileprivate var isOfArchive: Bool {
        if isOutOfSpace { return true }
        return switch self {
        case .content: true
        case .transfer(let error): error.isOfObject
        default: false
        }
    }
}

extension TransferError {
    /// `true` if the server does not have the object, or has another one.
    fileprivate var isOfObject: Bool {
        switch self {
        case .refused, .wrongSize, .wrongDigest, .unacceptable: true
        default: false
        }
    }
}

extension ContentIndex {
    /// Returns the total size of the bundles that contain the frames.
    func bundleSize(of frames: [Int]) -> ByteCount {
        let needed = Set(frames.lazy.map { self.frames[$0].bundle })
        return ByteCount(needed.reduce(Int64(0)) { $0 + bundles[$1].size })
    }
}
