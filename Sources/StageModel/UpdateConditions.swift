/// The network and power conditions for downloads that no user is waiting for.
///
/// The names are those of Apple's `URLSessionConfiguration` and `BGProcessingTaskRequest`.
public struct UpdateConditions: Hashable, Codable, Sendable {
    /// Indicates whether downloads wait for mains power and the end of power saver mode.
    public var requiresExternalPower: Bool
    /// Indicates whether downloads run on metered networks.
    public var allowsExpensiveNetworkAccess: Bool
    /// No effect: no service of Linux reports a low data mode.
    ///
    /// A network that is probably metered (NetworkManager, "guess-yes") counts as metered.
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

    /// The names of the JSON members.
    package static let members = CodingKeys.allCases.map(\.rawValue)

    private enum CodingKeys: String, CodingKey, CaseIterable {
        case requiresExternalPower, allowsExpensiveNetworkAccess, allowsConstrainedNetworkAccess
    }

    static let memberNames = MemberNames(CodingKeys.self)

    /// Decodes conditions; missing members have their defaults.
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
    /// Throws if the object has a member with an unknown name, which ``init(reading:)`` ignores.
    package static func checkMembers(of node: JSONNode) throws(ManifestError) {
        try JSONMembers(node, keyedBy: CodingKeys.self).checkForUnknownMembers()
    }

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
