import StageModel
import StageTrust

/// The keys, thresholds and expiry periods of root metadata, which a publisher can change.
package struct RootContent {
    /// The keys of a role, and the number of signatures that it needs.
    package struct Role {
        /// The keys.
        package var keys: [RepositoryKey]
        /// The number of keys that must sign.
        package var threshold: Int

        /// Creates a role from its keys.
        package init(keys: [RepositoryKey], threshold: Int = 1) {
            self.keys = keys
            self.threshold = threshold
        }
    }

    /// The roles.
    package var roles: [SigningRole: Role]
    /// The expiry periods, which later commands use.
    package var periods: ExpiryPeriods
    /// The signed value, including unknown members.
    private let base: JSONTree

    /// Creates the content of the first root.
    package init(roles: [SigningRole: Role]) {
        self.roles = roles
        periods = .standard
        base = .emptyMetadata(of: .root)
    }

    /// Reads the signed value of root metadata.
    init(reading signed: JSONTree) {
        base = signed
        let keys = Dictionary(
            (signed["keys"]?.members ?? []).map {
                ($0.name, RepositoryKey(id: $0.name, tree: $0.value))
            },
            uniquingKeysWith: { first, _ in first }
        )
        roles = [:]
        periods = .standard
        for role in SigningRole.allCases {
            let entry = signed["roles"]?[role.rawValue]
            let ids = (entry?["keyids"]?.elements ?? []).compactMap(\.string)
            roles[role] = Role(
                keys: ids.compactMap { keys[$0] },
                threshold: entry?["threshold"]?.integer ?? 1
            )
            if let days = signed[Self.periodMember]?[role.rawValue]?.integer,
                ExpiryPeriods.range.contains(days)
            {
                periods[role] = days
            }
        }
    }

    /// A private extension member, which other TUF programs ignore and keep.
    private static let periodMember = "x-stagepack-expiry-days"

    /// Adds a key to a role, unless it is there already.
    package mutating func add(_ key: RepositoryKey, to role: SigningRole) {
        guard roles[role]?.keys.contains(where: { $0.id == key.id }) == false else { return }
        roles[role]?.keys.append(key)
    }

    /// Removes the key whose id starts with `id` from a role.
    ///
    /// - Throws: ``SigningError/unknownKey(id:)`` unless exactly one key matches.
    package mutating func remove(
        keyWithID id: String,
        from role: SigningRole
    ) throws(SigningError) {
        let matches = roles[role]?.keys.filter { $0.id.hasPrefix(id.lowercased()) } ?? []
        guard let match = matches.first, matches.count == 1, !id.isEmpty else {
            throw .unknownKey(id: id)
        }
        roles[role]?.keys.removeAll { $0.id == match.id }
    }

    /// Throws if a role has fewer keys than its threshold.
    func check() throws(SigningError) {
        for role in SigningRole.allCases {
            let count = roles[role]?.keys.count ?? 0
            let threshold = roles[role]?.threshold ?? 1
            guard threshold >= 1, threshold <= count else {
                throw .threshold(role: role, threshold: threshold, keys: count)
            }
        }
    }

    /// Returns the signed value of a root version, valid from `time` on.
    func tree(version: Int, signedAt time: MetadataTime) -> JSONTree {
        var keys: [JSONTree.Member] = []
        var entries: [JSONTree.Member] = []
        var days: [JSONTree.Member] = []
        for role in SigningRole.allCases {
            let content = roles[role] ?? Role(keys: [])
            for key in content.keys where !keys.contains(where: { $0.name == key.id }) {
                keys.append(.init(key.id, key.tree))
            }
            let entry = JSONTree.object([
                .init("keyids", .array(content.keys.map { .string($0.id) })),
                .init("threshold", .integer(Int64(content.threshold))),
            ])
            entries.append(.init(role.rawValue, entry))
            days.append(.init(role.rawValue, .integer(Int64(periods[role]))))
        }
        return base.setting("consistent_snapshot", to: .boolean(true))
            .setting("keys", to: .object(keys))
            .setting("roles", to: .object(entries))
            .setting(Self.periodMember, to: .object(days))
            .versioned(version, expiry: periods.expiry(of: .root, signedAt: time))
    }
}

/// Root metadata, published or a draft, in the representations that signing needs.
struct RootDocument {
    let document: SignedDocument
    let content: RootContent
    /// The parsed metadata; it may lack signatures.
    let metadata: RootMetadata

    init(_ document: SignedDocument, path: String) throws(SigningError) {
        self.document = document
        content = RootContent(reading: document.signed)
        do throws(ManifestError) {
            metadata = try RootMetadata(reading: JSONNode(value: document.signed))
        } catch {
            throw .metadata(path: path, .malformed(.root, error))
        }
    }

    /// Counts the signatures of a document by the keys that this root names for the role.
    func signatures(on document: SignedDocument, by role: SigningRole) -> SignatureCount {
        metadata.count(document.signatureBytes, of: document.message, by: role.name)
    }
}
