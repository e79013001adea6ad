package import Logging
package import StageContainer
package import StageEngine
import StageModel
import StageSystem
import SystemPackage

extension StagingService {
    /// Returns the copies of packs in other containers that readers search; empty if those cannot be read.
    func copiesElsewhere(
        of manifest: Manifest,
        than path: FilePath
    ) -> [PackID: Planner.CopyElsewhere] {
        do throws(ContainerError) {
            return try target.copiesElsewhere(of: manifest, than: path)
        } catch {
            // The packs are then staged here as well, as a second copy.
            logger.info("Another container cannot be read", metadata: ["error": "\(error)"])
            return [:]
        }
    }

    /// Plans for the current state of the container, with evictions if space is short.
    func plan(
        with planner: inout Planner,
        for selection: PackSelection,
        of manifest: AcceptedManifest,
        by stager: Stager,
        at path: FilePath
    ) async throws(StagingFailure) -> Plan {
        let reader: ContainerReader?
        do throws(StageError) {
            reader = try ContainerReader.reading(path)
        } catch {
            throw StagingFailure(error)
        }
        let packs = request.isOffline ? [] : planner.packsToMeasure(for: selection)
        if !packs.isEmpty, await mayMeasurePacks(of: selection) {
            // By the manifest alone they do not fit. Their indexes tell which files updates share with staged versions, and
            // which entries are links.
            let space = await stager.spaceByIndex(of: packs, from: manifest, in: reader)
            planner.spaceByIndex.merge(space) { _, new in new }
        }
        guard let reader else { return planner.plan(for: selection) }
        do throws(StageError) {
            return try planner.plan(for: selection, in: reader)
        } catch {
            throw StagingFailure(error)
        }
    }

    /// Returns whether a run may fetch indexes before it has the daemon's permit: a periodic run only while network and
    /// power meet the conditions.
    private func mayMeasurePacks(of selection: PackSelection) async -> Bool {
        guard selection.isPeriodic, request.waitsForConditions, !request.isDryRun else {
            return true
        }
        return await unmetConditions().isEmpty
    }

    /// Carries out evictions to free space, and returns those that took place.
    func makeRoom(_ evictions: [Eviction], in container: Container) async -> [Eviction] {
        guard !evictions.isEmpty else { return [] }
        let (gone, failure) = await container.evictAndRemember(evictions, logger: logger)
        // At the level debug, where handlers do not combine messages with the same text.
        for eviction in gone {
            logger.debug(
                "A generation was evicted",
                metadata: [
                    "generation.id": "\(eviction.generation.id)",
                    "eviction.reason": "\(eviction.reason)",
                ]
            )
        }
        // A pack that does not fit then fails with its own error.
        if let failure {
            logger.warning("Space cannot be freed", metadata: ["error": "\(failure)"])
        }
        return gone
    }

    /// Returns the free space and inodes of the container's file system after evictions; `nil` if they cannot be read.
    func spaceAfterEvictions(in container: Container) async -> AvailableSpace? {
        await withBlockingThread { () -> AvailableSpace? in
            // Btrfs and XFS free the blocks of deleted files some time later, or when they are synced.
            try? container.root.synchronizeFileSystem()
            // Staging a pack reports errors of the file system.
            return (try? container.root.freeSpace()).map { AvailableSpace($0) }
        }
    }

    /// Removes packs that are not needed once the packs are staged, and enforces the quota.
    ///
    /// - Throws: ``StagingFailure/registrationChanged(_:)`` if another registration is in effect by now.
    func removeObsolete(
        _ container: Container,
        by planner: Planner,
        after selection: PackSelection,
        addingTo result: inout StagingResult
    ) async throws(StagingFailure) {
        try checkRegistration()
        if case .event(.periodic, essentialOnly: false) = selection {
            result.removed = removeObsoletePacks(container)
        }
        // Partial downloads of staged packs are not needed any more, except after failures and for packs to repair.
        var isRepair = false
        if case .repair = selection { isRepair = true }
        removeRemains(in: container, keepingOffered: isRepair || result.hasFailures)
        result.add(await enforceQuota(of: planner, sparing: selection, in: container))
    }

    /// Removes packs that no manifest offers any more, and returns their identifiers.
    private func removeObsoletePacks(_ container: Container) -> [PackID] {
        do throws(ContainerError) {
            return try container.removeObsoletePacks { id, error in
                logger.warning(
                    "A pack that no manifest offers cannot be removed",
                    metadata: ["pack.id": "\(id)", "error": "\(error)"]
                )
            }
        } catch {
            logger.warning(
                "Packs that no manifest offers cannot be removed",
                metadata: ["error": "\(error)"]
            )
            return []
        }
    }

    /// Removes files that killed runs left and that no run resumes.
    ///
    /// - Parameters:
    ///   - container: The container.
    ///   - keepingOffered: Pass `true` to keep the content of all packs that a manifest offers.
    ///   - manifest: The manifest of the run, if it is not in the container yet.
    func removeRemains(
        in container: Container,
        keepingOffered: Bool,
        after manifest: Manifest? = nil
    ) {
        do throws(ContainerError) {
            try container.removeRemains(
                now: request.options.now(),
                keepingOffered: keepingOffered,
                after: manifest
            ).check()
        } catch {
            logger.warning(
                "Files of killed runs cannot be removed",
                metadata: ["error": "\(error)"]
            )
        }
    }

    /// Evicts packs until the container is within its quota.
    func enforceQuota(
        of planner: Planner,
        sparing selection: PackSelection,
        in container: Container
    ) async -> [Eviction] {
        guard let quota = planner.quota else { return [] }
        do throws(StageError) {
            var policy = try EvictionPolicy(container.reader, offering: planner.manifest)
            let excess = policy.excess(over: quota)
            let spared = planner.packsAskedFor(selection)
            return await makeRoom(policy.evict(excess, sparing: spared), in: container)
        } catch {
            logger.warning("The quota cannot be kept", metadata: ["error": "\(error)"])
            return []
        }
    }
}

extension StagingService {
    /// Adds to the plan of a dry run the exact transfer sizes of indexed packs, if the network may be used;
    /// returns other plans unchanged.
    func estimated(
        _ plan: Plan,
        of manifest: AcceptedManifest,
        with planner: Planner,
        by stager: Stager,
        at path: FilePath
    ) async -> Plan {
        guard request.isDryRun, !request.isOffline else { return plan }
        // A container that cannot be read has failed the plan already.
        let reader = (try? ContainerReader.reading(path)) ?? nil
        let available = planner.available
        return await stager.estimate(plan, of: manifest, in: reader, available: available)
    }

    /// Adds to the result of a dry run the steps that a run takes after staging: a periodic run removes packs
    /// that no manifest offers, and every run enforces the quota.
    func addUpkeep(
        after plan: Plan,
        by planner: Planner,
        for selection: PackSelection,
        at path: FilePath,
        to result: inout StagingResult
    ) throws(StagingFailure) {
        do throws(StageError) {
            guard let reader = try ContainerReader.reading(path) else { return }
            var removed: [PackID] = []
            if case .event(.periodic, essentialOnly: false) = selection {
                removed = try reader.obsoletePacks(offering: planner.manifest)
                result.removed = removed
            }
            guard let quota = planner.quota else { return }
            let policy = try EvictionPolicy(reader, offering: planner.manifest)
            var later = policy.after(plan, removing: Set(removed))
            let staged = plan.packsToStage.reduce(ByteCount.zero) { sum, pack in
                sum + StoredGeneration.size(of: pack)
            }
            let excess = later.excess(over: quota, adding: staged)
            result.addPlanned(later.evict(excess, sparing: planner.packsAskedFor(selection)))
        } catch {
            throw StagingFailure(error)
        }
    }
}

extension ContainerReader {
    /// Returns the staged packs that a periodic run removes, since no manifest offers them.
    fileprivate func obsoletePacks(offering manifest: Manifest) throws(StageError) -> [PackID] {
        do throws(ContainerError) {
            guard let catalogue = try manifestCatalogue(replacing: manifest) else { return [] }
            let wanted = catalogue.keptPacks.union(catalogue.manifests.flatMap(\.packs).map(\.id))
            return try unpinnedPacks(except: wanted)
        } catch {
            throw .container(error)
        }
    }
}

extension Container {
    /// Carries out evictions, and records them in the history for `why`; returns those that took place, with
    /// the first error.
    package func evictAndRemember(
        _ evictions: [Eviction],
        logger: Logger
    ) async -> (gone: [Eviction], failure: StageError?) {
        let result = await withBlockingThread { self.evict(evictions) }
        let packs = result.gone.filter(\.isOfPack)
        guard !packs.isEmpty else { return result }
        do throws(ContainerError) {
            for application in try reader.applicationsWithHistory() {
                try updateHistory(of: application) { history in
                    for eviction in packs { history.add(eviction) }
                }
            }
        } catch {
            logger.warning(
                "Evictions cannot be recorded in the history",
                metadata: ["error": "\(error)"]
            )
        }
        return result
    }
}

extension StagingHistory {
    /// Records the eviction of a pack that is in the application's history.
    fileprivate mutating func add(_ eviction: Eviction) {
        guard let index = packs.firstIndex(where: { $0.id == eviction.generation.id }) else {
            return
        }
        packs[index].outcome = .evicted
        packs[index].reason = eviction.stagingReason
    }
}
