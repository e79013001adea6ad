import StageContainer
import StageModel

extension Planner {
    /// The copy of a pack that readers have from another container than the one that is planned for.
    package struct CopyElsewhere: Equatable, Sendable {
        /// What is staged there.
        package var staged: StagedVersion
        /// The version that the pack is held at there, if it is.
        package var pin: PinnedVersion?

        /// Creates the value from its parts.
        package init(staged: StagedVersion, pin: PinnedVersion?) {
            self.staged = staged
            self.pin = pin
        }

        /// Whether the copy was made from what `pack` names.
        func holds(_ pack: Pack) -> Bool {
            staged == StagedVersion(version: pack.version, contentDigest: pack.contentDigest)
        }
    }

    /// What is done with a pack because of another container's copy; `nil` if that does not decide.
    ///
    /// Nothing is staged that no reader would get.
    func decisionElsewhere(on pack: Pack, _ selection: PackSelection) -> Plan.Decision? {
        guard let copy = copyElsewhere(of: pack), reason(toStage: pack, beside: copy) == nil else {
            return nil
        }
        let isNamed: Bool
        switch selection {
        case .repair: return nil
        case .packs(let ids):
            guard ids.contains(pack.id) else { return nil }
            isNamed = true
        case .event: isNamed = false
        }
        if copy.holds(pack) { return .leave(.upToDate) }
        if let pin = copy.pin { return isNamed ? .refuse(.pinned(pin)) : .leave(.pinned(pin)) }
        return .leave(.newerElsewhere(version: copy.staged.version))
    }

    /// The copy of the pack in another container, if it is the one that readers get.
    func copyElsewhere(of pack: Pack) -> CopyElsewhere? {
        guard let copy = elsewhere[pack.id] else { return nil }
        guard let own = staged[pack.id] else { return copy }
        return precedence(of: own.version, isPinned: pinned[pack.id] != nil)
            < precedence(of: copy) ? copy : nil
    }

    /// The reason to stage a pack though another container has it, or `nil` if that would give readers nothing newer.
    func reason(toStage pack: Pack, beside copy: CopyElsewhere) -> Plan.Reason? {
        guard !copy.holds(pack),
            precedence(of: pack.version, isPinned: false) > precedence(of: copy)
        else { return nil }
        let version = copy.staged.version
        return version == pack.version ? .contentChanged : .outdated(staged: version)
    }

    private func precedence(of version: Int, isPinned: Bool) -> CopyPrecedence {
        CopyPrecedence(container: 0, version: version, isPinned: isPinned)
    }

    private func precedence(of copy: CopyElsewhere) -> CopyPrecedence {
        CopyPrecedence(container: 1, version: copy.staged.version, isPinned: copy.pin != nil)
    }
}
