import StageDigest
import StageModel
import StageSystem
package import StageTrust
import SystemPackage

/// The state of published metadata, as clients see it.
package struct RepositoryInspection: Equatable, Sendable {
    /// The metadata of a role.
    package struct Role: Equatable, Sendable {
        /// The role.
        package var role: SigningRole
        /// The path from the manifest's directory, such as `metadata/timestamp.json`.
        package var path: String
        /// The time at which it expires.
        package var expiry: MetadataTime
        /// Indicates whether it has expired.
        package var isExpired: Bool
        /// Indicates whether less than a third of its period remains.
        package var isClose: Bool
    }

    /// The roles whose metadata exists.
    package var roles: [Role] = []
    /// The reason other than expiry why clients reject the metadata; `nil` if they accept it.
    package var fault: TrustError?
    /// Indicates whether the targets metadata names the current manifest.
    package var namesManifest = false
    /// Indicates whether the manifest copy that clients download exists.
    package var hasCopy = false
}

extension RepositoryFiles {
    /// The copy of the manifest that the published targets metadata names, or `nil` if there is none.
    ///
    /// - Throws: ``SigningError`` if a file cannot be read.
    package func publishedManifest() throws(SigningError) -> [UInt8]? {
        guard let document = try latestRoot() else { return nil }
        let plan = RepositoryPlan(root: try RootDocument(document, path: metadataPath))
        try plan.read(self)
        let entry = plan.current[.targets]?.signed["targets"]?[manifestName.string]
        guard let digest = entry?["hashes"]?["sha256"]?.string,
            let name = FilePath.Component("\(digest).\(manifestName.string)")
        else { return nil }
        return try SigningError.wrapping { () throws(FileError) in
            try directory.bytes(of: FilePath(name), limit: ManifestLimits.byteCount)
        }
    }

    /// Inspects the published metadata, or returns `nil` if there is none.
    ///
    /// - Throws: ``SigningError`` if a file cannot be read.
    package func inspect(
        manifest: [UInt8],
        at time: MetadataTime
    ) throws(SigningError) -> RepositoryInspection? {
        guard let document = try latestRoot() else { return nil }
        let root = try RootDocument(document, path: metadataPath)
        var inspection = RepositoryInspection()
        let plan = RepositoryPlan(root: root)
        do throws(SigningError) {
            try plan.read(self)
        } catch {
            guard case .metadata(_, let fault) = error else { throw error }
            inspection.fault = fault
        }
        for role in SigningRole.allCases {
            guard let document = role == .root ? root.document : plan.current[role] else {
                continue
            }
            let prefix = role == .timestamp ? "" : "\(document.version)."
            inspection.roles.append(
                RepositoryInspection.Role(
                    role: role,
                    path: "metadata/\(prefix)\(role.rawValue).json",
                    expiry: document.expiry,
                    isExpired: document.expiry <= time,
                    isClose: root.content.periods.isClose(role, expiry: document.expiry, at: time)
                )
            )
        }
        if inspection.fault == nil { inspection.fault = try clientFault(root, plan: plan) }
        let digest = Digest(of: manifest).description
        let entry = plan.current[.targets]?.signed["targets"]?[manifestName.string]
        inspection.namesManifest = entry?["hashes"]?["sha256"]?.string == digest
        inspection.hasCopy = try hasCopy(of: entry?["hashes"]?["sha256"]?.string ?? digest)
        return inspection
    }

    private func clientFault(
        _ root: RootDocument,
        plan: RepositoryPlan
    ) throws(SigningError) -> TrustError? {
        func stored(_ role: SigningRole) throws(SigningError) -> [UInt8]? {
            guard let document = plan.current[role] else { return nil }
            return try bytes(of: role, version: role == .timestamp ? nil : document.version)
        }
        let root = try bytes(of: .root, version: root.document.version) ?? []
        let metadata = StoredMetadata(
            root: root,
            timestamp: try stored(.timestamp),
            snapshot: try stored(.snapshot),
            targets: try stored(.targets)
        )
        do throws(TrustError) {
            _ = try TrustedMetadata(stored: metadata)
            return nil
        } catch {
            return error
        }
    }
}
