import StageModel

/// Updates the metadata of the top-level roles: the client workflow of The Update Framework
/// (specification 1.0.34, sections 5.1 to 5.6.6) as a state machine without I/O and without a clock.
///
/// The caller asks for the next step and performs it:
///
/// ```swift
/// var refresh = try MetadataRefresh(from: stored, at: now)
/// while true {
///     switch try refresh.next() {
///     case .fetch(let file):
///         guard let bytes = try await download(file) else { refresh.notFound(); continue }
///         refresh.accept(bytes)
///     case .store(let role, let bytes): try store(bytes, as: role.fileName)
///     case .remove(let role): try remove(role.fileName)
///     case .done(let metadata): return metadata
///     }
/// }
/// ```
///
/// Perform each step, durably, before requesting the next one: then a crash at any point leaves metadata that a later
/// refresh can start from. A refresh that throws has returned every file that it had verified; a new refresh may follow at
/// any time.
package struct MetadataRefresh: Sendable {
    /// The next action of the caller.
    package enum Step: Hashable, Sendable {
        /// Download the file, then call ``MetadataRefresh/accept(_:)`` or
        /// ``MetadataRefresh/notFound()``. A download that fails ends the refresh.
        case fetch(MetadataFile)
        /// Replace the role's stored metadata by the bytes, atomically.
        case store(RoleName, [UInt8])
        /// Remove the role's stored metadata, if there is any.
        case remove(RoleName)
        /// The metadata is up to date.
        case done(TrustedMetadata)
    }

    private enum Phase {
        case root
        case timestamp
        case snapshot(TimestampMetadata, earlier: SnapshotMetadata?)
        case targets(TimestampMetadata, SnapshotMetadata)
        case done(TrustedMetadata)
    }

    private let time: MetadataTime
    private let limits: TrustLimits
    private var stored: StoredMetadata
    private var root: RootMetadata
    private var rotations = 0
    private var trustedTimestamp: TimestampMetadata?
    private var phase = Phase.root
    private var steps: [Step] = []
    private var failure: TrustError?

    /// Starts a refresh from stored metadata.
    ///
    /// The stored root may have expired. Other stored files that are invalid, or not signed by the root's
    /// current keys, are ignored.
    ///
    /// - Parameters:
    ///   - stored: The metadata that the last refresh stored, or only the application's root.
    ///   - time: The current time, which all expiry checks of the refresh use.
    ///   - limits: The limits of downloaded files.
    /// - Throws: ``TrustError`` if the stored root is invalid.
    package init(
        from stored: StoredMetadata,
        at time: MetadataTime,
        limits: TrustLimits = TrustLimits()
    ) throws(TrustError) {
        self.stored = stored
        self.time = time
        self.limits = limits
        root = try RootMetadata(trusted: stored.root, limits: limits)
    }

    /// Returns the next step; repeats `fetch` and `done` if no other call happens in between.
    ///
    /// - Throws: ``TrustError`` that ended the refresh, after all earlier steps were returned.
    package mutating func next() throws(TrustError) -> Step {
        if !steps.isEmpty { return steps.removeFirst() }
        if let failure { throw failure }
        if let file { return .fetch(file) }
        guard case .done(let metadata) = phase else { preconditionFailure("no file is wanted") }
        return .done(metadata)
    }

    /// Verifies the bytes of the requested file.
    ///
    /// - Precondition: The last step was ``Step/fetch(_:)``.
    package mutating func accept(_ bytes: [UInt8]) {
        guard steps.isEmpty, failure == nil, let file else {
            preconditionFailure("no file is wanted")
        }
        do throws(TrustError) {
            try file.checkLength(bytes)
            switch phase {
            case .root: try acceptRoot(bytes)
            case .timestamp: try acceptTimestamp(bytes)
            case .snapshot(let timestamp, let earlier):
                try acceptSnapshot(bytes, describedBy: timestamp, after: earlier)
            case .targets(let timestamp, let snapshot):
                try acceptTargets(bytes, describedBy: snapshot, timestamp: timestamp)
            case .done: break
            }
        } catch {
            failure = error
        }
    }

    /// Reports that the server does not have the requested file: HTTP status 404, or 403 from object stores
    /// that send it instead.
    ///
    /// - Precondition: The last step was ``Step/fetch(_:)``.
    package mutating func notFound() {
        guard steps.isEmpty, failure == nil, let file else {
            preconditionFailure("no file is wanted")
        }
        do throws(TrustError) {
            guard case .root = phase else { throw .missing(file.role, path: file.path) }
            try endRoot()
        } catch {
            failure = error
        }
    }

    /// The file that the phase needs.
    private var file: MetadataFile? {
        switch phase {
        case .root:
            MetadataFile(of: .root, version: root.version + 1, maximumLength: limits.rootLength)
        case .timestamp:
            MetadataFile(of: .timestamp, version: nil, maximumLength: limits.timestampLength)
        case .snapshot(let timestamp, _):
            MetadataFile(
                of: .snapshot,
                version: root.hasConsistentSnapshots ? timestamp.snapshot.version : nil,
                maximumLength: timestamp.snapshot.maximumLength(limits.snapshotLength)
            )
        case .targets(_, let snapshot):
            MetadataFile(
                of: .targets,
                version: root.hasConsistentSnapshots
                    ? snapshot.description(of: .targets)?.version : nil,
                maximumLength: snapshot.description(of: .targets)?
                    .maximumLength(limits.targetsLength) ?? limits.targetsLength
            )
        case .done: nil
        }
    }

    private var reader: MetadataReader { MetadataReader(root: root, time: time) }
}

// MARK: Root

extension MetadataRefresh {
    private mutating func acceptRoot(_ bytes: [UInt8]) throws(TrustError) {
        let next = try reader.nextRoot(bytes, limit: limits.rootLength)
        steps.append(.store(.root, bytes))
        removeMetadata(ofKeysRotatedBy: next)
        root = next
        rotations += 1
        if rotations == limits.rootRotations { try endRoot() }
    }

    /// Removes metadata that was signed by rotated keys: versions that an attacker increased with stolen keys
    /// must not block the new metadata (recovery from a fast-forward attack).
    private mutating func removeMetadata(ofKeysRotatedBy next: RootMetadata) {
        func isRotated(_ role: RoleName) -> Bool {
            root.keys(of: role).areRotated(in: next.keys(of: role))
        }
        if isRotated(.timestamp) || isRotated(.snapshot) {
            if stored.timestamp != nil { steps.append(.remove(.timestamp)) }
            if stored.snapshot != nil { steps.append(.remove(.snapshot)) }
            stored.timestamp = nil
            stored.snapshot = nil
        }
        if isRotated(.targets), stored.targets != nil {
            steps.append(.remove(.targets))
            stored.targets = nil
        }
    }

    /// Checks the expiry of the last root, which is stored already, and continues with the timestamp.
    private mutating func endRoot() throws(TrustError) {
        try reader.checkExpiry(of: root.header, role: .root)
        if let bytes = stored.timestamp {
            // An invalid stored file counts as missing: the repository replaces it.
            trustedTimestamp = try? reader.timestamp(bytes, limit: limits.timestampLength)
        }
        phase = .timestamp
    }
}

// MARK: Timestamp, snapshot and targets

extension MetadataRefresh {
    private mutating func acceptTimestamp(_ bytes: [UInt8]) throws(TrustError) {
        let found = try reader.timestamp(bytes, limit: limits.timestampLength)
        if let trusted = trustedTimestamp {
            if found.version == trusted.version {
                // A file of the same version must have the same content; it is discarded.
                try reader.checkExpiry(of: trusted.header, role: .timestamp)
                return endTimestamp(trusted, storing: nil)
            }
            try trusted.checkNoRollback(in: found)
        }
        try reader.checkExpiry(of: found.header, role: .timestamp)
        endTimestamp(found, storing: bytes)
    }

    /// Continues with the snapshot, which may be stored already.
    private mutating func endTimestamp(
        _ timestamp: TimestampMetadata,
        storing bytes: [UInt8]?
    ) {
        if let bytes { steps.append(.store(.timestamp, bytes)) }
        phase = .snapshot(timestamp, earlier: nil)
        guard let bytes = stored.snapshot,
            // An invalid stored file counts as missing: the repository replaces it.
            let earlier = try? reader.earlierSnapshot(bytes, limit: limits.snapshotLength)
        else { return }
        let current = try? reader.snapshot(
            bytes,
            describedBy: timestamp,
            limit: limits.snapshotLength
        )
        if let current {
            endSnapshot(current, timestamp: timestamp)
        } else {
            phase = .snapshot(timestamp, earlier: earlier)
        }
    }

    private mutating func acceptSnapshot(
        _ bytes: [UInt8],
        describedBy timestamp: TimestampMetadata,
        after earlier: SnapshotMetadata?
    ) throws(TrustError) {
        let snapshot = try reader.snapshot(
            bytes,
            describedBy: timestamp,
            limit: limits.snapshotLength
        )
        try earlier?.checkNoRollback(in: snapshot)
        steps.append(.store(.snapshot, bytes))
        endSnapshot(snapshot, timestamp: timestamp)
    }

    /// Continues with the targets metadata, which may be stored already.
    private mutating func endSnapshot(_ snapshot: SnapshotMetadata, timestamp: TimestampMetadata) {
        phase = .targets(timestamp, snapshot)
        guard let bytes = stored.targets,
            // A stored file of another version counts as missing: the repository replaces it.
            let targets = try? reader.targets(
                bytes,
                describedBy: snapshot,
                limit: limits.targetsLength
            )
        else { return }
        end(with: targets, snapshot: snapshot, timestamp: timestamp)
    }

    private mutating func acceptTargets(
        _ bytes: [UInt8],
        describedBy snapshot: SnapshotMetadata,
        timestamp: TimestampMetadata
    ) throws(TrustError) {
        let targets = try reader.targets(
            bytes,
            describedBy: snapshot,
            limit: limits.targetsLength
        )
        steps.append(.store(.targets, bytes))
        end(with: targets, snapshot: snapshot, timestamp: timestamp)
    }

    private mutating func end(
        with targets: TargetsMetadata,
        snapshot: SnapshotMetadata,
        timestamp: TimestampMetadata
    ) {
        phase = .done(
            TrustedMetadata(
                root: root,
                timestamp: timestamp,
                snapshot: snapshot,
                targets: targets,
                time: time
            )
        )
    }
}
