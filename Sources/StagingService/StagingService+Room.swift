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

    /// Removes packs that no manifest offers any more, and returns which.
    func removeObsoletePacks(_ container: Container) throws(StagingFailure) -> [PackID] {
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
