import StageModel

/// Verifies files of top-level roles under one root, without comparing them with earlier files.
struct MetadataReader {
    let root: RootMetadata
    /// The reference time, or `nil` to accept expired metadata.
    let time: MetadataTime?

    /// Parses the next root, which must be signed by the keys of both the trusted and the new root.
    ///
    /// An intermediate root may have expired.
    func nextRoot(_ bytes: [UInt8], limit: ByteCount) throws(TrustError) -> RootMetadata {
        let envelope = try Envelope(bytes, of: .root, limit: limit)
        let next = try envelope.metadata(RootMetadata.self, of: .root)
        try root.check(envelope, of: .root, version: next.version)
        try next.check(envelope, of: .root, version: next.version)
        guard next.version == root.version + 1 else {
            throw .wrongVersion(.root, expected: root.version + 1, found: next.version)
        }
        return next
    }

    /// Verifies a timestamp, except for its expiry.
    func timestamp(_ bytes: [UInt8], limit: ByteCount) throws(TrustError) -> TimestampMetadata {
        try signed(bytes, as: TimestampMetadata.self, by: .timestamp, limit: limit)
    }

    /// Verifies a snapshot that may be older than the timestamp describes.
    func earlierSnapshot(_ bytes: [UInt8], limit: ByteCount) throws(TrustError) -> SnapshotMetadata
    {
        try signed(bytes, as: SnapshotMetadata.self, by: .snapshot, limit: limit)
    }

    /// Verifies the snapshot that the timestamp describes.
    func snapshot(
        _ bytes: [UInt8],
        describedBy timestamp: TimestampMetadata,
        limit: ByteCount
    ) throws(TrustError) -> SnapshotMetadata {
        let describer = MetadataVersion(role: .timestamp, version: timestamp.header.version)
        try check(bytes, of: .snapshot, against: timestamp.snapshot, in: describer)
        let snapshot = try earlierSnapshot(bytes, limit: limit)
        try check(snapshot, of: .snapshot, against: timestamp.snapshot)
        return snapshot
    }

    /// Verifies the metadata of the top-level targets role that the snapshot describes.
    func targets(
        _ bytes: [UInt8],
        describedBy snapshot: SnapshotMetadata,
        limit: ByteCount
    ) throws(TrustError) -> TargetsMetadata {
        try targets(bytes, of: .targets, describedBy: snapshot, limit: limit) {
            envelope,
            version throws(TrustError) in
            try root.check(envelope, of: .targets, version: version)
        }
    }

    /// Verifies the metadata of a delegated role that the snapshot describes.
    func targets(
        _ bytes: [UInt8],
        of delegation: Delegation,
        by delegator: (role: RoleName, version: Int),
        describedBy snapshot: SnapshotMetadata,
        limit: ByteCount
    ) throws(TrustError) -> TargetsMetadata {
        try targets(bytes, of: delegation.role, describedBy: snapshot, limit: limit) {
            envelope,
            version throws(TrustError) in
            if let shortage = delegation.keys.shortage(
                of: envelope,
                delegator: delegator.role,
                version: delegator.version
            ) {
                throw .unsigned(delegation.role, version: version, shortage)
            }
        }
    }

    private func targets(
        _ bytes: [UInt8],
        of role: RoleName,
        describedBy snapshot: SnapshotMetadata,
        limit: ByteCount,
        checkSignatures: (Envelope, Int) throws(TrustError) -> Void
    ) throws(TrustError) -> TargetsMetadata {
        guard let file = snapshot.description(of: role) else {
            throw .unlisted(role, delegator: .targets)
        }
        let describer = MetadataVersion(role: .snapshot, version: snapshot.header.version)
        try check(bytes, of: role, against: file, in: describer)
        let envelope = try Envelope(bytes, of: role, limit: limit)
        let targets = try envelope.metadata(TargetsMetadata.self, of: role)
        try checkSignatures(envelope, targets.version)
        try check(targets, of: role, against: file)
        return targets
    }

    private func signed<Metadata: SignedMetadata>(
        _ bytes: [UInt8],
        as type: Metadata.Type,
        by role: RoleName,
        limit: ByteCount
    ) throws(TrustError) -> Metadata {
        let envelope = try Envelope(bytes, of: role, limit: limit)
        let metadata = try envelope.metadata(type, of: role)
        try root.check(envelope, of: role, version: metadata.header.version)
        return metadata
    }

    /// Throws if bytes do not match their description, before they are parsed.
    private func check(
        _ bytes: [UInt8],
        of role: RoleName,
        against file: FileDescription,
        in metadata: MetadataVersion
    ) throws(TrustError) {
        guard let fault = file.fault(of: bytes) else { return }
        throw .wrongContent(role.fileName, fault, describedBy: metadata)
    }

    /// Throws if the version differs from the description or the metadata has expired.
    private func check(
        _ metadata: some SignedMetadata,
        of role: RoleName,
        against file: FileDescription
    ) throws(TrustError) {
        guard metadata.header.version == file.version else {
            throw .wrongVersion(role, expected: file.version, found: metadata.header.version)
        }
        try checkExpiry(of: metadata.header, role: role)
    }

    /// Throws if the metadata has expired at the reference time.
    func checkExpiry(of header: MetadataHeader, role: RoleName) throws(TrustError) {
        guard let time, header.expiry <= time else { return }
        throw .expired(role, version: header.version, expiry: header.expiry, time: time)
    }
}
