import Logging
import StageContainer
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Stages one pack: locks it, checks its state, fills a staging area, verifies and lists the content,
/// publishes it and removes leftovers.
///
/// The order is the same for every source of content.
struct PackWork: Sendable {
    let stager: Stager
    let manifest: AcceptedManifest
    let container: Container
    let pack: Pack
    let sharing: ArchiveSharing
    let reservations: SpaceReservations
    let report: @Sendable (StagingEvent) -> Void
    /// `true` if the archive of an indexed pack may replace objects that are missing or damaged on the servers.
    var mayReplaceObjects = true

    /// Stages the pack for a reason from a plan.
    func stage(_ reason: Plan.Reason, through publisher: Publisher) async -> StagingOutcome {
        // After a failure the archive stays for the next run, and other packs of this run stop waiting.
        defer { _ = endSharing() }
        await waitForSharedArchive()
        do throws(StageError) {
            let lock = try await lock()
            if let outcome = try await stageFromContainer(reason, holding: lock) { return outcome }
            let source = try await source()
            defer { source.end() }
            return .staged(try await stage(from: source, holding: lock, through: publisher))
        } catch {
            return .failed(error)
        }
    }

    /// Stages the pack for a reason from a plan if the container keeps its content; `nil` if it has to be downloaded.
    func stageKept(_ reason: Plan.Reason) async -> StagingOutcome? {
        do throws(StageError) {
            let lock = try await lock()
            return try await stageFromContainer(reason, holding: lock)
        } catch {
            return .failed(error)
        }
    }

    /// Acquires the lock of the pack.
    private func lock() async throws(StageError) -> PackLock {
        try await container.packLock(pack.id, within: lockTimeout, report: report)
    }

    /// Time limit of the wait for another process that works on the pack; `nil` for no limit.
    private var lockTimeout: LockTimeout? {
        stager.options.lockTimeLimit.map { limit in
            LockTimeout(limit: limit, error: .container(.busy(pack.id)))
        }
    }

    /// Returns the outcome of a pack that is staged or kept; `nil` if it has to be downloaded.
    private func stageFromContainer(
        _ reason: Plan.Reason,
        holding lock: PackLock
    ) async throws(StageError) -> StagingOutcome? {
        // A repair stages the pack again, although its record says that it is staged.
        if reason != .repair, try isStaged() { return .alreadyStaged }
        if try isSuperseded() { return .alreadyStaged }
        try checkPin()
        guard stager.options.mayPublish() else { throw .cancelled }
        guard reason != .repair else { return nil }
        return try await restoreKept(holding: lock).map(StagingOutcome.staged)
    }

    /// Records that this pack needs neither its archive nor space any more; returns `true` if the archive can be removed,
    /// because all packs of the run that share it have ended.
    private func endSharing() -> Bool {
        // The reservation ends first: packs that wait for the archive need its space for their content.
        reservations.end(pack.id)
        return pack.archive.map { sharing.end($0.digest, for: pack.id) } ?? true
    }

    private func isStaged() throws(StageError) -> Bool {
        try StageError.wrapping { () throws(ContainerError) in
            let reader = container.reader
            guard try reader.currentGeneration(of: pack.id)?.holds(pack) == true else {
                return false
            }
            return try reader.hasFiles(of: pack.id)
        }
    }

    /// Returns whether another process staged the pack from a newer manifest after the plan was made.
    ///
    /// The container must still have a newer manifest, so that packs of earlier revisions do not hold back a
    /// publisher that numbers its manifests from the beginning again.
    private func isSuperseded() throws(StageError) -> Bool {
        guard let revision = manifest.revision else { return false }
        let application = manifest.manifest.application
        return try StageError.wrapping { () throws(ContainerError) in
            let reader = container.reader
            guard let record = try reader.intactRecord(of: pack.id),
                record.application == application, record.manifestRevision > revision,
                try reader.hasFiles(of: pack.id),
                let stored = try reader.storedManifest(for: application),
                // A damaged manifest counts as none.
                let newest = try? AcceptedManifest(stored: stored).revision
            else { return false }
            return newest > revision
        }
    }

    /// Throws if the pack was pinned to another version after the plan was made.
    private func checkPin() throws(StageError) {
        try StageError.wrapping { () throws(ContainerError) in
            guard let pin = try container.reader.pin(of: pack.id), !pin.holds(pack) else { return }
            throw .pinned(pack.id, version: pin.version)
        }
    }

    private func source() async throws(StageError) -> ContentSource {
        if let index = pack.index { return .index(IndexSource(work: self, reference: index)) }
        if let archive = pack.archive {
            try await checkSpaceOfArchive()
            return .archive(try await .fetch(archive, for: self))
        }
        preconditionFailure("a pack has an index or an archive")
    }

    private func stage(
        from source: ContentSource,
        holding lock: PackLock,
        through publisher: Publisher
    ) async throws(StageError) -> StagingFigures {
        let container = container
        let area = try await StageError.blocking { () throws(ContainerError) in
            try source.makeArea(in: container, holding: lock)
        }
        let figures: StagingFigures
        do throws(StageError) {
            figures = try await publish(source, in: area, through: publisher)
        } catch {
            if !source.keepsArea(after: error) {
                await attempt(orLog: "could not remove a staging area") { () throws(StageError) in
                    try StageError.wrapping { () throws(ContainerError) in try area.discard() }
                }
            }
            throw error
        }
        // `gc` removes later what cannot be removed now.
        await attempt(orLog: "could not remove obsolete content") { () throws(StageError) in
            if endSharing() { try source.removeDownload() }
            try removeObsoleteGenerations(lock)
        }
        return figures
    }

    /// Makes a generation with the content of the pack current if the container keeps an intact one; returns `nil` if it
    /// does not.
    ///
    /// Reads every file, since nothing has verified the content since it was staged.
    private func restoreKept(holding lock: PackLock) async throws(StageError) -> StagingFigures? {
        let (container, pack) = (container, pack)
        let found = try await StageError.blocking {
            () throws(ContainerError) -> KeptGeneration? in
            let reader = container.reader
            for kept in try reader.keptGenerations(holding: pack) {
                guard let directory = try reader.directory(of: kept.name, pack.id),
                    ContentListing.isIntact(directory)
                else { continue }
                return kept
            }
            return nil
        }
        guard let found else { return nil }
        report(.received(pack.downloadSize, reused: pack.downloadSize))
        report(.publishing)
        guard stager.options.mayPublish() else { throw .cancelled }
        var restored = StagedPack(
            pack,
            of: manifest.manifest,
            source: found.source,
            stagedAt: stager.options.now()
        )
        restored.directoryCount = found.directoryCount
        let record = restored
        try await StageError.blocking { () throws(ContainerError) in
            try container.restore(found.name, as: record, holding: lock)
        }
        await attempt(orLog: "could not remove obsolete content") { () throws(StageError) in
            try removeObsoleteGenerations(lock)
        }
        return StagingFigures(transferred: .zero, reused: pack.downloadSize, source: nil)
    }

    /// Removes generations beyond the number to keep.
    private func removeObsoleteGenerations(_ lock: PackLock) throws(StageError) {
        let kept = stager.options.keptGenerations
        try StageError.wrapping { () throws(ContainerError) in
            try container.removeObsoleteGenerations(lock, keeping: kept).check()
        }
    }

    /// Fills a staging area, verifies and lists its content, and publishes it.
    private func publish(
        _ source: ContentSource,
        in area: StagingArea,
        through publisher: Publisher
    ) async throws(StageError) -> StagingFigures {
        let filling = try await source.fill(area)
        let record = StagedPack(
            pack,
            of: manifest.manifest,
            source: filling.figures.source ?? source.url,
            stagedAt: stager.options.now()
        )
        let publishable = try await PublishablePack.check(
            area,
            as: record,
            declaring: pack.declaredFigures,
            listing: filling.digests
        )
        report(.publishing)
        guard stager.options.mayPublish() else { throw .cancelled }
        try await publisher.publish(publishable)
        return filling.figures
    }

    /// Runs `body` on a thread that may block; logs an error and ignores it.
    private func attempt(
        orLog message: Logger.Message,
        _ body: @escaping @Sendable () throws(StageError) -> Void
    ) async {
        do throws(StageError) {
            try await withBlockingThread(body)
        } catch {
            let metadata: Logger.Metadata = ["pack.id": "\(pack.id)", "error": "\(error)"]
            stager.logger.warning(message, metadata: metadata)
        }
    }
}

extension PackWork {
    /// Waits until the pack of this run that downloads the archive of this one first has ended.
    ///
    /// Without the lock on the pack: of two processes with the packs in opposite orders, each would wait for a
    /// lock that the other holds.
    private func waitForSharedArchive() async {
        guard let digest = pack.archive?.digest,
            let first = sharing.first(with: digest, besides: pack.id)
        else { return }
        report(.sharesArchive(with: first))
        await sharing.waitForFirst(with: digest)
    }

    /// Acquires the download lock of an object.
    func downloadLock(_ digest: Digest) async throws(StageError) -> DownloadLock {
        let first = sharing.first(with: digest, besides: pack.id)
        let name = ContainerLayout.downloadName(of: digest)
        return try await container.downloadLock(name, within: lockTimeout) { event in
            // The first pack may still hold the lock for a moment; it is not another process.
            if first == nil { report(event) }
        }
    }

    /// Downloads an object of the pack into its partial file, or resumes the download of an earlier run.
    ///
    /// The caller holds the download lock.
    ///
    /// Computes the digest in parallel.
    func download(
        _ digest: Digest,
        size: ByteCount,
        from mirrors: [String]
    ) async throws(StageError) -> (part: PartialFile, receipt: DownloadReceipt) {
        let follower = DigestFollower(size: size)
        let tracker = TransferTracker(follower, report: report)
        var request = DownloadRequest(
            mirrors: mirrors,
            size: size,
            verify: { path throws(TransferError) in
                do throws(FileError) {
                    let found = try await follower.digest(of: path)
                    return DigestMismatch(expected: digest, found: found)
                } catch {
                    throw .storage(error)
                }
            },
            report: { tracker.take($0) }
        )
        request.priority = pack.priority
        request.allowsPlainRedirects = manifest.isSigned
        request.comparesDigest = true
        // The content of a URL that contains its digest never changes.
        request.isContentAddressed = mirrors.allSatisfy { $0.contains(digest.description) }
        let name = ContainerLayout.downloadName(of: digest)
        return try await stager.download(request, as: name, in: container, digestedSize: size)
    }
}
