import Logging
import StageContainer
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// The work on one pack: locked, looked at, filled, checked, listed, published and tidied, in this order
/// whatever its content comes from.
struct PackWork: Sendable {
    let stager: Stager
    let manifest: AcceptedManifest
    let container: Container
    let pack: Pack
    let sharing: ArchiveSharing
    let report: @Sendable (StagingEvent) -> Void

    /// Stages the pack for a reason of a plan.
    func stage(_ reason: Plan.Reason, through publisher: Publisher) async -> StagingOutcome {
        // A pack that fails keeps its archive for the next run, but not that of others.
        defer { _ = endSharing() }
        do throws(StageError) {
            let lock = try await container.lock(report: report) {
                container throws(ContainerError) in try container.attemptLock(pack.id)
            }
            // Damaged content is staged again though its record says that it is there.
            if reason != .repair, try isStaged() { return .alreadyStaged }
            try checkPin()
            let source = try await source()
            defer { source.end() }
            return .staged(try await stage(from: source, holding: lock, through: publisher))
        } catch {
            return .failed(error)
        }
    }

    /// Ends the need for the archive, and returns whether no other pack of the run has it.
    private func endSharing() -> Bool {
        pack.archive.map { sharing.end($0.digest, for: pack.id) } ?? true
    }

    private func isStaged() throws(StageError) -> Bool {
        try StageError.wrapping { () throws(ContainerError) in
            try container.reader.currentGeneration(of: pack.id)?.holds(pack) ?? false
        }
    }

    /// Leaves a pack as it is that was pinned after the plan was made.
    private func checkPin() throws(StageError) {
        try StageError.wrapping { () throws(ContainerError) in
            guard let pin = try container.reader.pin(of: pack.id), !pin.holds(pack) else { return }
            throw .pinned(pack.id, version: pin.version)
        }
    }

    private func source() async throws(StageError) -> ContentSource {
        if let index = pack.index { return .index(IndexSource(work: self, reference: index)) }
        if let archive = pack.archive { return .archive(try await .fetch(archive, for: self)) }
        preconditionFailure("a pack is fetched from somewhere")
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
                await attempt("could not remove a staging area") { () throws(StageError) in
                    try StageError.wrapping { () throws(ContainerError) in try area.discard() }
                }
            }
            throw error
        }
        let kept = stager.options.keptGenerations
        // What cannot be removed now is removed by a sweep.
        await attempt("could not remove what is superfluous") { () throws(StageError) in
            if endSharing() { try source.removeDownload() }
            try StageError.wrapping { () throws(ContainerError) in
                _ = try container.removeObsoleteGenerations(lock, keeping: kept)
            }
        }
        return figures
    }

    /// Fills a staging area, checks and lists its content, and has it published.
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
            listing: filling.digests
        )
        report(.publishing)
        try await publisher.publish(publishable)
        return filling.figures
    }

    /// Runs `body`, of which a failure is logged and changes nothing, on a thread that may block.
    private func attempt(
        _ message: Logger.Message,
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
    /// Takes the lock on the download of an object.
    func downloadLock(_ digest: Digest) async throws(StageError) -> DownloadLock {
        let first = sharing.first(with: digest, besides: pack.id)
        if let first {
            report(.sharesArchive(with: first))
            await sharing.waitForFirst(with: digest)
        }
        return try await container.downloadLock(ContainerLayout.downloadName(of: digest)) { event in
            // The first pack may still have the lock for a moment, and is no other process.
            if first == nil { report(event) }
        }
    }

    /// Downloads an object of the pack, whose lock the caller holds, into its part file, continuing what an
    /// earlier run has received.
    ///
    /// The digest is computed beside the transfer. Received bytes are reported if they count as bytes of the
    /// pack.
    func download(
        _ digest: Digest,
        size: ByteCount,
        from mirrors: [String],
        reportsBytes: Bool
    ) async throws(StageError) -> (part: PartialFile, receipt: DownloadReceipt) {
        let follower = DigestFollower(size: size)
        let tracker = TransferTracker(follower, reportsBytes: reportsBytes, report: report)
        var request = DownloadRequest(
            mirrors: mirrors,
            size: size,
            verify: { path throws(TransferError) in
                do throws(FileError) {
                    return try await follower.digest(of: path) == digest
                } catch {
                    throw .storage(error)
                }
            },
            report: { tracker.take($0) }
        )
        request.priority = pack.priority
        request.allowsPlainRedirects = manifest.isSigned
        // A URL that names the content never stands for another version of it.
        request.isContentAddressed = mirrors.allSatisfy { $0.contains(digest.description) }
        let name = ContainerLayout.downloadName(of: digest)
        return try await stager.download(request, as: name, in: container)
    }
}
