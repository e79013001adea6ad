package import StageModel

/// The packs that other applications of a group offer, which runs of an application do not replace by older versions.
package struct GroupOffers: Sendable {
    private let packs: [PackID: [Pack]]

    /// Creates the value from the manifests of the other applications that count: those of
    /// ``RegistrationLocations/applications(trustedAs:in:)``.
    package init(_ manifests: some Sequence<Manifest>) {
        packs = Dictionary(grouping: manifests.flatMap(\.packs), by: \.id)
    }

    /// Returns whether a staged version stays although the application offers `pack`: another application offers it, and
    /// it is not older.
    package func keep(_ present: StagedPack, insteadOf pack: Pack) -> Bool {
        guard present.version >= pack.version, let offered = packs[present.id] else { return false }
        return offered.contains { present.holds($0) }
    }
}
