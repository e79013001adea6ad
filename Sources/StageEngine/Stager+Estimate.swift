package import StageContainer
import StageIndex
import StageModel
import StageSystem
import SystemPackage

extension Stager {
    /// Returns a plan with the exact transfer sizes of indexed packs.
    ///
    /// Fetches the index of each indexed pack to stage, or the delta to it from the staged version. Writes
    /// nothing to disk. A pack keeps its upper bound if its index cannot be fetched, or if the container holds
    /// parts of it already. If there is not enough space for the archives of all packs, the first ones in the order of the plan
    /// get it.
    ///
    /// - Parameters:
    ///   - plan: The plan.
    ///   - manifest: The manifest that the plan was made from.
    ///   - reader: The container; `nil` if it does not exist.
    ///   - available: The free space and inodes of the file system.
    /// - Returns: The plan with the estimates.
    package func estimate(
        _ plan: Plan,
        of manifest: AcceptedManifest,
        in reader: ContainerReader?,
        available: AvailableSpace
    ) async -> Plan {
        var planned: [PackID: TransferCandidates] = [:]
        for entry in plan.entries { planned[entry.pack.id] = entry.candidates }
        let packs = plan.entries.filter { $0.candidates != nil }.map(\.pack)
        let reservations = SpaceReservations(available, for: plan.entries)
        let transfer: @Sendable (IndexFetch) async -> TransferEstimate? = { [planned] fetch in
            let id = fetch.fetching.pack.id
            guard let candidates = planned[id] else { return nil }
            let available = reservations.available(for: id)
            // If the fetch fails, the entry of the plan stays as it was.
            return try? await fetch.estimate(candidates, in: reader, available: available)
        }
        var estimates = await withIndexes(of: packs, from: manifest, transfer)
        let withoutSpace = packs.filter { pack in
            guard estimates[pack.id]?.choice.way == .archive, let size = planned[pack.id]?.archive
            else { return false }
            return !reservations.reserve(pack.usage(byDownloadOf: size), for: pack.id)
        }
        // The packs before them have the space for their archives.
        for (id, estimate) in await withIndexes(of: withoutSpace, from: manifest, transfer) {
            estimates[id] = estimate
        }
        var plan = plan
        for index in plan.entries.indices {
            guard let estimate = estimates[plan.entries[index].pack.id] else { continue }
            plan.entries[index].transfer = estimate.choice
            plan.entries[index].transferSize = estimate.byteCount
            plan.entries[index].isTransferSizeExact = true
        }
        return plan
    }
}

/// The transfer for staging a pack: the choice with exact sizes, and the bytes of all requests of a run.
typealias TransferEstimate = (choice: TransferChoice, byteCount: ByteCount)

extension IndexFetch {
    /// Estimates the transfer for staging the pack in a container; returns `nil` if the container holds
    /// partial content.
    fileprivate func estimate(
        _ planned: TransferCandidates,
        in reader: ContainerReader?,
        available: AvailableSpace
    ) async throws(StageError) -> TransferEstimate? {
        let pack = fetching.pack
        let base = try await StageError.blocking {
            () throws(ContainerError) -> (isPartial: Bool, lease: Lease?) in
            guard let reader else { return (false, nil) }
            let digest = reference.contentDigest
            let files = try reader.partialContent(of: digest)
            let hasArea = try reader.hasStagingArea(of: pack.id, for: digest)
            let isPartial = files != nil || hasArea
            return (isPartial, try reader.lease(pack.id, marksUse: false))
        }
        // A simulated plan may assume staged packs that do not exist.
        guard !base.isPartial, planned.isUpdate == (base.lease != nil) else { return nil }
        let held = try await StageError.blocking { () throws(FileError) in
            try IndexSource.Base(base.lease)
        }
        var candidates = candidates(from: held)
        (candidates.archive, candidates.patch) = (planned.archive, planned.patch)
        return try await estimate(among: candidates, from: held, available: available)
    }
}

extension Pack {
    /// Returns the most disk space, and the inodes, of an archive or a patch of some bytes, and of the content that is made from it.
    func usage(byDownloadOf size: ByteCount) -> FileSystemUsage {
        contentUsageByArchive + FileSystemUsage(bytes: size, inodes: Planner.inodesOfRecords)
    }
}
