public import StageModel
import StageSystem
public import SystemPackage

/// What a generation's `pack.json` says of it.
public struct StagedPack: Hashable, Sendable, Codable {
    /// The pack.
    public var id: PackID
    /// The publisher's version.
    public var version: Int
    /// The digest of the archive that the content came from.
    public var contentDigest: Digest
    /// The size of that archive.
    public var archiveSize: ByteCount
    /// The sum of the sizes of the files.
    public var installedSize: ByteCount
    /// How many files and symbolic links there are.
    public var fileCount: Int
    /// The application whose manifest named the pack.
    public var application: ApplicationID
    /// The revision of that manifest.
    public var manifestRevision: Int
    /// The URL that the archive came from.
    public var source: String
    /// When the content was staged, in seconds since 1970.
    public var stagedAt: Int64
    /// The name of the generation of other content that was current before; `nil` for none.
    public internal(set) var replaced: String?

    private enum CodingKeys: String, CodingKey {
        case id, version, archiveSize, installedSize, fileCount, application, manifestRevision
        case source, stagedAt, replaced
        case contentDigest = "archiveDigest"
    }

    /// Creates the record of a pack that `manifest` names.
    public init(_ pack: Pack, of manifest: Manifest, source: String, stagedAt: Int64) {
        id = pack.id
        version = pack.version
        contentDigest = pack.contentDigest
        archiveSize = pack.downloadSize
        installedSize = pack.installedSize
        fileCount = pack.fileCount
        application = manifest.application
        manifestRevision = manifest.revision
        self.source = source
        self.stagedAt = stagedAt
        replaced = nil
    }

    /// Whether the staged content is that of `pack`.
    ///
    /// Digests decide, not versions: a pack published twice under one version is two packs.
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
        archiveSize = ByteCount(try members.number(.archiveSize, in: 0...Int.max))
        installedSize = ByteCount(try members.number(.installedSize, in: 0...Int.max))
        fileCount = try members.number(.fileCount, in: .min ... .max)
        application = try members.text(.application) { text throws(ValueError) in
            try ApplicationID(text)
        }
        manifestRevision = try members.number(.manifestRevision, in: .min ... .max)
        source = try members.string(.source)
        stagedAt = Int64(try members.number(.stagedAt, in: .min ... .max))
        replaced = members.has(.replaced) ? try members.string(.replaced) : nil
    }
}

extension StagedPack {
    /// The record as JSON, on one line.
    ///
    /// Foundation's encoder takes a hundred thousand instructions for it, and one is written for each pack.
    var json: [UInt8] {
        var members: [JSONTree.Member] = [
            .init("application", .string(application.text)),
            .init("archiveDigest", .string(contentDigest.description)),
            .init("archiveSize", .integer(archiveSize.rawValue)),
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

/// Names one generation of a pack, as a directory of `generations/<id>/`.
public struct GenerationName: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// The name of the directory.
    public let component: FilePath.Component

    /// Makes a name that holds the version and the digest of the archive, so that reading the link of
    /// a pack tells what is staged.
    ///
    /// `attempt` tells a repaired generation from the one it replaces.
    public init(version: Int, digest: Digest, attempt: Int = 1) {
        let base = "\(version)-\(digest)"
        let text = attempt == 1 ? base : "\(base)-\(attempt)"
        component = FilePath.Component(text) ?? Self.fallback
    }

    /// Takes a name that was found in a container.
    public init(_ component: FilePath.Component) {
        self.component = component
    }

    private static let fallback = FilePath.Component(stringLiteral: "unnamed")

    /// What a generation was made from.
    public typealias Content = (version: Int, contentDigest: Digest)

    /// The version and the digest of the archive, or `nil` if the name is not one of ours.
    public var content: Content? { Self.content(component.string[...]) }

    /// Reads what a generation was made from in the text of its name, or returns `nil` if it is not one of ours.
    static func content(_ name: Substring) -> Content? {
        let hyphen = UInt8(ascii: "-")
        guard let end = name.utf8.firstIndex(of: hyphen), let version = Int(name[..<end]) else {
            return nil
        }
        let rest = name[end...].dropFirst()
        let digits = rest[..<(rest.utf8.firstIndex(of: hyphen) ?? rest.endIndex)]
        // Any other text is not a digest.
        guard let digest = try? Digest(hexadecimal: String(digits)) else { return nil }
        return (version, digest)
    }

    /// Whether the generation was made from the archive of `pack`.
    ///
    /// Digests decide, not versions alone: a pack published twice under one version is two packs.
    public func holds(_ pack: Pack) -> Bool {
        guard let content else { return false }
        return content.version == pack.version && content.contentDigest == pack.contentDigest
    }

    /// Whether both were made from one archive: the one is a repaired copy of the other.
    func hasContent(of other: GenerationName) -> Bool {
        guard let content, let others = other.content else { return false }
        return content == others
    }

    /// The name itself.
    public var description: String { component.string }

    /// Orders names as their texts.
    public static func < (left: Self, right: Self) -> Bool {
        left.description < right.description
    }
}
