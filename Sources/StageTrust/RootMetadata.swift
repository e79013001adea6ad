package import StageModel

/// Metadata of the root role: the keys of all top-level roles.
public struct RootMetadata: SignedMetadata, Hashable, Sendable {
    let header: MetadataHeader
    /// Indicates whether file names of metadata contain versions, and those of targets digests.
    public let hasConsistentSnapshots: Bool
    private let roles: [RoleName: RoleKeys]

    package init(reading node: JSONNode) throws(ManifestError) {
        header = try MetadataHeader(reading: node, type: "root")
        let members = try JSONMembers(node, keyedBy: Member.self)
        if members.has(.consistentSnapshot) {
            let node = try members.node(.consistentSnapshot, expected: "a boolean")
            guard case .boolean(let value) = node.value else {
                throw node.fault(ValueError(expected: "a boolean", found: node.value.noun))
            }
            hasConsistentSnapshots = value
        } else {
            hasConsistentSnapshots = false
        }
        let keys = try ListedKey.keys(members.node(.keys, expected: "an object"))
        let list = try JSONMembers(
            members.node(.roles, expected: "an object"),
            keyedBy: RoleMember.self
        )
        var roles: [RoleName: RoleKeys] = [:]
        for (role, member) in Self.members {
            roles[role] = try RoleKeys(
                reading: list.node(member, expected: "an object"),
                from: keys
            )
        }
        self.roles = roles
    }

    private enum Member: String, CodingKey {
        case consistentSnapshot = "consistent_snapshot"
        case keys, roles
    }
    private enum RoleMember: String, CodingKey { case root, timestamp, snapshot, targets }

    private static let members: [(RoleName, RoleMember)] = [
        (.root, .root), (.timestamp, .timestamp), (.snapshot, .snapshot), (.targets, .targets),
    ]

    /// Parses root metadata that is trusted already, such as the one that an application ships with.
    ///
    /// It must be signed by its own keys; it may have expired.
    ///
    /// - Throws: ``TrustError`` if the bytes are not root metadata, or are not signed correctly.
    public init(trusted bytes: [UInt8], limits: TrustLimits = TrustLimits()) throws(TrustError) {
        let envelope = try Envelope(bytes, of: .root, limit: limits.rootLength)
        self = try envelope.metadata(RootMetadata.self, of: .root)
        try check(envelope, of: .root, version: version)
    }

    /// The version of the metadata.
    public var version: Int { header.version }

    /// The time at which the metadata expires.
    public var expiry: MetadataTime { header.expiry }

    /// Returns the keys of a top-level role.
    ///
    /// - Precondition: `role` is a top-level role.
    public func keys(of role: RoleName) -> RoleKeys {
        guard let keys = roles[role] else {
            preconditionFailure("'\(role)' is not a top-level role")
        }
        return keys
    }

    /// Throws if a file is not signed by enough keys of a top-level role.
    func check(_ envelope: Envelope, of role: RoleName, version: Int) throws(TrustError) {
        let keys = keys(of: role)
        if let shortage = keys.shortage(of: envelope, delegator: .root, version: self.version) {
            throw .unsigned(role, version: version, shortage)
        }
    }
}
