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
        /// Whether this command published the version.
        public var isNew: Bool
        /// Whether less than a third of the period remains.
        public var isClose: Bool
        /// Whether clients refuse the version because its time is over.
        public var isExpired: Bool
    }

    /// Metadata that does not have enough signatures yet, or that waits for other roles.
    public struct Draft: Encodable, Equatable {
        /// The role.
        public var role: SigningRole
        /// The version.
        public var version: Int
        /// The ids of keys that signed.
        public var signed: [String]
        /// The ids of keys that have not signed.
        public var missing: [String]
        /// The number of signatures that are still needed, at least one unless the draft waits for
        /// other roles.
        public var needed: Int
    }

    /// The published metadata, in the order root, targets, snapshot, timestamp; empty where nothing is
    /// published yet.
    public var roles: [Role] = []
    /// The drafts.
    public var drafts: [Draft] = []
    /// Whether a key added a signature, to published metadata or a draft.
    public var hasSigned = false

    /// Whether the command published anything.
    public var isChanged: Bool { roles.contains(where: \.isNew) }

    /// The role that expires first, or `nil` where nothing is published.
    public var next: Role? { roles.min { $0.expires < $1.expires } }
}
