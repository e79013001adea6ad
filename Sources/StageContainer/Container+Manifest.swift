import Glibc
public import StageModel
import StageSystem
import SystemPackage

/// The manifest that was accepted last for an application, and its origin.
public struct StoredManifest: Hashable, Sendable, Codable {
    /// The URL that was requested.
    public var url: String
    /// The URL that responded, after redirects: the base of relative URLs in the manifest.
    public var resolvedURL: String
    /// The strong entity tag of the response, for conditional requests.
    public var entityTag: String?
    /// The time of receipt, in seconds since 1970.
    public var receivedAt: Int64
    /// The text of the manifest as received.
    public var text: String
    /// The application, if its manifest is in a format of its own; `nil` for StagePack's format.
    public var customFormatApplication: ApplicationID?

    private enum CodingKeys: String, CodingKey {
        case url, resolvedURL, entityTag, receivedAt, text
        case customFormatApplication = "ownFormatOf"
    }

    /// Creates the record of a manifest.
    public init(
        url: String,
        resolvedURL: String,
        entityTag: String?,
        receivedAt: Int64,
        text: String,
        customFormatApplication: ApplicationID? = nil
    ) {
        self.url = url
        self.resolvedURL = resolvedURL
        self.entityTag = entityTag
        self.receivedAt = receivedAt
        self.text = text
        self.customFormatApplication = customFormatApplication
    }

    /// Decodes the manifest.
    ///
    /// Only the application's extension can read a format of the application's own. Such a manifest is
    /// returned without packs and with revision 0, which does not compare with other revisions. Packs staged
    /// earlier for the application do not become obsolete by that: see ``ContainerReader/keptPacks(ignoring:)``.
    ///
    /// - Throws: `ManifestError` if the text should be in StagePack's format and is not valid, or if it has more combining
    ///   characters in a row than a record of a container may have.
    public func manifest() throws(ManifestError) -> Manifest {
        if let customFormatApplication {
            let limit = CombiningSequence.quotationLimit
            guard !CombiningSequence.exceedsLimit(in: text, limit: limit) else {
                throw .notJSON(
                    "expected at most \(limit) combining characters in a row, found more"
                )
            }
            return Manifest(application: customFormatApplication, revision: 0, packs: [])
        }
        return try Manifest(json: Array(text.utf8))
    }

    /// Decodes the manifest of an application.
    ///
    /// - Throws: `ManifestError` if the text should be in StagePack's format and is not valid, or if it is the
    ///   manifest of another application, whose record was put under a wrong name.
    public func manifest(of application: ApplicationID) throws(ManifestError) -> Manifest {
        try manifest().checked(isOf: application)
    }

    /// Returns whether the record is under a wrong name: its manifest is that of another application than
    /// `application`.
    ///
    /// Returns `false` if the manifest cannot be decoded.
    package func isMisplaced(under application: ApplicationID) -> Bool {
        if seemsToBe(of: application) { return false }
        guard let manifest = try? manifest() else { return false }
        return manifest.application != application
    }

    /// Returns whether the first member `application` of the text, at any depth, names this application.
    ///
    /// Decoding a manifest of 1,000 packs takes longer than all else that a run with nothing to do needs. Code
    /// that decodes the manifest compares its application.
    fileprivate func seemsToBe(of application: ApplicationID) -> Bool {
        if let customFormatApplication { return customFormatApplication == application }
        let member = "\"application\""
        // `firstRange(of:)` takes a hundred nanoseconds per byte. A NUL ends this search: no valid manifest has one.
        let offset = unsafe text.withCString { start in
            unsafe strstr(start, member).map { unsafe UnsafePointer(start).distance(to: $0) }
        }
        guard let offset else { return false }
        let value = text.utf8.dropFirst(offset + member.utf8.count)
            .drop { " \t\r\n:".utf8.contains($0) }
        return value.starts(with: "\"\(application)\"".utf8)
    }
}

extension Manifest {
    /// Returns the manifest, after checking that it is that of `expected`.
    func checked(isOf expected: ApplicationID) throws(ManifestError) -> Manifest {
        guard application == expected else {
            let fault = ValueError(expected: "'\(expected)'", found: "'\(application)'")
            throw .invalid(member: "application", fault)
        }
        return self
    }
}

extension StoredManifest: JSONReadable {
    package init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: CodingKeys.self)
        url = try members.string(.url)
        resolvedURL = try members.string(.resolvedURL)
        entityTag = members.has(.entityTag) ? try members.string(.entityTag) : nil
        receivedAt = Int64(try members.number(.receivedAt, in: RecordLimits.times))
        text = try members.string(.text)
        customFormatApplication =
            members.has(.customFormatApplication)
            ? try members.text(.customFormatApplication) { text throws(ValueError) in
                try ApplicationID(text)
            } : nil
    }
}

extension Container {
    /// Returns the manifest that was accepted last for the application, or `nil` if none was.
    public func storedManifest(
        for application: ApplicationID
    ) throws(ContainerError) -> StoredManifest? {
        try reader.storedManifest(for: application)
    }

    /// Stores an accepted manifest, unless the stored one is newer.
    ///
    /// Concurrent processes never replace a newer manifest by an older one.
    ///
    /// - Parameters:
    ///   - manifest: The manifest.
    ///   - application: The application.
    ///   - isNewer: Returns whether the stored manifest is newer; called while the lock is held.
    /// - Returns: The newer manifest that stays; `nil` if `manifest` was stored.
    /// - Throws: ``ContainerError/file(_:)`` if the container cannot be read or written.
    public func store(
        _ manifest: StoredManifest,
        for application: ApplicationID,
        unless isNewer: (StoredManifest) -> Bool
    ) throws(ContainerError) -> StoredManifest? {
        let lock = try lockManifests()
        if let stored = try storedManifest(for: application), isNewer(stored) { return stored }
        try store(manifest, for: application)
        _ = consume lock
        return nil
    }

    /// Acquires the lock that is held while manifests and their signed metadata are replaced.
    func lockManifests() throws(ContainerError) -> FileLock {
        do throws(FileError) {
            // The ID of a pack never begins with a dot, so the name is not that of a pack's lock.
            return try waitForLock(".trust", mode: .exclusive)
        } catch {
            throw .file(error)
        }
    }

    /// Stores an accepted manifest atomically and durably, in place of the one before.
    public func store(
        _ manifest: StoredManifest,
        for application: ApplicationID
    ) throws(ContainerError) {
        try JSONRecord.write(
            manifest,
            to: application.recordName,
            in: manifests,
            durably: true
        )
    }
}

extension ContainerReader {
    /// Returns the manifest that was accepted last for the application; `nil` if there is none or its record
    /// is damaged, so that the server is asked again.
    public func storedManifest(
        for application: ApplicationID
    ) throws(ContainerError) -> StoredManifest? {
        let name = FilePath(ContainerLayout.manifest).appending(application.recordName)
        return try JSONRecord.readIfIntact(parsing: StoredManifest.self, at: name, in: root)
    }

    /// Returns the stored manifests of all applications, without those of damaged records.
    ///
    /// Reads a file once, however many names (hard links) it has. Leaves out records after the first ones with
    /// ``ManifestLimits/storedByteCount`` bytes together, which ``faults()`` reports.
    package func storedManifests() throws(ContainerError) -> [ApplicationID: StoredManifest] {
        var cache = ManifestCache()
        return try storedManifests(reusing: &cache)
    }

    /// Returns the manifests of ``storedManifests()``, and reads only those that are not in the cache.
    ///
    /// The caller starts the pass (``ManifestCache/begin(at:)``).
    func storedManifests(
        reusing cache: inout ManifestCache
    ) throws(ContainerError) -> [ApplicationID: StoredManifest] {
        var found: [ApplicationID: StoredManifest] = [:]
        // The record of each file; `nil` for one that is left out or damaged.
        var known: [FileIdentity: StoredManifest?] = [:]
        var budget = RecordBudget()
        for application in try applications() {
            let name = FilePath(ContainerLayout.manifest).appending(application.recordName)
            let identity = try ContainerError.wrapping { () throws(FileError) in
                try root.identity(of: name)
            }
            guard let identity else { continue }
            if known[identity] == nil {
                var record: StoredManifest?
                if budget.take(identity.size) {
                    record = try cache.record(of: identity) { () throws(ContainerError) in
                        try storedManifest(for: application)
                    }
                }
                known[identity] = .some(record)
            }
            found[application] = known[identity] ?? nil
        }
        return found
    }

    /// Returns the applications with a stored manifest, in order.
    public func applications() throws(ContainerError) -> [ApplicationID] {
        try applications(recordedIn: ContainerLayout.manifest)
    }

    func applications(
        recordedIn name: FilePath.Component
    ) throws(ContainerError) -> [ApplicationID] {
        try ContainerError.wrapping { () throws(FileError) in
            guard let directory = try root.directory(FilePath(name)) else { return [] }
            // Ignores temporary files.
            return try directory.entries().filter { $0.path.string.hasSuffix(".json") }
                .compactMap { try? ApplicationID(String($0.path.string.dropLast(5))) }.sorted()
        }
    }
}

/// Search for records under wrong names, which decodes equal records once.
package struct MisplacedRecords {
    /// Values in which most records differ.
    private struct Key: Hashable {
        private let url: String
        private let byteCount: Int
        private let start: [UInt8]

        init(_ record: StoredManifest) {
            url = record.url
            byteCount = record.text.utf8.count
            // All of a text would be hashed for each name (hard link) of its file.
            start = Array(record.text.utf8.prefix(64 << 10))
        }
    }

    private var known: [Key: [(record: StoredManifest, application: ApplicationID?)]] = [:]

    /// Creates a search.
    package init() {}

    /// Returns whether the record is that of another application than `application`.
    package mutating func contains(
        _ record: StoredManifest,
        under application: ApplicationID
    ) -> Bool {
        if record.seemsToBe(of: application) { return false }
        let key = Key(record)
        let owner: ApplicationID?
        if let found = known[key]?.first(where: { $0.record == record }) {
            owner = found.application
        } else {
            owner = (try? record.manifest())?.application
            known[key, default: []].append((record, owner))
        }
        // A manifest that cannot be decoded is of no other application.
        return owner.map { $0 != application } ?? false
    }
}

/// Limit of the total size of the records that one command decodes.
struct RecordBudget {
    private var rest = Int64(ManifestLimits.storedByteCount)

    /// Counts the bytes of a file that was not counted before, and returns whether it is within the limit.
    mutating func take(_ size: Int64) -> Bool {
        guard size <= rest else { return false }
        rest -= size
        return true
    }
}

extension ApplicationID {
    /// The name of the application's record in a directory of records.
    var recordName: FilePath.Component { FilePath.Component(known: "\(text).json") }
}
