import StageEngine
import StageModel

extension Planner {
    /// Replaces the actual state by the assumptions.
    mutating func assume(_ assumptions: StagingRequest.Assumptions) {
        if assumptions.isInstalled {
            var unlimited = self
            // The assumed packs need not fit on the machine that simulates.
            unlimited.freeSpace = nil
            unlimited.freeInodes = nil
            unlimited.quota = nil
            for pack in unlimited.plan(for: .event(.install, essentialOnly: false)).packsToStage {
                staged[pack.id] = StagedVersion(
                    version: pack.version,
                    contentDigest: pack.contentDigest
                )
            }
        }
        if let space = assumptions.freeSpace {
            freeSpace = space
            // The inodes of another file system are not known.
            freeInodes = nil
        }
    }
}
