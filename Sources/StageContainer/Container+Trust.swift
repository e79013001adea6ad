public import StageModel
import StageSystem
package import SystemPackage

/// The signed metadata that the last refresh verified for an application, as bytes.
///
/// Stored metadata is not trusted as such: each use verifies it again, from the root that the application is
/// registered with.
public struct StoredTrust: Hashable, Sendable {
    /// The root metadata from the registered one on, by version.
    public var roots: [Int: [UInt8]] = [:]
    /// The metadata of the other roles, by file name, such as `targets.json`.
    public var files: [String: [UInt8]] = [:]
    /// The record of the last refresh; `nil` if unknown.
    public var record: TrustRecord?

    /// Creates the state before the first refresh.
    public init() {}
}

/// The record of the last refresh that ended with a verified manifest.
public struct TrustRecord: Hashable, Sendable, Codable {
    /// The URL of the timestamp metadata.
    public var url: String
    /// The strong entity tag of the response, for conditional requests.
    public var entityTag: String?
    /// The time of the refresh, in seconds since 1970.
    public var verifiedAt: Int64
    /// The times at which the files were first received, in seconds since 1970, by file name.
    public var receivedAt: [String: Int64]

    /// Creates a record from its parts.
    public init(
        url: String,
        entityTag: String?,
        verifiedAt: Int64,
        receivedAt: [String: Int64]
    ) {
        self.url = url
        self.entityTag = entityTag
        self.verifiedAt = verifiedAt
        self.receivedAt = receivedAt
    }

    /// `true` if all times are in the range of records.
    fileprivate var isInRange: Bool {
        ([verifiedAt] + receivedAt.values).allSatisfy { RecordLimits.times.contains(Int($0)) }
    }
}

extension ContainerReader {
    /// Returns the signed metadata stored for an application; damaged files count as missing.
    public func storedTrust(
        for application: ApplicationID
    ) throws(ContainerError) -> StoredTrust {
        var trust = StoredTrust()
        let name = ContainerLayout.trust(of: application)
        guard let directory = try trustDirectory(name) else { return trust }
        for file in try ContainerLayout.metadataFiles(in: directory) {
            trust.files[file.string] = try ContainerLayout.metadata(file, in: directory)
        }
        let record = try JSONRecord.readIfIntact(
            TrustRecord.self,
            at: name.appending(ContainerLayout.refresh),
            in: root
        )
        trust.record = record.flatMap { $0.isInRange ? $0 : nil }
        guard let roots = try trustDirectory(name.appending(ContainerLayout.roots)) else {
            return trust
        }
        for file in try ContainerLayout.metadataFiles(in: roots) {
            guard let version = Int(file.string.dropLast(5)) else { continue }
            trust.roots[version] = try ContainerLayout.metadata(file, in: roots)
        }
        return trust
    }

    /// Returns the file of the newest root metadata that is stored for the application; `nil` if there is none.
    package func newestRootFile(
        of application: ApplicationID
    ) throws(ContainerError) -> FilePath? {
        guard let version = try storedTrust(for: application).roots.keys.max() else { return nil }
        return root.path.pushing(ContainerLayout.trust(of: application))
            .appending(ContainerLayout.roots)
            .appending(FilePath.Component(known: "\(version).json"))
    }

    /// Returns whether signed metadata is stored for the application.
    public func hasTrust(for application: ApplicationID) throws(ContainerError) -> Bool {
        try trustDirectory(ContainerLayout.trust(of: application)) != nil
    }

    /// Returns whether signed metadata is stored for any application.
    package func hasTrust() throws(ContainerError) -> Bool {
        let directory = try trustDirectory(FilePath(ContainerLayout.trust))
        return try ContainerError.wrapping { () throws(FileError) in
            try directory?.entries().isEmpty == false
        }
    }

    private func trustDirectory(_ name: FilePath) throws(ContainerError) -> Directory? {
        do throws(FileError) {
            return try root.directory(name)
        } catch {
            // `doctor` reports an entry that is not a directory, and the next run replaces it.
            guard error.errno == .notDirectory || error.errno == .tooManySymbolicLinkLevels else {
                throw .file(error)
            }
            return nil
        }
    }
}

extension Container {
    /// Stores verified metadata of an application, and the manifest that it names.
    ///
    /// Replaces each file atomically, and syncs it before the next one; the manifest comes last. After a crash
    /// in between, the stored files do not match, which counts as missing: the next run asks the server again.
    /// If two processes store concurrently, `isNewer` lets the newer metadata stay as a whole.
    ///
    /// - Parameters:
    ///   - trust: The metadata.
    ///   - manifest: The manifest that was verified with it; `nil` leaves the stored one.
    ///   - application: The application.
    ///   - isNewer: Returns whether the stored metadata is newer; called while the lock is held. If so, it
    ///     stays with its manifest, and only missing root metadata is added.
    /// - Returns: The newer metadata that stays; `nil` if `trust` was stored.
    /// - Throws: ``ContainerError/file(_:)`` if writing fails; the metadata before then stays or counts as
    ///   missing.
    @discardableResult public func store(
        _ trust: StoredTrust,
        and manifest: StoredManifest? = nil,
        for application: ApplicationID,
        unless isNewer: (StoredTrust) -> Bool = { _ in false }
    ) throws(ContainerError) -> StoredTrust? {
        let lock = try lockManifests()
        var stored = try reader.storedTrust(for: application)
        let isKept = isNewer(stored)
        let directory = try ContainerError.wrapping { () throws(FileError) in
            let name = ContainerLayout.trust(of: application)
            for path in [FilePath(ContainerLayout.trust), name] {
                if let status = try root.status(path), status.kind != .directory {
                    try root.removeTree(at: path)
                }
                _ = try root.makeDirectory(path, exactly: .directory)
            }
            let directory = try root.makeDirectory(name, exactly: .directory)
            try directory.storeRoots(trust.roots)
            if !isKept { try directory.store(trust.files) }
            return directory
        }
        guard !isKept else {
            stored.roots.merge(trust.roots) { _, new in new }
            return stored
        }
        if let record = trust.record {
            try JSONRecord.write(
                record,
                to: ContainerLayout.refresh,
                in: directory,
                // Without this record, requests are unconditional.
                durably: false
            )
        }
        if let manifest { try store(manifest, for: application) }
        _ = consume lock
        return nil
    }

    /// Removes the metadata of an application that is not registered with a root.
    public func removeTrust(of application: ApplicationID) throws(ContainerError) {
        try ContainerError.wrapping { () throws(FileError) in
            guard let trust = try root.directory(FilePath(ContainerLayout.trust)) else { return }
            _ = try trust.removeTree(application.component)
        }
    }
}

extension Directory {
    /// Stores root metadata by version; keeps other stored versions.
    fileprivate func storeRoots(_ roots: [Int: [UInt8]]) throws(FileError) {
        guard !roots.isEmpty else { return }
        let directory = try makeDirectory(
            FilePath(ContainerLayout.roots),
            exactly: .directory
        )
        for (version, bytes) in roots.sorted(by: { $0.key < $1.key }) {
            try directory.replace("\(version).json", with: bytes)
        }
    }

    /// Stores the metadata of roles, and removes that of other roles.
    fileprivate func store(_ files: [String: [UInt8]]) throws(FileError) {
        for name in try ContainerLayout.metadataNames(in: self) where files[name.string] == nil {
            try removeTree(name)
        }
        // Last, since the timestamp refers to the other files.
        let last = "timestamp.json"
        for (name, bytes) in files.sorted(by: { $0.key < $1.key }) where name != last {
            try replace(name, with: bytes)
        }
        if let bytes = files[last] { try replace(last, with: bytes) }
    }

    private func replace(_ name: String, with bytes: [UInt8]) throws(FileError) {
        let component = FilePath.Component(known: name)
        let path = FilePath(component)
        if let status = try status(path) {
            if status.kind == .directory { try removeTree(component) }
            if status.kind == .file, status.size == Int64(bytes.count),
                try self.bytes(of: path, limit: bytes.count) == bytes
            {
                return
            }
        }
        try write(bytes, to: component, durably: true, exactly: .file)
    }

    fileprivate func removeTree(at path: FilePath) throws(FileError) {
        guard let name = path.lastComponent,
            let parent = try directory(path.removingLastComponent())
                ?? (path.components.count == 1 ? self : nil)
        else { return }
        try parent.removeTree(name)
    }
}

extension ContainerLayout {
    /// Returns the metadata directory of an application, relative to the container.
    static func trust(of application: ApplicationID) -> FilePath {
        FilePath(trust).appending(application.component)
    }

    /// The directory of root metadata, in the metadata directory of an application.
    static let roots: FilePath.Component = "root"
    /// The record of the last refresh; no file of a role has this name.
    static let refresh: FilePath.Component = "@refresh.json"

    /// Returns the names of the metadata files in a directory, without the record of the last refresh.
    static func metadataNames(in directory: Directory) throws(FileError) -> [FilePath.Component] {
        try directory.entries().map(\.name)
            .filter {
                $0.string.hasSuffix(".json") && $0 != refresh && !Directory.isTemporary($0)
            }
            .sorted { $0.string < $1.string }
    }

    fileprivate static func metadataFiles(
        in directory: Directory
    ) throws(ContainerError) -> [FilePath.Component] {
        try ContainerError.wrapping { () throws(FileError) in try metadataNames(in: directory) }
    }

    /// Reads a metadata file; returns `nil` if it is not a regular file or is too large.
    fileprivate static func metadata(
        _ name: FilePath.Component,
        in directory: Directory
    ) throws(ContainerError) -> [UInt8]? {
        do throws(FileError) {
            return try directory.bytes(of: FilePath(name), limit: metadataLimit)
        } catch {
            guard error.isWrongKindOrSize else { throw .file(error) }
            return nil
        }
    }

    /// The maximum size of a metadata file, in bytes: more than is accepted from a server.
    private static let metadataLimit = 16 << 20
}
