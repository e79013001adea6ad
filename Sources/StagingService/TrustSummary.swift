package import FoundationEssentials
package import StageContainer
import StageEngine
package import StageModel
import StageTrust

/// The signed metadata that the manifest of an application is verified with, for people: what is trusted, by
/// which keys, since when and until when.
package struct TrustSummary: Codable, Sendable {
    /// The application.
    package var application: ApplicationID
    /// The version of the last root metadata; `nil` where the registered one is not valid.
    package var rootVersion: Int?
    /// The top-level roles; of metadata that is not valid the root alone.
    package var roles: [Role] = []
    /// The time of the last refresh that ended with a manifest.
    package var verified: Date?
    /// The time since which metadata has expired: nothing new is staged.
    package var staleSince: Date?
    /// The reason why nothing stored is trusted.
    package var problem: String?

    /// The metadata of a role.
    package struct Role: Codable, Sendable {
        /// The name of the role.
        package var name: String
        /// The version of its metadata.
        package var version: Int
        /// The time from which on the metadata does not count.
        package var expires: Date
        /// The first digits of the ids of the keys that sign it.
        package var keys: [String]
        /// The number of keys that have to sign.
        package var threshold: Int
        /// Whether less than a third of its lifetime remains; of an unknown lifetime less than 14 days.
        package var expiresSoon: Bool
    }
}

extension TrustSummary {
    /// The digits of a key's id that are shown.
    private static let shownDigits = 8

    init(
        _ application: ApplicationID,
        _ trust: TrustLedger,
        _ manifest: StoredManifest?,
        from urls: [String],
        now: Int64
    ) {
        self.application = application
        let stored = trust.stored
        verified = stored.record.map { Date(timeIntervalSince1970: Double($0.verifiedAt)) }
        do throws(TrustError) {
            let root = try trust.trustedRoot()
            rootVersion = root.version
            add(.root, (root.version, root.expiry), root, stored.record, now)
            // Before the first refresh there is nothing else to show.
            guard !stored.files.isEmpty else { return }
            let metadata = try trust.verified()
            let (timestamp, snapshot) = (metadata.timestamp, metadata.snapshot)
            let targets = metadata.targets
            add(.timestamp, (timestamp.version, timestamp.expiry), root, stored.record, now)
            add(.snapshot, (snapshot.version, snapshot.expiry), root, stored.record, now)
            add(.targets, (targets.version, targets.expiry), root, stored.record, now)
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
        _ metadata: (version: Int, expiry: MetadataTime),
        _ root: RootMetadata,
        _ record: TrustRecord?,
        _ now: Int64
    ) {
        let keys = root.keys(of: role)
        let expiry = metadata.expiry.secondsSince1970
        // The lifetime began when the publisher signed: at the latest when the file came.
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
    /// The signed metadata of the applications of a container that are registered with a root, or with the
    /// target's own root.
    ///
    /// - Throws: ``StagingFailure`` if a root or the container cannot be read.
    package func trustSummaries(
        _ reader: ContainerReader,
        now: Int64
    ) throws(StagingFailure) -> [TrustSummary] {
        var summaries: [TrustSummary] = []
        if let registration {
            if let trust = try registration.ledger(reader) {
                summaries.append(
                    TrustSummary(
                        registration.application,
                        trust,
                        try stored(reader).first,
                        from: registration.manifestURLs,
                        now: now
                    )
                )
            }
            return summaries
        }
        for record in try stored(reader) {
            let source = try source(of: record, reader)
            guard let trust = source.trust, let application = source.application else { continue }
            summaries.append(
                TrustSummary(application, trust, record, from: source.urls, now: now)
            )
        }
        return summaries
    }
}

extension TrustSummary: CustomStringConvertible {
    /// A line for the whole, then one for each role.
    package var description: String {
        var head = "signed: root version \(rootVersion.map(String.init) ?? "-")"
        if let verified { head += ", verified \(InternetTime(verified))" }
        if let staleSince { head += ", stale since \(InternetTime(staleSince))" }
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
        return "\(name), version \(version), until \(InternetTime(expires)), by \(signers)"
    }
}
