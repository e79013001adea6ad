import StageTrust

/// The state of a repository after a command signed it.
package struct SigningReport: Encodable, Equatable {
    /// The published metadata of a role.
    package struct Role: Encodable, Equatable {
        /// The role.
        package var role: SigningRole
        /// The version.
        package var version: Int
        /// The expiry, such as `2027-01-31T12:00:00Z`.
        package var expires: String
        /// Indicates whether this command published the version.
        package var isNew: Bool
        /// Indicates whether less than a third of the period remains.
        package var isClose: Bool
        /// Indicates whether clients refuse the version because its time is over.
        package var isExpired: Bool
    }

    /// Metadata that lacks signatures, or waits for other roles.
    package struct Draft: Encodable, Equatable {
        /// The role.
        package var role: SigningRole
        /// The version.
        package var version: Int
        /// The ids of keys that have signed.
        package var signed: [String]
        /// The ids of keys that have not signed.
        package var missing: [String]
        /// The number of signatures that are missing; 0 if the draft waits for other roles.
        package var needed: Int
    }

    /// The published metadata, in the order root, targets, snapshot, timestamp; empty if nothing is published
    /// yet.
    package var roles: [Role] = []
    /// The drafts.
    package var drafts: [Draft] = []
    /// Indicates whether a key has added a signature, to published metadata or a draft.
    package var hasSigned = false

    /// Indicates whether the command has published metadata.
    package var isChanged: Bool { roles.contains(where: \.isNew) }

    /// The role that expires first, or `nil` if nothing is published.
    package var next: Role? { roles.min { $0.expires < $1.expires } }

    /// Replaces the report by that of a later pass of the same command.
    mutating func add(_ later: SigningReport) {
        let new = Set(roles.filter(\.isNew).map(\.role))
        let hasSigned = hasSigned
        self = later
        self.hasSigned = self.hasSigned || hasSigned
        for index in roles.indices where new.contains(roles[index].role) {
            roles[index].isNew = true
        }
    }
}
