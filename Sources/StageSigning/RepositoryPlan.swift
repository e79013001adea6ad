import StageDigest
import StageModel
import StageTrust

/// The current and the next metadata of all roles under one root.
final class RepositoryPlan {
    /// The root that determines the keys of the other roles.
    let root: RootDocument
    /// The published metadata of the other roles.
    private(set) var current: [SigningRole: SignedDocument] = [:]
    /// The next metadata: new or unchanged.
    var prepared: [SigningRole: SignedDocument] = [:]
    /// The roles whose metadata is new.
    var new: Set<SigningRole> = []

    init(root: RootDocument) { self.root = root }

    /// Reads the published metadata: the timestamp, and the files that it refers to.
    ///
    /// If the timestamp was lost, or a crash came before the first one, the newest snapshot is used instead.
    func read(_ files: RepositoryFiles) throws(SigningError) {
        let snapshot: SignedDocument
        if let timestamp = try files.document(.timestamp, version: nil) {
            current[.timestamp] = timestamp
            snapshot = try linked(.snapshot, from: timestamp, in: files)
        } else {
            guard let newest = try files.versions(of: .snapshot).max(),
                let document = try files.document(.snapshot, version: newest)
            else { return }
            snapshot = document
        }
        current[.snapshot] = snapshot
        current[.targets] = try linked(.targets, from: snapshot, in: files)
    }

    private func linked(
        _ role: SigningRole,
        from document: SignedDocument,
        in files: RepositoryFiles
    ) throws(SigningError) -> SignedDocument {
        let version = document.signed["meta"]?["\(role.rawValue).json"]?["version"]?.integer
        guard let version, let found = try files.document(role, version: version) else {
            let path = "\(version.map { "\($0)." } ?? "")\(role.rawValue).json"
            throw .metadata(path: files.metadataPath, .missing(role.name, path: path))
        }
        return found
    }

    /// Returns the version after the published one, and after files that a crash left behind.
    ///
    /// Clients refuse a timestamp whose version is lower than that of one which was lost. It had at least the
    /// version of the newest snapshot, and may have been renewed more often: the next one leaves room for that.
    func nextVersion(
        of role: SigningRole,
        in files: RepositoryFiles
    ) throws(SigningError) -> Int {
        guard role == .timestamp else {
            return max(current[role]?.version ?? 0, try files.versions(of: role).max() ?? 0) + 1
        }
        if let timestamp = current[.timestamp] { return timestamp.version + 1 }
        return try files.versions(of: .snapshot).max().map { $0 + Self.lostRenewals } ?? 1
    }

    /// Maximum number of renewals of a lost timestamp since its newest snapshot: hourly for a month.
    private static let lostRenewals = 1_000

    /// Returns the content that the metadata of a role should have; without a `manifest`, the targets
    /// metadata keeps its content.
    func content(of role: SigningRole, manifest: [UInt8]?, name: String) -> JSONTree {
        let base = current[role]?.signed ?? .emptyMetadata(of: role)
        switch role {
        case .root:
            return root.document.signed
        case .targets:
            let targets = base["targets"] ?? .object([])
            guard let manifest else { return base.setting("targets", to: targets) }
            var entry = JSONTree.file(manifest)
            if let custom = targets[name]?["custom"] { entry = entry.setting("custom", to: custom) }
            return base.setting("targets", to: targets.setting(name, to: entry))
        case .snapshot:
            return Self.naming(.targets, document: prepared[.targets], in: base)
        case .timestamp:
            return Self.naming(.snapshot, document: prepared[.snapshot], in: base)
        }
    }

    private static func naming(
        _ role: SigningRole,
        document: SignedDocument?,
        in base: JSONTree
    ) -> JSONTree {
        let files = base["meta"] ?? .object([])
        let name = "\(role.rawValue).json"
        return base.setting("meta", to: files.setting(name, to: document?.description()))
    }

    /// Returns whether the targets metadata names this manifest.
    func names(_ manifest: [UInt8], as name: String) -> Bool {
        let entry = prepared[.targets]?.signed["targets"]?[name]
        return entry?["hashes"]?["sha256"]?.string == Digest(of: manifest).description
    }

    /// Returns whether clients of another root accept the next metadata.
    func isComplete(under other: RootDocument) -> Bool {
        prepared.allSatisfy { role, document in
            other.signatures(on: document, by: role).isComplete
        }
    }
}
