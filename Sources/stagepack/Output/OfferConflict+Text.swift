import StageContainer
import StageModel

extension OfferConflict {
    /// The conflict, for people.
    var text: String {
        let names = applications.map { "'\($0)'" }.joined(separator: " and ")
        let others =
            otherPacks == 0 ? "" : "; the same for \(otherPacks.quantity(of: "other pack"))"
        return "\(names) offer version \(version) of pack '\(pack)' with different content" + others
    }

    /// The recommended action.
    static let hint =
        "ask one of their publishers to give the pack another id or version number"
}

extension StagingReport {
    /// The conflicts with applications whose content is staged instead of the offered one.
    var conflicts: [OfferConflict] {
        var found = OfferConflicts()
        for pack in packs {
            guard let other = pack.conflictingApplication else { continue }
            found.add(
                OfferConflict(
                    between: application,
                    and: other,
                    pack: pack.id,
                    version: pack.version
                )
            )
        }
        return found.list
    }
}
