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
    ///
    /// Takes time in the number of offers and of pairs of offers that differ.
    package static func all(among manifests: [Manifest]) -> [OfferConflict] {
        guard manifests.count > 1 else { return [] }
        var offers: [OfferedVersion: [Digest: [Offer]]] = [:]
        var conflicts = OfferConflicts()
        for (number, manifest) in manifests.enumerated() {
            for pack in manifest.packs {
                let version = OfferedVersion(pack: pack.id, number: pack.version)
                let offer = Offer(application: manifest.application, manifest: number)
                let differing = offer.others(in: offers[version], without: pack.contentDigest)
                for other in differing {
                    conflicts.add(
                        OfferConflict(
                            between: offer.application,
                            and: other.application,
                            pack: pack.id,
                            version: pack.version
                        )
                    )
                }
                offers[version, default: [:]][pack.contentDigest, default: []].append(offer)
            }
        }
        return conflicts.list
    }

    private struct OfferedVersion: Hashable {
        let pack: PackID
        let number: Int
    }

    /// The offer of one application.
    private struct Offer {
        let application: ApplicationID
        /// Position of the manifest.
        let manifest: Int

        /// Returns the offers of other applications with other content than `digest`, in the order of the manifests.
        func others(in offers: [Digest: [Offer]]?, without digest: Digest) -> [Offer] {
            var found: [Offer] = []
            for (content, group) in offers ?? [:] where content != digest {
                found += group.filter { $0.application != application }
            }
            return found.sorted { $0.manifest < $1.manifest }
        }
    }
}

/// Conflicts, one for each pair of applications, in the order in which they were found.
package struct OfferConflicts {
    /// The conflicts.
    package private(set) var list: [OfferConflict] = []
    /// The indices in ``list``, by the pairs of applications.
    private var indexes: [[ApplicationID]: Int] = [:]

    /// Creates an empty list.
    package init() {}

    /// Adds the conflict, or counts its pack in the conflict of the same applications.
    package mutating func add(_ conflict: OfferConflict) {
        if let index = indexes[conflict.applications] {
            list[index].otherPacks += 1
        } else {
            indexes[conflict.applications] = list.count
            list.append(conflict)
        }
    }
}
