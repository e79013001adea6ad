package import StageModel

/// Metadata of the snapshot role: the versions of all targets metadata.
public struct SnapshotMetadata: SignedMetadata, Hashable, Sendable {
    let header: MetadataHeader
    private let files: [String: FileDescription]

    package init(reading node: JSONNode) throws(ManifestError) {
        header = try MetadataHeader(reading: node, type: "snapshot")
        let members = try JSONMembers(node, keyedBy: Member.self)
        let meta = try members.node(.meta, expected: "an object")
        var files: [String: FileDescription] = [:]
        for (name, node) in try meta.members() {
            files[name] = try FileDescription(reading: node)
        }
        guard files[RoleName.targets.listedName] != nil else {
            throw meta.fault(ValueError(expected: "a member 'targets.json'", found: "none"))
        }
        self.files = files
    }

    private enum Member: String, CodingKey { case meta }

    /// The version of the metadata.
    public var version: Int { header.version }

    /// The time at which the metadata expires.
    public var expiry: MetadataTime { header.expiry }

    /// Returns the description of a role's file, or `nil` if it is not listed.
    func description(of role: RoleName) -> FileDescription? { files[role.listedName] }

    /// Throws if a later snapshot removes a file or lists an older version of it.
    func checkNoRollback(in later: SnapshotMetadata) throws(TrustError) {
        // Sorted by name, so that the same snapshots always give the same error.
        for (name, file) in files.sorted(by: { $0.key < $1.key }) {
            guard let found = later.files[name] else {
                throw .removed(file: name, version: later.version)
            }
            guard found.version >= file.version else {
                throw .rollback(
                    Self.role(ofFile: name),
                    trusted: file.version,
                    found: found.version,
                    lister: .snapshot
                )
            }
        }
    }

    private static func role(ofFile name: String) -> RoleName {
        let text = name.hasSuffix(".json") ? String(name.dropLast(5)) : name
        // A name that is not a valid role name is listed by mistake; the error names the snapshot then.
        return text == RoleName.targets.text
            ? .targets : (try? RoleName(delegated: text)) ?? .snapshot
    }
}
