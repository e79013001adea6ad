package import Logging
package import StageContainer
package import StageEngine
import StageModel
import StageSystem
import SystemPackage

extension StagingService {
    /// The copies of packs that readers may get from another container; none if that cannot be read.
    func copiesElsewhere(
        of manifest: Manifest,
        than path: FilePath
    ) -> [PackID: Planner.CopyElsewhere] {
        do throws(ContainerError) {
            return try target.copiesElsewhere(of: manifest, than: path)
        } catch {
            // The packs are staged here then, at the price of a second copy.
            logger.info("another container cannot be read: \(error)")
            return [:]
        }
    }

    /// The plan for what is there, with what goes from the container where there is no room.
    func plan(
        _ planner: inout Planner,
        _ selection: PackSelection,
        _ container: Container?,
        _ path: FilePath
    ) throws(StagingFailure) -> Plan {
        do throws(StageError) {
            let reader =
                if let container { container.reader } else { try ContainerReader.reading(path) }
            guard let reader else { return planner.plan(for: selection) }
            return try planner.plan(for: selection, in: reader)
        } catch {
            throw StagingFailure(error)
        }
    }

    /// Removes what goes to make room, and returns what is gone.
    func makeRoom(_ evictions: [Eviction], in container: Container) async -> [Eviction] {
        guard !evictions.isEmpty else { return [] }
        do throws(StageError) {
            let gone = try await container.evictAndRemember(evictions, logger)
            for eviction in gone {
                logger.info("evicted \(eviction.generation.id): \(eviction.reason)")
            }
            return gone
        } catch {
            // A pack that does not fit says so itself.
            logger.warning("cannot make room: \(error)")
            return []
        }
    }

    /// Removes what is not needed when the packs are staged, and keeps the quota.
    func tidy(
        _ container: Container,
        _ planner: Planner,
        _ selection: PackSelection,
        _ result: inout StagingResult
    ) async throws(StagingFailure) {
        if case .event(.periodic, essentialOnly: false) = selection {
            result.removed = try removeObsoletePacks(container)
        }
        removeRemains(of: planner.manifest, in: container)
        result.add(await keepQuota(planner, selection, in: container))
    }

    /// Removes packs that no manifest offers any more, and returns which.
    private func removeObsoletePacks(_ container: Container) throws(StagingFailure) -> [PackID] {
        do throws(ContainerError) {
            return try container.removeObsoletePacks()
        } catch {
            throw StagingFailure(error)
        }
    }

    /// Removes what killed runs left of the packs of a manifest, which nothing continues.
    func removeRemains(of manifest: Manifest, in container: Container) {
        do throws(ContainerError) {
            _ = try container.removeRemains(of: manifest.packs)
        } catch {
            logger.warning("what killed runs left cannot be removed: \(error)")
        }
    }

    /// Removes what a run has left that is more than the container may hold.
    func keepQuota(
        _ planner: Planner,
        _ selection: PackSelection,
        in container: Container
    ) async -> [Eviction] {
        guard let quota = planner.quota else { return [] }
        do throws(StageError) {
            var retention = try Retention(container.reader, offering: planner.manifest)
            let excess = retention.size - quota
            let spared = planner.packsAskedFor(selection)
            return await makeRoom(retention.evict(excess, sparing: spared), in: container)
        } catch {
            logger.warning("cannot keep the quota: \(error)")
            return []
        }
    }
}

extension StagingService {
    /// The plan of a dry run with the exact bytes of indexed packs, where the network may be used; that of another run as
    /// it is.
    func estimated(
        _ plan: Plan,
        of manifest: AcceptedManifest,
        _ planner: Planner,
        _ stager: Stager,
        at path: FilePath
    ) async -> Plan {
        guard request.isDryRun, !request.isOffline else { return plan }
        // A container that cannot be read has failed the plan already.
        let reader = (try? ContainerReader.reading(path)) ?? nil
        let space = planner.freeSpace
        return await stager.estimate(plan, of: manifest, in: reader, freeSpace: space)
    }

    /// Adds to the result of a dry run what a run does after the packs are staged: packs that no manifest offers are
    /// removed by a periodic one, and the quota is kept.
    func addUpkeep(
        after plan: Plan,
        _ planner: Planner,
        _ selection: PackSelection,
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
            let retention = try Retention(reader, offering: planner.manifest)
            var later = retention.after(plan, removing: Set(removed))
            let staged = plan.packsToStage.reduce(ByteCount.zero) { sum, pack in
                sum + StoredGeneration.size(pack.installedSize, fileCount: pack.fileCount)
            }
            let excess = later.size + staged - quota
            result.addPlanned(later.evict(excess, sparing: planner.packsAskedFor(selection)))
        } catch {
            throw StagingFailure(error)
        }
    }
}

extension ContainerReader {
    /// The staged packs that a periodic run removes, since no manifest offers them.
    fileprivate func obsoletePacks(offering manifest: Manifest) throws(StageError) -> [PackID] {
        do throws(ContainerError) {
            guard let catalogue = try manifestCatalogue(replacing: manifest) else { return [] }
            let wanted = catalogue.keptPacks.union(catalogue.manifests.flatMap(\.packs).map(\.id))
            var obsolete: [PackID] = []
            for id in try stagedPacks() where !wanted.contains(id) {
                if try pin(of: id) == nil { obsolete.append(id) }
            }
            return obsolete
        } catch {
            throw .container(error)
        }
    }
}

extension Container {
    /// Removes what was decided to go, and remembers it for `why`.
    package func evictAndRemember(
        _ evictions: [Eviction],
        _ logger: Logger
    ) async throws(StageError) -> [Eviction] {
        let gone = try await withBlockingThread { () throws(StageError) in try self.evict(evictions)
        }
        let packs = gone.filter(\.isOfPack)
        guard !packs.isEmpty else { return gone }
        do throws(ContainerError) {
            for application in try reader.applicationsWithHistory() {
                try updateHistory(of: application) { history in
                    for eviction in packs { history.add(eviction) }
                }
            }
        } catch {
            logger.warning("what was evicted cannot be remembered: \(error)")
        }
        return gone
    }
}

extension StagingHistory {
    /// Remembers that a pack that the application knows is gone, and why.
    fileprivate mutating func add(_ eviction: Eviction) {
        guard let index = packs.firstIndex(where: { $0.id == eviction.generation.id }) else {
            return
        }
        packs[index].outcome = .evicted
        packs[index].reason = eviction.stagingReason
    }
}
