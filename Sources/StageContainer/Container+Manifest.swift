public import StageModel
import StageSystem
import SystemPackage

/// The manifest that was accepted last for an application, and where it came from.
public struct StoredManifest: Hashable, Sendable, Codable {
    /// The URL that it was asked for at.
    public var url: String
    /// The URL that answered, after redirects: what relative URLs of packs are relative to.
    public var resolvedURL: String
    /// The strong entity tag that came with it, for asking whether it changed.
    public var entityTag: String?
    /// When it was received, in seconds since 1970.
    public var receivedAt: Int64
    /// The manifest's text, as it was received.
    public var text: String
    /// The application, of a manifest in a format of the application's own; `nil` for StagePack's format.
    public var ownFormatOf: ApplicationID?

    /// Creates the record of a manifest.
    public init(
        url: String,
        resolvedURL: String,
        entityTag: String?,
        receivedAt: Int64,
        text: String,
        ownFormatOf: ApplicationID? = nil
    ) {
        self.url = url
        self.resolvedURL = resolvedURL
        self.entityTag = entityTag
        self.receivedAt = receivedAt
        self.text = text
        self.ownFormatOf = ownFormatOf
    }

    /// Returns the manifest as StagePack reads it.
    ///
    /// Only the extension reads a format of the application's own: here such a manifest has no packs, and revision 0, which
    /// compares with no other. Packs that were staged for its application before are not obsolete because of that: see
    /// ``ContainerReader/keptPacks()``.
    ///
    /// - Throws: ``ManifestError`` if the text is not a manifest in StagePack's format and has to be.
    public func manifest() throws(ManifestError) -> Manifest {
        if let ownFormatOf {
            return Manifest(application: ownFormatOf, revision: 0, packs: [])
        }
        return try Manifest(json: Array(text.utf8))
    }
}

extension StoredManifest: JSONReadable {
    package init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: CodingKeys.self)
        url = try members.string(.url)
        resolvedURL = try members.string(.resolvedURL)
        entityTag = members.has(.entityTag) ? try members.string(.entityTag) : nil
        receivedAt = Int64(try members.number(.receivedAt, in: .min ... .max))
        text = try members.string(.text)
        ownFormatOf =
            members.has(.ownFormatOf)
            ? try members.text(.ownFormatOf) { text throws(ValueError) in
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

    /// Keeps an accepted manifest, replacing the one before in one step.
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
    /// Returns the manifest that was accepted last for the application, or `nil` if none was or what is
    /// there is damaged: the server is asked anew then.
    public func storedManifest(
        for application: ApplicationID
    ) throws(ContainerError) -> StoredManifest? {
        let name = FilePath(ContainerLayout.manifest).appending(application.recordName)
        return try JSONRecord.readIfWhole(parsing: StoredManifest.self, at: name, in: root)
    }

    /// Returns the applications that a manifest was accepted for, in order.
    public func applications() throws(ContainerError) -> [ApplicationID] {
        try applications(recordedIn: ContainerLayout.manifest)
    }

    func applications(
        recordedIn name: FilePath.Component
    ) throws(ContainerError) -> [ApplicationID] {
        try ContainerError.wrapping { () throws(FileError) in
            guard let directory = try root.directory(FilePath(name)) else { return [] }
            // Names that are no application's are files about to be put in place.
            return try directory.entries().filter { $0.name.string.hasSuffix(".json") }
                .compactMap { try? ApplicationID(String($0.name.string.dropLast(5))) }.sorted()
        }
    }
}

extension ApplicationID {
    /// The name of the application's record, in any directory of records.
    var recordName: FilePath.Component {
        guard let name = FilePath.Component("\(text).json") else {
            preconditionFailure("an identifier is a file name")
        }
        return name
    }
}
