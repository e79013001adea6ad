/// The conditions of network and power under which content is downloaded that no person waits for.
///
/// The names are those of Apple's `URLSessionConfiguration` and `BGProcessingTaskRequest`.
public struct UpdateConditions: Hashable, Codable, Sendable {
    /// Whether downloads wait for mains power, and for the end of the power saver mode.
    public var requiresExternalPower: Bool
    /// Whether downloads run on metered networks.
    public var allowsExpensiveNetworkAccess: Bool
    /// Whether downloads run on networks that are to be spared (NetworkManager, "guess-yes").
    public var allowsConstrainedNetworkAccess: Bool

    /// Creates conditions; by default downloads wait for mains power and an unmetered network.
    public init(
        requiresExternalPower: Bool = true,
        allowsExpensiveNetworkAccess: Bool = false,
        allowsConstrainedNetworkAccess: Bool = false
    ) {
        self.requiresExternalPower = requiresExternalPower
        self.allowsExpensiveNetworkAccess = allowsExpensiveNetworkAccess
        self.allowsConstrainedNetworkAccess = allowsConstrainedNetworkAccess
    }

    /// The names of the members in JSON.
    package static let members = CodingKeys.allCases.map(\.rawValue)

    private enum CodingKeys: String, CodingKey, CaseIterable {
        case requiresExternalPower, allowsExpensiveNetworkAccess, allowsConstrainedNetworkAccess
    }

    /// Decodes conditions; a missing member has its default.
    public init(from decoder: any Decoder) throws {
        let members = try decoder.container(keyedBy: CodingKeys.self)
        func read(_ key: CodingKeys, or value: Bool) throws -> Bool {
            try members.decodeIfPresent(Bool.self, forKey: key) ?? value
        }
        requiresExternalPower = try read(.requiresExternalPower, or: true)
        allowsExpensiveNetworkAccess = try read(.allowsExpensiveNetworkAccess, or: false)
        allowsConstrainedNetworkAccess = try read(.allowsConstrainedNetworkAccess, or: false)
    }
}

extension UpdateConditions: JSONReadable {
    package init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: CodingKeys.self)
        func read(_ key: CodingKeys, or value: Bool) throws(ManifestError) -> Bool {
            members.has(key) ? try members.boolean(key) : value
        }
        self.init(
            requiresExternalPower: try read(.requiresExternalPower, or: true),
            allowsExpensiveNetworkAccess: try read(.allowsExpensiveNetworkAccess, or: false),
            allowsConstrainedNetworkAccess: try read(.allowsConstrainedNetworkAccess, or: false)
        )
    }
}
