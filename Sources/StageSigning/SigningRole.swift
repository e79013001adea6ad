package import StageTrust

/// A top-level role of a repository.
package enum SigningRole: String, CaseIterable, Codable, Hashable, Sendable {
    /// Lists the keys of all roles.
    case root
    /// Names the manifest by length and digest.
    case targets
    /// Names the version of the targets metadata.
    case snapshot
    /// Names the version of the snapshot metadata; renewed most often.
    case timestamp

    /// The name of the role in client code.
    package var name: RoleName {
        switch self {
        case .root: .root
        case .targets: .targets
        case .snapshot: .snapshot
        case .timestamp: .timestamp
        }
    }
}

/// The validity periods of each role's metadata, in days after signing.
package struct ExpiryPeriods: Equatable, Sendable {
    private var days: [SigningRole: Int]

    /// Periods for publishers who renew the online roles automatically: root 400 days, targets 200, snapshot
    /// and timestamp 14.
    package static let standard = ExpiryPeriods(
        days: [.root: 400, .targets: 200, .snapshot: 14, .timestamp: 14]
    )

    /// Periods for publishers without automation: snapshot and timestamp 180 days.
    ///
    /// An attacker who controls the transport can present an old state for as long as that.
    package static let offlineSigning = ExpiryPeriods(
        days: [.root: 400, .targets: 200, .snapshot: 180, .timestamp: 180]
    )

    /// The range of periods: up to ten years.
    package static let range = 1...3650

    /// The period of a role, in days.
    package subscript(role: SigningRole) -> Int {
        get { days[role] ?? 14 }
        set { days[role] = newValue }
    }

    /// Returns the expiry of metadata that is signed at `time`.
    package func expiry(of role: SigningRole, signedAt time: MetadataTime) -> MetadataTime {
        MetadataTime(secondsSince1970: time.secondsSince1970 + Int64(self[role]) * 86400)
    }

    /// Returns whether metadata should be renewed: half of the period has passed for snapshot and timestamp,
    /// two thirds for root and targets.
    package func isDue(_ role: SigningRole, expiry: MetadataTime, at time: MetadataTime) -> Bool {
        let period = Int64(self[role]) * 86400
        let remaining = expiry.secondsSince1970 - time.secondsSince1970
        return switch role {
        case .snapshot, .timestamp: remaining * 2 <= period
        case .root, .targets: remaining * 3 <= period
        }
    }

    /// Returns whether a person should be warned: less than a third of the period remains.
    package func isClose(_ role: SigningRole, expiry: MetadataTime, at time: MetadataTime) -> Bool {
        (expiry.secondsSince1970 - time.secondsSince1970) * 3 < Int64(self[role]) * 86400
    }
}
