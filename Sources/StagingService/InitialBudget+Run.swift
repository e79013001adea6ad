import StageContainer
import StageEngine
import StageModel

extension InitialBudget {
    /// Creates the budget of an application, less the amounts that its packs have used so far.
    init(
        _ restrictions: Registration.Restrictions,
        manifest: AcceptedManifest,
        planner: Planner,
        spent: StagingHistory.Spending
    ) {
        var (essential, other) = (ByteCount.zero, ByteCount.zero)
        for pack in manifest.manifest.packs where planner.staged[pack.id] != nil {
            if planner.isEssential(pack) {
                essential += pack.installedSize
            } else {
                other += pack.installedSize
            }
        }
        let url = manifest.record.resolvedURL
        let offered = manifest.manifest
        self.init(
            restrictions: restrictions,
            essentialDownloads: spent.essential + ByteCount(manifest.record.text.utf8.count),
            otherDownloads: spent.other,
            essentialFiles: essential,
            otherFiles: other,
            hosts: { pack in
                pack.urls.prefix(1).flatMap { offered.urls(for: $0, manifestURL: url) }
                    .compactMap { URLReference($0).origin?.host }
            }
        )
    }
}
