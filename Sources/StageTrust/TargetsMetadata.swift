package import StageModel

/// Metadata of the targets role or of a delegated role: targets, and delegations to further roles.
public struct TargetsMetadata: SignedMetadata, Hashable, Sendable {
    let header: MetadataHeader
    let delegations: Delegations
    private let targets: [TargetPath: TargetDescription]

    package init(reading node: JSONNode) throws(ManifestError) {
        header = try MetadataHeader(reading: node, type: "targets")
        let members = try JSONMembers(node, keyedBy: Member.self)
        let list = try members.node(.targets, expected: "an object")
        var targets: [TargetPath: TargetDescription] = [:]
        for (path, node) in try list.members() {
            targets[TargetPath(path)] = try TargetDescription(reading: node)
        }
        self.targets = targets
        delegations =
            members.has(.delegations)
            ? try Delegations(reading: members.node(.delegations, expected: "an object"))
            : Delegations()
    }

    private enum Member: String, CodingKey { case targets, delegations }

    /// The version of the metadata.
    public var version: Int { header.version }

    /// The time at which the metadata expires.
    public var expiry: MetadataTime { header.expiry }

    /// The paths of the targets that this metadata itself lists, in no order.
    public var paths: [TargetPath] { Array(targets.keys) }

    /// Returns the description of a target, or `nil` if the metadata does not list it.
    func description(of path: TargetPath) -> TargetDescription? { targets[path] }
}
