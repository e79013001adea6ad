package import StageModel

/// Metadata of the timestamp role: the current snapshot.
public struct TimestampMetadata: SignedMetadata, Hashable, Sendable {
    let header: MetadataHeader
    let snapshot: FileDescription

    package init(reading node: JSONNode) throws(ManifestError) {
        header = try MetadataHeader(reading: node, type: "timestamp")
        let members = try JSONMembers(node, keyedBy: Member.self)
        let files = try JSONMembers(
            members.node(.meta, expected: "an object"),
            keyedBy: FileMember.self
        )
        snapshot = try files.value(FileDescription.self, for: .snapshot)
    }

    private enum Member: String, CodingKey { case meta }
    private enum FileMember: String, CodingKey { case snapshot = "snapshot.json" }

    /// The version of the metadata.
    public var version: Int { header.version }

    /// The time at which the metadata expires.
    public var expiry: MetadataTime { header.expiry }

    /// Throws if a timestamp has an older version than this one, or names an older snapshot.
    func checkNoRollback(in found: TimestampMetadata) throws(TrustError) {
        guard found.version >= version else {
            throw .rollback(.timestamp, trusted: version, found: found.version, lister: .timestamp)
        }
        guard found.snapshot.version >= snapshot.version else {
            throw .rollback(
                .snapshot,
                trusted: snapshot.version,
                found: found.snapshot.version,
                lister: .timestamp
            )
        }
    }
}
