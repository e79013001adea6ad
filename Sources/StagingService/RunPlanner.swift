import StageContainer
import StageEngine
import StageModel
import StageSystem

/// Makes the later plans of a run: after the daemon has held the run, and for its essential packs alone.
///
/// The manifest, the events, the choices of an extension and the copies in other containers are those of the run's first
/// plan. The staged packs, the partial downloads, the free space, and what may be evicted are read from the disk again.
struct RunPlanner: Sendable {
    let service: StagingService
    let manifest: AcceptedManifest
    let container: Container
    let stager: Stager
    var selection: PackSelection
    /// The planner of the run's first plan.
    let initial: Planner

    /// Returns a plan for the packs that the attempts before have not staged.
    func plan(after earlier: StagedPacks) async throws(StagingFailure) -> Plan {
        let done = Set(earlier.outcomes.keys.filter { earlier.hasStaged($0) })
        let refreshed: Planner
        do throws(StageError) {
            refreshed = try initial.refreshed(from: container)
        } catch {
            throw StagingFailure(error)
        }
        var current = refreshed
        // Packs of one run do not evict each other.
        current.spared.formUnion(done)
        // The bytes that the first plan counted for staged packs are used; packs that were kept have taken none.
        for pack in manifest.manifest.packs
        where done.contains(pack.id) && initial.kept[pack.id] == nil {
            let isEssential = initial.isEssential(pack)
            current.budget?.spend(pack, isEssential: isEssential)
        }
        return try await service.plan(
            with: &current,
            for: selection.withoutRepairs(of: done),
            of: manifest,
            by: stager,
            at: container.root.path
        )
    }
}

extension PackSelection {
    /// Returns the selection without packs that the run has repaired.
    ///
    /// A plan skips other packs that are staged.
    fileprivate func withoutRepairs(of done: Set<PackID>) -> PackSelection {
        guard case .repair(let ids) = self else { return self }
        return .repair(ids.subtracting(done))
    }
}

extension Plan {
    /// The packs that are staged in the offered version.
    var packsUpToDate: Set<PackID> {
        Set(entries.lazy.filter { $0.decision == .skip(.upToDate) }.map(\.pack.id))
    }
}
