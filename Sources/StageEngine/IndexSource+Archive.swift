import Logging
import StageContainer
import StageIndex
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

extension IndexSource {
    /// A delta set, as far as it is known whether there is one.
    enum Deltas: Sendable {
        /// Nothing has been asked for.
        case unknown
        /// Its table has been asked for, and `nil` came of it where it is of no use.
        case known(DeltaSource?)
    }

    /// Returns the delta set, and the bytes that were received to know it.
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

    /// Compares the bytes of what is missing in objects and in the archive.
    func choose(
        _ run: Run,
        _ local: LocalContent,
        _ figures: inout StagingFigures
    ) async throws(StageError) -> (TransferChoice, Deltas) {
        let archive = try await remainingArchive(in: run.area)
        let found = try await indexFetch.choose(
            for: local.missing,
            of: run.tree.index,
            run.base,
            archive: archive
        )
        figures.transferred = figures.transferred + found.received
        return (found.choice, found.deltas)
    }

    /// The bytes of the archive that are not here; `nil` where there is no archive, or no room for it beside
    /// its files.
    private func remainingArchive(in area: StagingArea) async throws(StageError) -> ByteCount? {
        guard let archive = work.pack.archive else { return nil }
        let (container, pack) = (work.container, work.pack)
        let held = try await StageError.blocking { () throws(ContainerError) in
            try container.downloadedSizes()[archive.digest] ?? .zero
        }
        let free = try await StageError.blocking { () throws(FileError) in
            try area.directory.freeSpace()
        }
        let remaining = max(.zero, archive.size - held)
        let files = StoredGeneration.size(pack.installedSize, fileCount: pack.fileCount)
        let isRoom = remaining + files + Planner.reserve <= ByteCount(free.bytes)
        return isRoom ? remaining : nil
    }

    /// Takes the missing files from the archive, and returns what is here then.
    ///
    /// Nothing that is wrong with the archive or its server is an error: what does not hold what the index
    /// names comes from objects.
    func takeArchive(
        _ archive: PackArchive,
        in run: Run,
        _ local: LocalContent,
        _ figures: inout StagingFigures
    ) async throws(StageError) -> LocalContent {
        let verified: VerifiedArchive
        do throws(StageError) {
            verified = try await .fetch(archive, for: work)
        } catch {
            guard error.isOfArchive else { throw error }
            note(error)
            return local
        }
        defer { verified.end() }
        figures.add(verified.figures)
        let area = run.area.directory
        let unpacked = try await StageError.blocking { () throws(FileError) in
            try area.removeTree(Self.unpacked)
            return try area.makeDirectory(
                FilePath(Self.unpacked),
                exactly: .ownerReadWriteExecute
            )
        }
        do throws(StageError) {
            try await verified.unpack(into: unpacked)
        } catch {
            guard error.isOfArchive else { throw error }
            // The files that are whole are as good as any.
            note(error)
        }
        let done = try await moveFiles(from: unpacked, run, local)
        _ = try await StageError.blocking { () throws(FileError) in
            try area.removeTree(Self.unpacked)
        }
        return local.adding(done)
    }

    /// The directory of the area that an archive is unpacked to; the next run that is given the area removes it.
    private static let unpacked: FilePath.Component = "unpacked"

    private func moveFiles(
        from unpacked: Directory,
        _ run: Run,
        _ local: LocalContent
    ) async throws(StageError) -> [Bool] {
        let done = try await withCancellableThread { cancellation throws(StageError) in
            try StageError.wrapping { () throws(FileError) in
                try run.tree.moveFiles(
                    from: unpacked,
                    to: local.begun.done,
                    except: local.expected.done
                ) { cancellation.isRequested }
            }
        }
        guard let done else { throw .cancelled }
        return done
    }

    private func note(_ error: StageError) {
        work.stager.logger.warning(
            "the archive beside an index is of no use",
            metadata: ["pack.id": "\(work.pack.id)", "error": "\(error)"]
        )
    }

    /// Removes the archive of a pack that is staged, unless another process needs it.
    func removeArchive() throws(StageError) {
        guard let archive = work.pack.archive else { return }
        let container = work.container
        let name = ContainerLayout.downloadName(of: archive.digest)
        let lock = try StageError.wrapping { () throws(ContainerError) -> DownloadLock? in
            guard try container.downloadedSizes()[archive.digest] != nil else { return nil }
            return try container.attemptDownloadLock(name)
        }
        guard let lock else { return }
        defer { lock.end() }
        try StageError.wrapping { () throws(TransferError) in
            try PartialFile.open(name, in: container.downloads).remove()
        }
    }
}

extension StagingFigures {
    fileprivate mutating func add(_ archive: StagingFigures) {
        transferred = transferred + archive.transferred
        reused = reused + archive.reused
        source = archive.source ?? source
    }
}

extension StageError {
    /// Whether an archive, its server or its decoder is the reason, or the room that it takes, so that objects
    /// may be had all the same.
    fileprivate var isOfArchive: Bool {
        if isOutOfSpace { return true }
        return switch self {
        case .content: true
        case .transfer(let error): error.isOfArchive
        default: false
        }
    }
}

extension TransferError {
    /// Whether the server has no such archive, or another one.
    fileprivate var isOfArchive: Bool {
        switch self {
        case .refused, .wrongSize, .wrongDigest, .unacceptable: true
        default: false
        }
    }
}

extension ContentIndex {
    /// The bytes of the bundles that some frames are in.
    func bundleSize(of frames: [Int]) -> ByteCount {
        let needed = Set(frames.lazy.map { self.frames[$0].bundle })
        return ByteCount(needed.reduce(Int64(0)) { $0 + bundles[$1].size })
    }
}
