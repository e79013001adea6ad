import Logging
import StageArchive
import StageContainer
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// Takes one pack through its phases: locked, fetched and verified, unpacked, published.
struct PackWork: Sendable {
    let stager: Stager
    let manifest: AcceptedManifest
    let container: Container
    let publisher: Publisher

    /// A pack whose archive is here and has the digest that the manifest names.
    ///
    /// Made by ``fetch(_:_:)`` alone, so what is not verified cannot be unpacked.
    private struct VerifiedPack: ~Copyable {
        let pack: Pack
        let source: PackArchive
        let part: PartFile
        let archive: File
        let receipt: DownloadReceipt
    }

    /// A pack whose files are in a staging area, as many and as large as declared.
    struct UnpackedPack: ~Copyable {
        let area: StagingArea
        let record: StagedPack
    }

    func stage(
        _ pack: Pack,
        _ reason: Plan.Reason,
        report: @escaping @Sendable (StagingEvent) -> Void
    ) async -> StagingOutcome {
        do throws(StageError) {
            let lock = try await lock(pack.id, report)
            // Damaged content is staged again though its record says that it is there.
            if reason != .repair, try await isStaged(pack) { return .alreadyStaged }
            try await checkPin(pack)
            if let index = pack.index { return try await stage(pack, index, lock, report) }
            if let archive = pack.archive { return await stage(pack, archive, lock, report) }
            preconditionFailure("a pack is fetched from somewhere")
        } catch {
            return .failed(error)
        }
    }

    /// Stages a pack from its archive.
    private func stage(
        _ pack: Pack,
        _ archive: PackArchive,
        _ lock: PackLock,
        _ report: @escaping @Sendable (StagingEvent) -> Void
    ) async -> StagingOutcome {
        do throws(StageError) {
            // Another pack, of another application perhaps, may have the same archive.
            let download = try await downloadLock(archive.digest, report)
            defer { download.end() }
            let verified = try await fetch(pack, archive, report)
            report(.verified)
            let (part, receipt) = (verified.part, verified.receipt)
            let unpacked = try await unpack(verified, lock, report)
            report(.publishing)
            try await publish(unpacked)
            await tidy(part, lock)
            return .staged(
                StagingFigures(
                    transferred: receipt.bytesReceived,
                    reused: receipt.bytesReused,
                    source: receipt.url
                )
            )
        } catch {
            return .failed(error)
        }
    }

    private func lock(
        _ id: PackID,
        _ report: @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> PackLock {
        let container = container
        return try await ContainerLocks.take(report) { () throws(ContainerError) in
            try container.attemptLock(id)
        }
    }

    private func downloadLock(
        _ digest: Digest,
        _ report: @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> DownloadLock {
        let (container, name) = (container, ContainerLayout.downloadName(of: digest))
        return try await ContainerLocks.take(report) { () throws(ContainerError) in
            try container.attemptDownloadLock(name)
        }
    }

    private func isStaged(_ pack: Pack) async throws(StageError) -> Bool {
        try StageError.wrapping { () throws(ContainerError) in
            try container.reader.currentGeneration(of: pack.id)?.holds(pack) ?? false
        }
    }

    /// A pack that was pinned after the plan was made is left as it is.
    private func checkPin(_ pack: Pack) async throws(StageError) {
        try StageError.wrapping { () throws(ContainerError) in
            guard let pin = try container.reader.pin(of: pack.id), !pin.holds(pack) else { return }
            throw .pinned(pack.id, version: pin.version)
        }
    }

    private func fetch(
        _ pack: Pack,
        _ archive: PackArchive,
        _ report: @escaping @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> VerifiedPack {
        let (digest, size) = (archive.digest, archive.size)
        let follower = DigestFollower(size: size)
        let tracker = TransferTracker(follower: follower, report: report)
        var request = DownloadRequest(
            mirrors: manifest.manifest.urls(
                for: archive.url,
                manifestURL: manifest.record.resolvedURL
            ),
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
        request.allowedDomains = stager.options.allowedDomains.map(AllowedDomains.init)
        request.priority = pack.priority
        // A URL that names the content never stands for another version of it.
        request.isContentAddressed = archive.url.contains(digest.description)
        let part = try StageError.wrappingTransfer { () throws(TransferError) in
            try PartFile.open(ContainerLayout.downloadName(of: digest), in: container.downloads)
        }
        do throws(TransferError) {
            let receipt = try await stager.engine.download(request, to: part)
            return VerifiedPack(
                pack: pack,
                source: archive,
                part: part,
                archive: try Self.open(part),
                receipt: receipt
            )
        } catch {
            throw error == .cancelled ? .cancelled : .transfer(error)
        }
    }

    private static func open(_ part: PartFile) throws(TransferError) -> File {
        do throws(FileError) {
            return try File.open(readingRegular: part.path)
        } catch {
            throw .storage(error)
        }
    }

    private func unpack(
        _ verified: consuming VerifiedPack,
        _ lock: PackLock,
        _ report: @escaping @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> UnpackedPack {
        let container = container
        let area = try await StageError.blocking { () throws(ContainerError) in
            try container.makeStagingArea(lock)
        }
        do throws(StageError) {
            let found = try await unpack(verified, into: area, report)
            let (pack, archive) = (verified.pack, verified.source)
            let declared = ContentFigures(fileCount: pack.fileCount, size: pack.installedSize)
            guard found == declared else {
                throw .incompleteContent(declared: declared, actual: found)
            }
            try await list(area, of: pack)
            let record = StagedPack(
                pack,
                of: manifest.manifest,
                source: verified.receipt.url ?? archive.url,
                stagedAt: stager.options.now()
            )
            return UnpackedPack(area: area, record: record)
        } catch {
            await discard(area)
            throw error
        }
    }

    private func unpack(
        _ verified: borrowing VerifiedPack,
        into area: StagingArea,
        _ report: @escaping @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> ContentFigures {
        let archive = verified.source
        let request = UnpackRequest(
            archive: verified.archive.descriptor,
            destination: area.content,
            format: archive.format,
            fileName: archive.fileName ?? archive.lastComponent,
            limits: UnpackLimits(
                entries: verified.pack.fileCount,
                bytes: verified.pack.installedSize
            )
        )
        do throws(ArchiveError) {
            let unpacker = stager.unpacker
            let found = try await stager.unpacking.run { () throws(ArchiveError) in
                try await unpacker.unpack(request) { report(.unpacked($0)) }
            }
            return ContentFigures(fileCount: found.files + found.links, size: found.bytes)
        } catch {
            throw error == .cancelled ? .cancelled : .content(error)
        }
    }

    /// Lists what was unpacked, with digests.
    ///
    /// The processor reads a large pack once more while the disk writes it: publishing waits for the
    /// disk in any case, and has less to wait for then.
    private func list(_ area: StagingArea, of pack: Pack) async throws(StageError) {
        let container = container
        async let isWritten: StageError? =
            pack.installedSize < Self.largeSize
            ? nil : Self.startWriting(container)
        let listing = await withBlockingThread { () -> ContainerError? in
            do throws(ContainerError) {
                try ContentListing.write(for: area)
                return nil
            } catch {
                return error
            }
        }
        let failure = await isWritten
        if let listing { throw .container(listing) }
        if let failure { throw failure }
    }

    /// From this size on, a pack begins to be written to disk before it is listed.
    private static let largeSize = ByteCount.mebibytes(8)

    private static func startWriting(_ container: Container) async -> StageError? {
        do throws(StageError) {
            try await StageError.blocking { () throws(ContainerError) in
                try container.synchronize()
            }
            return nil
        } catch {
            return error
        }
    }

    func publish(_ unpacked: consuming UnpackedPack) async throws(StageError) {
        let area = unpacked.area
        do throws(ContainerError) {
            try await publisher.publish(area, unpacked.record)
        } catch {
            await discard(area)
            throw .container(error)
        }
    }

    /// Removes what staging the pack has made superfluous.
    ///
    /// What cannot be removed now is removed by a sweep.
    func tidy(_ part: PartFile?, _ lock: PackLock) async {
        let (container, kept) = (container, stager.options.keptGenerations)
        let error = await withBlockingThread { () -> StageError? in
            do throws(StageError) {
                do throws(TransferError) { try part?.remove() } catch { throw .transfer(error) }
                try StageError.wrapping { () throws(ContainerError) in
                    _ = try container.removeObsoleteGenerations(lock, keeping: kept)
                }
                return nil
            } catch {
                return error
            }
        }
        guard let error else { return }
        stager.logger.warning(
            "could not remove what is superfluous",
            metadata: ["pack.id": "\(lock.id)", "error": "\(error)"]
        )
    }

    func discard(_ area: StagingArea) async {
        let error = await withBlockingThread { () -> ContainerError? in
            do throws(ContainerError) {
                try area.discard()
                return nil
            } catch {
                return error
            }
        }
        guard let error else { return }
        stager.logger.warning(
            "could not remove a staging area",
            metadata: ["pack.id": "\(area.id)", "error": "\(error)"]
        )
    }
}

extension PackArchive {
    /// The last component of the URL's path: the name of a single file that has no other.
    var lastComponent: String? {
        let path = url.prefix { $0 != "?" && $0 != "#" }
        return path.split(separator: "/").last.map(String.init)
    }
}
