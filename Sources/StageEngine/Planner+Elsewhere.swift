import StageContainer
package import StageModel

extension Planner.StagedVersion {
    /// Returns whether the generation has the version and the content of `pack`.
    package func holds(_ pack: Pack) -> Bool {
        version == pack.version && contentDigest == pack.contentDigest
    }
}

extension Planner {
    /// A copy of a pack in another container than the planned one.
    package struct CopyElsewhere: Equatable, Sendable {
        /// The staged version of the copy.
        package var staged: StagedVersion
        /// The version that the copy is pinned to; `nil` if it is not pinned.
        package var pin: PinnedVersion?

        /// Creates the value from its parts.
        package init(staged: StagedVersion, pin: PinnedVersion?) {
            self.staged = staged
            self.pin = pin
        }

        /// Returns whether the copy has the version and the content of `pack`.
        func holds(_ pack: Pack) -> Bool { staged.holds(pack) }
    }

    /// Returns the decision that follows from another container's copy of a pack, or from another application of the
    /// group; `nil` if neither decides.
    func decisionOfOthers(on pack: Pack, _ selection: PackSelection) -> Plan.Decision? {
        decisionElsewhere(on: pack, selection) ?? decisionOfGroup(on: pack, selection)
    }

    /// Returns the decision that follows from another container's copy of a pack; `nil` if the copy does not
    /// decide.
    ///
    /// Packs that no reader would use are not staged.
    private func decisionElsewhere(on pack: Pack, _ selection: PackSelection) -> Plan.Decision? {
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
        if copy.holds(pack) { return .skip(.upToDate) }
        if let pin = copy.pin { return isNamed ? .refuse(.pinned(pin)) : .skip(.pinned(pin)) }
        return .skip(.newerElsewhere(version: copy.staged.version))
    }

    /// The staged versions that are not those of the manifest, and not older.
    package var stagedInstead: [PackID: StagedVersion] {
        var versions: [PackID: StagedVersion] = [:]
        for pack in manifest.packs { versions[pack.id] = version(stagedInsteadOf: pack) }
        return versions
    }

    private func version(stagedInsteadOf pack: Pack) -> StagedVersion? {
        guard let present = staged[pack.id], !incomplete.contains(pack.id), !present.holds(pack),
            present.version >= pack.version
        else { return nil }
        return present
    }

    /// Returns the decision that follows from another application of the group that offers the staged version;
    /// `nil` if none does.
    ///
    /// Otherwise the applications would replace each other's version in each run.
    private func decisionOfGroup(on pack: Pack, _ selection: PackSelection) -> Plan.Decision? {
        guard let application = offeredByOthers[pack.id],
            let present = version(stagedInsteadOf: pack),
            pinned[pack.id] == nil, copyElsewhere(of: pack) == nil
        else { return nil }
        switch selection {
        case .repair: return nil
        case .packs(let ids) where !ids.contains(pack.id): return nil
        case .packs, .event: return .skip(.offeredByOther(application, version: present.version))
        }
    }

    /// Returns the copy of the pack in another container if readers use that copy.
    func copyElsewhere(of pack: Pack) -> CopyElsewhere? {
        guard let copy = elsewhere[pack.id] else { return nil }
        guard let own = staged[pack.id] else { return copy }
        return precedence(of: own.version, isPinned: pinned[pack.id] != nil)
            < precedence(of: copy) ? copy : nil
    }

    /// Returns the reason to stage a pack that another container has, or `nil` if readers would not get a
    /// newer version.
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
