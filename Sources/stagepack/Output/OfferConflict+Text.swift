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
        var found: [OfferConflict] = []
        for pack in packs {
            guard let other = pack.conflictingApplication else { continue }
            let conflict = OfferConflict(
                between: application,
                and: other,
                pack: pack.id,
                version: pack.version
            )
            let index = found.firstIndex { $0.applications == conflict.applications }
            if let index { found[index].otherPacks += 1 } else { found.append(conflict) }
        }
        return found
    }
}
