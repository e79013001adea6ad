package import StageModel

/// The packs that other applications of a group offer, which runs of an application do not replace by older versions.
package struct GroupOffers: Sendable {
    private let packs: [PackID: [Pack]]

    /// Creates the value from the manifests of the other applications that count: those of
    /// ``RegistrationLocations/applications(trustedAs:in:)``.
    package init(_ manifests: some Sequence<Manifest>) {
        packs = Dictionary(grouping: manifests.flatMap(\.packs), by: \.id)
    }

    /// Returns whether a staged version is kept although the application offers `pack`: another application offers it, and
    /// it is not older.
    package func keeps(_ present: StagedPack, insteadOf pack: Pack) -> Bool {
        guard present.version >= pack.version, let offered = packs[present.id] else { return false }
        return offered.contains { present.holds($0) }
    }
}

/// Two applications of a group that offer one version of a pack with different content.
///
/// The container has one copy for both, so one application gets the content of the other.
package struct OfferConflict: Equatable, Sendable {
    /// The applications, in the order of their names.
    package let applications: [ApplicationID]
    /// The first of the packs.
    package let pack: PackID
    /// The version of that pack.
    package let version: Int
    /// The number of other packs for which both offer the same version with different content.
    package var otherPacks = 0

    /// Creates the value for one pack.
    package init(
        between first: ApplicationID,
        and second: ApplicationID,
        pack: PackID,
        version: Int
    ) {
        applications = [first, second].sorted()
        self.pack = pack
        self.version = version
    }

    /// Returns the conflicts among the manifests of a group, one for each pair of applications; empty for a single manifest.
    package static func all(among manifests: [Manifest]) -> [OfferConflict] {
        guard manifests.count > 1 else { return [] }
        var offers: [PackID: [Offer]] = [:]
        var conflicts: [OfferConflict] = []
        for manifest in manifests {
            for pack in manifest.packs {
                let offer = Offer(application: manifest.application, pack: pack)
                let others = offers[pack.id, default: []]
                let differing = others.filter(offer.differs)
                for other in differing { conflicts.add(offer, differingFrom: other, of: pack.id) }
                offers[pack.id] = others + [offer]
            }
        }
        return conflicts
    }

    /// The offer of one application.
    fileprivate struct Offer {
        let application: ApplicationID
        let version: Int
        let contentDigest: Digest

        init(application: ApplicationID, pack: Pack) {
            self.application = application
            version = pack.version
            contentDigest = pack.contentDigest
        }

        /// Returns whether another application offers the same version with different content.
        func differs(from other: Offer) -> Bool {
            application != other.application && version == other.version
                && contentDigest != other.contentDigest
        }
    }
}

extension [OfferConflict] {
    /// Adds a pack to the conflict of two applications.
    fileprivate mutating func add(
        _ offer: OfferConflict.Offer,
        differingFrom other: OfferConflict.Offer,
        of pack: PackID
    ) {
        let conflict = OfferConflict(
            between: offer.application,
            and: other.application,
            pack: pack,
            version: offer.version
        )
        if let index = firstIndex(where: { $0.applications == conflict.applications }) {
            self[index].otherPacks += 1
        } else {
            append(conflict)
        }
    }
}
