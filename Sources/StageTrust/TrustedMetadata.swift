import StageModel

/// The metadata of all top-level roles, verified together.
public struct TrustedMetadata: Hashable, Sendable {
    /// The root metadata.
    public let root: RootMetadata
    /// The timestamp metadata.
    public let timestamp: TimestampMetadata
    /// The snapshot metadata.
    public let snapshot: SnapshotMetadata
    /// The metadata of the top-level targets role.
    public let targets: TargetsMetadata
    /// The reference time of the refresh, or `nil` for stored metadata that may have expired.
    public let time: MetadataTime?

    init(
        root: RootMetadata,
        timestamp: TimestampMetadata,
        snapshot: SnapshotMetadata,
        targets: TargetsMetadata,
        time: MetadataTime?
    ) {
        self.root = root
        self.timestamp = timestamp
        self.snapshot = snapshot
        self.targets = targets
        self.time = time
    }

    /// Verifies stored metadata without a repository, for offline use and to display the trusted state.
    ///
    /// - Parameters:
    ///   - stored: The metadata, whose root is trusted.
    ///   - time: The time at which the metadata must be valid, or `nil` to ignore expiry.
    ///   - limits: The limits of files.
    /// - Throws: ``TrustError`` if a file is missing, is not signed as the stored root requires, does not
    ///   belong to the others, or has expired.
    public init(
        stored: StoredMetadata,
        at time: MetadataTime? = nil,
        limits: TrustLimits = TrustLimits()
    ) throws(TrustError) {
        root = try RootMetadata(trusted: stored.root, limits: limits)
        let reader = MetadataReader(root: root, time: time)
        try reader.checkExpiry(of: root.header, role: .root)
        timestamp = try reader.timestamp(
            try Self.bytes(stored.timestamp, of: .timestamp),
            limit: limits.timestampLength
        )
        try reader.checkExpiry(of: timestamp.header, role: .timestamp)
        snapshot = try reader.snapshot(
            try Self.bytes(stored.snapshot, of: .snapshot),
            describedBy: timestamp,
            limit: limits.snapshotLength
        )
        targets = try reader.targets(
            try Self.bytes(stored.targets, of: .targets),
            describedBy: snapshot,
            limit: limits.targetsLength
        )
        self.time = time
    }

    private static func bytes(
        _ bytes: [UInt8]?,
        of role: RoleName
    ) throws(TrustError) -> [UInt8] {
        guard let bytes else { throw .missing(role, path: role.fileName) }
        return bytes
    }

    /// The earliest expiry of the four files.
    public var expiry: MetadataTime {
        min(root.expiry, timestamp.expiry, snapshot.expiry, targets.expiry)
    }
}
