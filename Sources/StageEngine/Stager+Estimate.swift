public import StageContainer
import StageIndex
public import StageModel
import StageSystem
import SystemPackage

extension Stager {
    /// Returns a plan with the exact transfer sizes of indexed packs.
    ///
    /// Fetches the index of each indexed pack to stage, or the delta to it from the staged version. Writes
    /// nothing to disk. A pack keeps its upper bound if its index cannot be fetched, or if the container holds
    /// parts of it already.
    ///
    /// - Parameters:
    ///   - plan: The plan.
    ///   - manifest: The manifest that the plan was made from.
    ///   - reader: The container; `nil` if it does not exist.
    ///   - freeSpace: The free space of the file system; `nil` if unknown.
    /// - Returns: The plan with the estimates.
    public func estimate(
        _ plan: Plan,
        of manifest: AcceptedManifest,
        in reader: ContainerReader?,
        freeSpace: ByteCount?
    ) async -> Plan {
        await withTaskGroup(of: (Int, TransferChoice, ByteCount)?.self) { group in
            var plan = plan
            func add(_ found: (Int, TransferChoice, ByteCount)?) {
                guard let (place, choice, byteCount) = found else { return }
                plan.entries[place].transfer = choice
                plan.entries[place].transferSize = byteCount
                plan.entries[place].isTransferSizeExact = true
            }
            var running = 0
            for (place, entry) in plan.entries.enumerated() {
                guard let choice = entry.transfer, let reference = entry.pack.index else {
                    continue
                }
                if running == options.concurrentPacks, let found = await group.next() {
                    add(found)
                    running -= 1
                }
                running += 1
                group.addTask {
                    let fetching = PackFetching(
                        stager: self,
                        manifest: manifest,
                        pack: entry.pack,
                        report: { _ in }
                    )
                    let fetch = IndexFetch(fetching: fetching, reference: reference)
                    // If the fetch fails, the entry of the plan stays as it was.
                    let found = try? await fetch.estimate(choice, in: reader, freeSpace: freeSpace)
                    return found.flatMap { $0 }.map { (place, $0.choice, $0.byteCount) }
                }
            }
            for await found in group { add(found) }
            return plan
        }
    }
}

extension IndexFetch {
    /// Estimates the transfer for staging the pack in a container; returns `nil` if the container holds
    /// partial content.
    fileprivate func estimate(
        _ choice: TransferChoice,
        in reader: ContainerReader?,
        freeSpace: ByteCount?
    ) async throws(StageError) -> (choice: TransferChoice, byteCount: ByteCount)? {
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
        guard !base.isPartial, choice.dependsOnIndex == (base.lease != nil) else { return nil }
        let held = try await StageError.blocking { () throws(FileError) in
            try IndexSource.Base(base.lease)
        }
        let files = StoredGeneration.size(pack.installedSize, fileCount: pack.fileCount)
        let archive = choice.archive.flatMap { size in
            // The choice of a first installation includes the delta of the index.
            let delta = held == nil ? reference.fileTableDelta?.size ?? .zero : .zero
            return Planner.hasSpace(for: size, and: files, in: freeSpace) ? size - delta : nil
        }
        return try await estimate(
            from: held,
            archive: archive,
            patch: choice.patch,
            freeSpace: freeSpace
        )
    }
}
