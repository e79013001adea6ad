package import FoundationEssentials
package import StageContainer
import StageEngine
package import StageModel
import StageTrust

/// Summary, for people, of the signed metadata that verifies an application's manifest: trusted versions,
/// keys, and times of verification and expiry.
package struct TrustSummary: Codable, Sendable {
    /// The application.
    package var application: ApplicationID
    /// The version of the last root metadata; `nil` if the registered root is not valid.
    package var rootVersion: Int?
    /// The top-level roles; only the root if the other metadata is not valid.
    package var roles: [Role] = []
    /// The time of the last refresh that obtained a manifest.
    package var verified: Date?
    /// The time at which the first metadata expired; since then no new packs are staged.
    package var staleSince: Date?
    /// The reason why the stored metadata is not trusted.
    package var problem: String?

    /// The metadata of a role.
    package struct Role: Codable, Sendable {
        /// The name of the role.
        package var name: String
        /// The version of its metadata.
        package var version: Int
        /// The time at which the metadata expires.
        package var expires: Date
        /// The first digits of the IDs of the keys that sign it.
        package var keys: [String]
        /// The number of required signatures.
        package var threshold: Int
        /// Set if less than a third of the metadata's lifetime remains, or less than 14 days if the lifetime
        /// is unknown.
        package var expiresSoon: Bool
    }
}

extension TrustSummary {
    /// The number of digits to show of a key's ID.
    private static let shownDigits = 8

    init(
        of application: ApplicationID,
        ledger trust: TrustLedger,
        manifest: StoredManifest?,
        from urls: [String],
        now: Int64
    ) {
        self.application = application
        let stored = trust.stored
        verified = stored.record.map { Date(timeIntervalSince1970: Double($0.verifiedAt)) }
        do throws(TrustError) {
            let root = try trust.trustedRoot()
            rootVersion = root.version
            add(
                .root,
                metadata: (root.version, root.expiry),
                root: root,
                record: stored.record,
                now: now
            )
            // Before the first refresh, only the root exists.
            guard !stored.files.isEmpty else { return }
            let metadata = try trust.verified()
            let (timestamp, snapshot) = (metadata.timestamp, metadata.snapshot)
            let targets = metadata.targets
            add(
                .timestamp,
                metadata: (timestamp.version, timestamp.expiry),
                root: root,
                record: stored.record,
                now: now
            )
            add(
                .snapshot,
                metadata: (snapshot.version, snapshot.expiry),
                root: root,
                record: stored.record,
                now: now
            )
            add(
                .targets,
                metadata: (targets.version, targets.expiry),
                root: root,
                record: stored.record,
                now: now
            )
        } catch {
            problem = error.description
        }
        if problem == nil, !stored.files.isEmpty, let manifest {
            do throws(StageError) {
                try trust.verify(manifest, from: urls, at: nil)
            } catch {
                problem = error.description
            }
        }
        let first = roles.map(\.expires).min()
        if let first, Int64(first.timeIntervalSince1970) <= now { staleSince = first }
    }

    private mutating func add(
        _ role: RoleName,
        metadata: (version: Int, expiry: MetadataTime),
        root: RootMetadata,
        record: TrustRecord?,
        now: Int64
    ) {
        let keys = root.keys(of: role)
        let expiry = metadata.expiry.secondsSince1970
        // The time of receipt is the latest possible begin of the lifetime, which began when the publisher
        // signed.
        let least = record?.receivedAt[role.fileName].map { (expiry - $0) / 3 } ?? 14 * 86400
        roles.append(
            Role(
                name: role.text,
                version: metadata.version,
                expires: Date(timeIntervalSince1970: Double(expiry)),
                keys: keys.keys.map { String($0.id.prefix(Self.shownDigits)) },
                threshold: keys.threshold,
                expiresSoon: expiry - now < least
            )
        )
    }
}

extension StagingTarget {
    /// Returns the signed metadata of the container's applications: as the root verifies it that they are registered with,
    /// or the target's own, or else the newest root that the container has stored.
    ///
    /// - Throws: ``StagingFailure`` if a root or the container cannot be read.
    package func trustSummaries(
        _ reader: ContainerReader,
        now: Int64
    ) throws(StagingFailure) -> [TrustSummary] {
        var summaries: [TrustSummary] = []
        if let registration {
            if let trust = try registration.ledger(reader, file: registrationPath) {
                summaries.append(
                    TrustSummary(
                        of: registration.application,
                        ledger: trust,
                        manifest: try stored(reader).first,
                        from: registration.manifestURLs,
                        now: now
                    )
                )
            }
            return summaries
        }
        for record in try stored(reader) {
            let source = try source(of: record, reader)
            var ledger = source.trust
            if ledger == nil { ledger = try storedLedger(of: record, reader) }
            guard let trust = ledger, let application = source.application ?? trust.application
            else { continue }
            summaries.append(
                TrustSummary(
                    of: application,
                    ledger: trust,
                    manifest: record,
                    from: source.urls,
                    now: now
                )
            )
        }
        return summaries
    }
}

extension TrustSummary: CustomStringConvertible {
    /// A line for the summary, then one for each role.
    package var description: String {
        var head = "signed: root version \(rootVersion.map(String.init) ?? "-")"
        if let verified { head += ", verified \(InternetTime(verified).text)" }
        if let staleSince { head += ", stale since \(InternetTime(staleSince).text)" }
        if let problem { head += "; not trusted: \(problem)" }
        return ([head] + roles.map { "  \($0)" }).joined(separator: "\n")
    }
}

extension TrustSummary.Role: CustomStringConvertible {
    /// The role, its version, expiry and keys.
    package var description: String {
        let signers =
            keys.count == 1
            ? "key \(keys[0])" : "\(threshold) of keys \(keys.joined(separator: ", "))"
        return "\(name), version \(version), until \(InternetTime(expires).text), by \(signers)"
    }
}
