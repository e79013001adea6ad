import StageTrust

/// The state of a repository after a command signed it.
public struct SigningReport: Encodable, Equatable {
    /// The published metadata of a role.
    public struct Role: Encodable, Equatable {
        /// The role.
        public var role: SigningRole
        /// The version.
        public var version: Int
        /// The expiry, such as `2027-01-31T12:00:00Z`.
        public var expires: String
        /// Indicates whether this command published the version.
        public var isNew: Bool
        /// Indicates whether less than a third of the period remains.
        public var isClose: Bool
        /// Indicates whether clients refuse the version because its time is over.
        public var isExpired: Bool
    }

    /// Metadata that lacks signatures, or waits for other roles.
    public struct Draft: Encodable, Equatable {
        /// The role.
        public var role: SigningRole
        /// The version.
        public var version: Int
        /// The ids of keys that have signed.
        public var signed: [String]
        /// The ids of keys that have not signed.
        public var missing: [String]
        /// The number of signatures that are missing; 0 if the draft waits for other roles.
        public var needed: Int
    }

    /// The published metadata, in the order root, targets, snapshot, timestamp; empty if nothing is published
    /// yet.
    public var roles: [Role] = []
    /// The drafts.
    public var drafts: [Draft] = []
    /// Indicates whether a key has added a signature, to published metadata or a draft.
    public var hasSigned = false

    /// Indicates whether the command has published metadata.
    public var isChanged: Bool { roles.contains(where: \.isNew) }

    /// The role that expires first, or `nil` if nothing is published.
    public var next: Role? { roles.min { $0.expires < $1.expires } }
}
