import StageDigest
import StageModel
package import StageSystem
import StageTrust
package import SystemPackage

/// The files of a publisher's repository: a manifest, signed metadata and drafts beside it.
///
/// - `metadata/` contains `timestamp.json`, `N.root.json`, `N.snapshot.json` and `N.targets.json`;
/// - `metadata.draft/` contains metadata that lacks signatures, under the same names;
/// - `SHA256.manifest.json` is the copy of the manifest that the metadata names.
package final class RepositoryFiles {
    /// The directory of the manifest.
    package let directory: Directory
    /// The file name of the manifest, which is also its target name.
    package let manifestName: FilePath.Component

    private static let metadataName: FilePath.Component = "metadata"
    private static let draftName: FilePath.Component = "metadata.draft"
    /// The maximum number of bytes of a metadata file, equal to the clients' limit.
    private static let limit = 8 << 20

    /// Creates a description of a repository, which need not exist yet.
    package init(directory: Directory, manifestName: FilePath.Component) {
        self.directory = directory
        self.manifestName = manifestName
    }

    /// The directory of the metadata, for messages.
    package var metadataPath: String {
        directory.path.appending(Self.metadataName).string
    }

    /// Returns whether there is published root metadata.
    package func isPublished() throws(SigningError) -> Bool { try latestRoot() != nil }

    /// Returns whether there is published metadata, or a draft of it.
    package func exists() throws(SigningError) -> Bool {
        if try isPublished() { return true }
        return try draft(.root) != nil
    }

    /// Returns the content of the newest published root, or else of the draft of the first root; `nil` if
    /// there is none.
    package func rootContent() throws(SigningError) -> RootContent? {
        if let published = try latestRoot() { return RootContent(reading: published.signed) }
        return try draft(.root).map { RootContent(reading: $0.signed) }
    }

    // MARK: Reading

    /// Returns the published root with the highest version, or `nil` if there is none.
    func latestRoot() throws(SigningError) -> SignedDocument? {
        guard let version = try latestRootVersion() else { return nil }
        return try document(.root, version: version)
    }

    /// Returns the highest version of root metadata, found by a binary search: all versions are kept,
    /// possibly a thousand.
    private func latestRootVersion() throws(SigningError) -> Int? {
        guard try hasRoot(1) else { return try versions(of: .root, in: Self.metadataName).max() }
        var (present, absent) = (1, 2)
        while try hasRoot(absent) { (present, absent) = (absent, 2 * absent) }
        while absent - present > 1 {
            let middle = (present + absent) / 2
            if try hasRoot(middle) { present = middle } else { absent = middle }
        }
        return present
    }

    private func hasRoot(_ version: Int) throws(SigningError) -> Bool {
        let path = Self.path(of: .root, version: version, in: Self.metadataName)
        return try SigningError.wrapping { () throws(FileError) in
            try directory.status(path) != nil
        }
    }

    /// Returns a published file; without a version for `nil`.
    func document(_ role: SigningRole, version: Int?) throws(SigningError) -> SignedDocument? {
        try document(role, version: version, in: Self.metadataName)
    }

    /// Returns the draft of a role with the highest version, or `nil` if there is none.
    func draft(_ role: SigningRole) throws(SigningError) -> SignedDocument? {
        guard let version = try versions(of: role, in: Self.draftName).max() else { return nil }
        return try document(role, version: version, in: Self.draftName)
    }

    private func document(
        _ role: SigningRole,
        version: Int?,
        in folder: FilePath.Component
    ) throws(SigningError) -> SignedDocument? {
        let path = Self.path(of: role, version: version, in: folder)
        let bytes = try SigningError.wrapping { () throws(FileError) in
            try directory.bytes(of: path, limit: Self.limit)
        }
        guard let bytes else { return nil }
        let shown = directory.path.pushing(path).string
        let document = try SignedDocument(reading: bytes, path: shown, role: role)
        if let version, document.version != version {
            throw .metadata(
                path: shown,
                .wrongVersion(role.name, expected: version, found: document.version)
            )
        }
        return document
    }

    /// Returns the bytes of a published file, to check them as a client does.
    func bytes(of role: SigningRole, version: Int?) throws(SigningError) -> [UInt8]? {
        let path = Self.path(of: role, version: version, in: Self.metadataName)
        return try SigningError.wrapping { () throws(FileError) in
            try directory.bytes(of: path, limit: Self.limit)
        }
    }

    /// Returns the published versions of a role, in no order.
    func versions(of role: SigningRole) throws(SigningError) -> [Int] {
        try versions(of: role, in: Self.metadataName)
    }

    private func versions(
        of role: SigningRole,
        in folder: FilePath.Component
    ) throws(SigningError) -> [Int] {
        let suffix = ".\(role.rawValue).json"
        return try names(in: folder).compactMap { name in
            guard name.hasSuffix(suffix) else { return nil }
            return Self.number(name.dropLast(suffix.utf8.count))
        }
    }

    private static func number(_ text: Substring) -> Int? {
        guard let number = Int(text), number > 0, String(number) == text else { return nil }
        return number
    }

    private func names(in folder: FilePath.Component) throws(SigningError) -> [String] {
        try SigningError.wrapping { () throws(FileError) in
            try directory.directory(FilePath(folder))?.entries()
                .filter { $0.kind == .file }.map(\.path.string) ?? []
        }
    }

    private static func name(of role: SigningRole, version: Int?) -> FilePath.Component {
        FilePath.Component(fileName(of: role, version: version)) ?? metadataName
    }

    private static func path(
        of role: SigningRole,
        version: Int?,
        in folder: FilePath.Component
    ) -> FilePath {
        FilePath("\(folder.string)/\(fileName(of: role, version: version))")
    }

    private static func fileName(of role: SigningRole, version: Int?) -> String {
        let prefix = version.map { "\($0)." } ?? ""
        return "\(prefix)\(role.rawValue).json"
    }

    // MARK: Writing

    /// Publishes a file atomically and durably: readers find it whole or not at all, even after a power cut.
    func publish(_ document: SignedDocument, as role: SigningRole) throws(SigningError) {
        let version = role == .timestamp ? nil : document.version
        try write(document, as: Self.name(of: role, version: version), in: Self.metadataName)
    }

    /// Stores the draft of a role.
    func storeDraft(_ document: SignedDocument, of role: SigningRole) throws(SigningError) {
        let name = Self.name(of: role, version: document.version)
        try write(document, as: name, in: Self.draftName)
        try removeDrafts(of: role, except: document.version)
    }

    /// Removes the drafts of a role, and the drafts directory when it becomes empty.
    func removeDrafts(of role: SigningRole, except kept: Int? = nil) throws(SigningError) {
        let stale = try versions(of: role, in: Self.draftName).filter { $0 != kept }
        try SigningError.wrapping { () throws(FileError) in
            guard let folder = try directory.directory(FilePath(Self.draftName)) else { return }
            for version in stale { try folder.remove(Self.name(of: role, version: version)) }
            if try folder.entries().isEmpty { try directory.removeDirectory(Self.draftName) }
        }
    }

    private func write(
        _ document: SignedDocument,
        as name: FilePath.Component,
        in folder: FilePath.Component
    ) throws(SigningError) {
        try SigningError.wrapping { () throws(FileError) in
            if try directory.createDirectory(FilePath(folder)) { try directory.synchronize() }
            let subdirectory = try directory.makeDirectory(FilePath(folder))
            // A timestamp that is replaced keeps the permissions that servers need.
            try subdirectory.replace(document.bytes, at: name)
        }
    }

    /// Writes the copy of the manifest that the metadata names, unless it exists.
    func publishCopy(of manifest: [UInt8]) throws(SigningError) {
        let digest = Digest(of: manifest).description
        guard let name = FilePath.Component("\(digest).\(manifestName.string)") else { return }
        try SigningError.wrapping { () throws(FileError) in
            let present = try directory.bytes(of: FilePath(name), limit: ManifestLimits.byteCount)
            guard present != manifest else { return }
            try directory.write(manifest, to: name, durably: true)
        }
    }

    /// Returns whether a copy of the manifest with the digest exists.
    func hasCopy(of digest: String) throws(SigningError) -> Bool {
        guard let name = FilePath.Component("\(digest).\(manifestName.string)") else {
            return false
        }
        return try SigningError.wrapping { () throws(FileError) in
            try directory.status(FilePath(name)) != nil
        }
    }

    // MARK: Cleaning up

    /// Removes temporary files of metadata and of copies of the manifest, which killed commands left.
    ///
    /// The caller must hold the manifest's lock, so none is in use.
    func removeTemporaryFiles() throws(SigningError) {
        try SigningError.wrapping { () throws(FileError) in
            for name in [Self.metadataName, Self.draftName] {
                guard let folder = try directory.directory(FilePath(name)) else { continue }
                for entry in try folder.entries() where Directory.isTemporary(entry.name) {
                    try folder.remove(entry.name)
                }
            }
            for entry in try directory.entries()
            where Directory.isTemporary(entry.name) && isOfCopy(entry.path.string) {
                try directory.remove(entry.name)
            }
        }
    }

    /// Returns whether a temporary file is one of a copy of the manifest: `.SHA256.NAME.MARK.tmp`.
    private func isOfCopy(_ name: String) -> Bool {
        let rest = name.dropFirst()
        return [UInt8](hexadecimal: String(rest.prefix(64))) != nil
            && rest.dropFirst(64).hasPrefix(".\(manifestName.string).")
    }

    /// Removes superseded files: snapshots except that of `version` and the one before it, targets metadata
    /// that neither of these names, and manifest copies that none of that targets metadata names.
    func removeSuperseded(currentSnapshot version: Int) throws(SigningError) {
        let present = try versions(of: .snapshot)
        let earlier = present.filter { $0 < version }.max()
        let snapshots = present.filter { $0 == version || $0 == earlier }
        var targets: Set<Int> = []
        for snapshot in snapshots {
            let document = try document(.snapshot, version: snapshot)
            let entry = document?.signed["meta"]?["targets.json"]
            if let version = entry?["version"]?.integer { targets.insert(version) }
        }
        var digests: Set<String> = []
        for version in targets {
            let document = try document(.targets, version: version)
            let entry = document?.signed["targets"]?[manifestName.string]
            if let digest = entry?["hashes"]?["sha256"]?.string { digests.insert(digest) }
        }
        try remove(try versions(of: .snapshot).filter { !snapshots.contains($0) }, of: .snapshot)
        try remove(try versions(of: .targets).filter { !targets.contains($0) }, of: .targets)
        try removeCopies(except: digests)
    }

    private func remove(_ versions: [Int], of role: SigningRole) throws(SigningError) {
        try SigningError.wrapping { () throws(FileError) in
            guard let folder = try directory.directory(FilePath(Self.metadataName)) else { return }
            for version in versions { try folder.remove(Self.name(of: role, version: version)) }
        }
    }

    private func removeCopies(except digests: Set<String>) throws(SigningError) {
        let suffix = ".\(manifestName.string)"
        try SigningError.wrapping { () throws(FileError) in
            for entry in try directory.entries() where entry.kind == .file {
                let name = entry.path.string
                let digest = String(name.dropLast(suffix.utf8.count))
                guard name.hasSuffix(suffix), digest.utf8.count == 64,
                    [UInt8](hexadecimal: digest) != nil, !digests.contains(digest)
                else { continue }
                try directory.remove(entry.name)
            }
        }
    }
}
