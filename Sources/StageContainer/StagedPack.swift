public import StageModel
import StageSystem
public import SystemPackage

/// The record of a generation, in its `pack.json`.
public struct StagedPack: Hashable, Sendable, Codable {
    /// The pack.
    public var id: PackID
    /// The publisher's version.
    public var version: Int
    /// The content digest of the pack: of its archive or its index.
    public var contentDigest: Digest
    /// The bytes to transfer for the whole pack.
    public var archiveSize: ByteCount
    /// The total size of the files, in bytes.
    public var installedSize: ByteCount
    /// The number of files and symbolic links.
    public var fileCount: Int
    /// The number of directories, without that of the pack itself; 0 until the content is complete if the manifest does not
    /// state it.
    package var directoryCount: Int
    /// The application whose manifest named the pack.
    public var application: ApplicationID
    /// The revision of that manifest.
    public var manifestRevision: Int
    /// The URL that the content came from.
    public var source: String
    /// The time of staging, in seconds since 1970.
    public var stagedAt: Int64
    /// The name of the previously current generation with other content; `nil` if there was none.
    public internal(set) var replaced: String?

    private enum CodingKeys: String, CodingKey {
        case id, version, archiveSize, installedSize, fileCount, directoryCount, application
        case manifestRevision, source, stagedAt, replaced
        case contentDigest = "archiveDigest"
    }

    /// Creates the record of a pack in `manifest`.
    public init(_ pack: Pack, of manifest: Manifest, source: String, stagedAt: Int64) {
        id = pack.id
        version = pack.version
        contentDigest = pack.contentDigest
        archiveSize = pack.downloadSize
        installedSize = pack.installedSize
        fileCount = pack.fileCount
        directoryCount = pack.directoryCount ?? 0
        application = manifest.application
        manifestRevision = manifest.revision
        self.source = source
        self.stagedAt = stagedAt
        replaced = nil
    }

    /// Returns whether the record has the version and the content digest of `pack`.
    ///
    /// A pack that is published twice under one version has two digests.
    public func holds(_ pack: Pack) -> Bool {
        contentDigest == pack.contentDigest && version == pack.version
    }
}

extension StagedPack: JSONReadable {
    package init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: CodingKeys.self)
        id = try members.text(.id) { text throws(ValueError) in try PackID(text) }
        version = try members.number(.version, in: .min ... .max)
        contentDigest = try members.digest(.contentDigest)
        archiveSize = try members.byteCount(.archiveSize, atMost: RecordLimits.downloadSize)
        installedSize = try members.byteCount(
            .installedSize,
            atMost: ManifestLimits.installedSize
        )
        fileCount = try members.number(.fileCount, in: 0...ManifestLimits.fileCount)
        directoryCount = try members.number(.directoryCount, in: 0...RecordLimits.directories)
        application = try members.text(.application) { text throws(ValueError) in
            try ApplicationID(text)
        }
        manifestRevision = try members.number(.manifestRevision, in: .min ... .max)
        source = try members.string(.source)
        stagedAt = Int64(try members.number(.stagedAt, in: RecordLimits.times))
        replaced = members.has(.replaced) ? try members.string(.replaced) : nil
    }
}

extension StagedPack {
    /// The record as one line of JSON.
    ///
    /// One is written per pack; Foundation's encoder would take a hundred thousand instructions for each.
    var json: [UInt8] {
        var members: [JSONTree.Member] = [
            .init("application", .string(application.text)),
            .init("archiveDigest", .string(contentDigest.description)),
            .init("archiveSize", .integer(archiveSize.rawValue)),
            .init("directoryCount", .integer(Int64(directoryCount))),
            .init("fileCount", .integer(Int64(fileCount))),
            .init("id", .string(id.text)),
            .init("installedSize", .integer(installedSize.rawValue)),
            .init("manifestRevision", .integer(Int64(manifestRevision))),
            .init("source", .string(source)),
            .init("stagedAt", .integer(stagedAt)),
            .init("version", .integer(Int64(version))),
        ]
        if let replaced { members.append(.init("replaced", .string(replaced))) }
        return JSONTree.object(members).line
    }
}

/// The name of a pack's generation: a directory of `generations/<id>/`.
public struct GenerationName: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// The name of the directory.
    public let component: FilePath.Component

    /// Creates a name that contains the version and the content digest, so that the link of a pack identifies
    /// the staged content.
    ///
    /// `attempt` distinguishes a repaired generation from the one that it replaces.
    public init(version: Int, digest: Digest, attempt: Int = 1) {
        let base = "\(version)-\(digest)"
        let text = attempt == 1 ? base : "\(base)-\(attempt)"
        component = FilePath.Component(text) ?? Self.fallback
    }

    /// Creates the value from a name in a container.
    public init(_ component: FilePath.Component) {
        self.component = component
    }

    private static let fallback = FilePath.Component(stringLiteral: "unnamed")

    /// Version and content digest of a generation.
    public typealias Content = (version: Int, contentDigest: Digest)

    /// The version and content digest, or `nil` if the name has another form.
    public var content: Content? { Self.content(component.string[...]) }

    /// Parses a name; returns `nil` if it has another form.
    static func content(_ name: Substring) -> Content? {
        let hyphen = UInt8(ascii: "-")
        guard let end = name.firstIndex(ofByte: hyphen), let version = Int(name[..<end]) else {
            return nil
        }
        let rest = name[end...].dropFirst()
        let digits = rest[..<(rest.firstIndex(ofByte: hyphen) ?? rest.endIndex)]
        // Names with other text have another form.
        guard let digest = try? Digest(hexadecimal: String(digits)) else { return nil }
        return (version, digest)
    }

    /// Returns whether the name has the version and the content digest of `pack`.
    ///
    /// A pack that is published twice under one version has two digests.
    public func holds(_ pack: Pack) -> Bool {
        guard let content else { return false }
        return content.version == pack.version && content.contentDigest == pack.contentDigest
    }

    /// The number that distinguishes copies of one version and content digest, from 1.
    var attempt: Int {
        let parts = component.string.split(separator: "-")
        return parts.count == 3 ? Int(parts[2]) ?? 1 : 1
    }

    /// Returns whether both have the same version and content digest: then one is a repaired copy of the
    /// other.
    func hasContent(of other: GenerationName) -> Bool {
        guard let content, let others = other.content else { return false }
        return content == others
    }

    /// The text of the name.
    public var description: String { component.string }

    /// Orders names by their text.
    public static func < (left: Self, right: Self) -> Bool {
        left.description < right.description
    }
}
