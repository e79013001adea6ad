/// What a publisher offers to one application: its packs, their policies and where they are.
public struct Manifest: Hashable, Sendable {
    /// The major version of the format that this code reads.
    public static let formatVersion = 1

    /// The application that the packs are for.
    public var application: ApplicationID
    /// Counts the publisher's changes; never goes back.
    public var revision: Int
    /// Which versions of the application the manifest holds for.
    ///
    /// `nil` stands for every version.
    public var applicationVersion: VersionRequirement?
    /// The mirrors, in order of preference.
    ///
    /// Where there are none, URLs are relative to the manifest's own.
    public var baseURLs: [String]
    /// The packs, in the order of the manifest.
    public var packs: [Pack]

    /// Creates a manifest from its parts.
    public init(
        application: ApplicationID,
        revision: Int,
        applicationVersion: VersionRequirement? = nil,
        baseURLs: [String] = [],
        packs: [Pack]
    ) {
        self.application = application
        self.revision = revision
        self.applicationVersion = applicationVersion
        self.baseURLs = baseURLs
        self.packs = packs
    }

    /// The pack with this id.
    public subscript(id: PackID) -> Pack? { packs.first { $0.id == id } }
}

/// One asset pack as the manifest offers it.
public struct Pack: Hashable, Sendable {
    /// The name of the pack.
    public var id: PackID
    /// The publisher's version; a higher one is newer.
    public var version: Int
    /// When the pack is fetched.
    public var policy: DownloadPolicy
    /// The pack as one archive; `nil` for a pack that has an index alone.
    ///
    /// Beside an index it is another way to the same files, which takes fewer bytes where most of them are
    /// missing; what it unpacks to is compared with the index.
    public var archive: PackArchive?
    /// The pack as an index with bundles; `nil` for a pack that is an archive alone.
    public var index: PackIndex?
    /// The sum of the sizes of the pack's files.
    public var installedSize: ByteCount
    /// How many regular files and symbolic links the pack has; directories are not counted.
    public var fileCount: Int
    /// Orders packs of one policy: higher comes first.
    public var priority: Int
    /// Which versions of the application the pack is for; `nil` stands for every version.
    public var applicationVersion: VersionRequirement?
    /// Whatever the publisher wants to tell the application, as JSON text; `nil` for nothing.
    public var userInfo: String?

    /// Whether the pack is for this version of the application; where that is not known, it is.
    public func isFor(applicationVersion version: String?) -> Bool {
        guard let version, let applicationVersion else { return true }
        return applicationVersion.isMet(by: version)
    }

    /// Creates a pack from its parts; it has to have an archive or an index.
    public init(
        id: PackID,
        version: Int,
        policy: DownloadPolicy,
        archive: PackArchive?,
        index: PackIndex? = nil,
        installedSize: ByteCount,
        fileCount: Int
    ) {
        precondition(archive != nil || index != nil, "a pack is fetched from somewhere")
        self.id = id
        self.version = version
        self.policy = policy
        self.archive = archive
        self.index = index
        self.installedSize = installedSize
        self.fileCount = fileCount
        priority = 0
        applicationVersion = nil
        userInfo = nil
    }
}

extension Pack {
    /// What identifies the content of the pack, whoever serves it: the digest of the archive, or that of
    /// the index, which names every byte.
    public var contentDigest: Digest {
        guard let digest = index?.contentDigest ?? archive?.digest else {
            preconditionFailure("a pack is fetched from somewhere")
        }
        return digest
    }

    /// The bytes that staging the pack transfers where nothing of it is here: of an indexed pack the index,
    /// and its bundles or its archive, whichever is less.
    public var downloadSize: ByteCount {
        guard let index else { return archive?.size ?? .zero }
        return index.size + min(index.bundleSize, archive?.size ?? index.bundleSize)
    }

    /// The digests by which what was received of the pack is known: that of its content, and that of its
    /// archive.
    public var downloads: [Digest] {
        guard index != nil, let archive else { return [contentDigest] }
        return [contentDigest, archive.digest]
    }

    /// The URLs of the manifest that the pack is fetched from.
    public var urls: [String] { [index?.url, archive?.url].compactMap(\.self) }
}

/// The index that tells what a pack holds, and where each byte of it is.
public struct PackIndex: Hashable, Sendable {
    /// Where it is: absolute, or relative to each mirror in turn; its bundles are `../b/<SHA-256>` from
    /// there.
    public var url: String
    /// Its exact size on the wire.
    public var size: ByteCount
    /// The digest of its bytes on the wire.
    public var digest: Digest
    /// Its size when it is decompressed.
    public var contentSize: ByteCount
    /// The digest of what it decompresses to.
    public var contentDigest: Digest
    /// The bytes of bundles that a first installation transfers.
    public var bundleSize: ByteCount
    /// The same index as differences from older ones.
    public var deltas: [Delta]

    /// An index as what changed since an older one.
    public struct Delta: Hashable, Sendable {
        /// The ``PackIndex/contentDigest`` of the older one.
        public var base: Digest
        /// Where it is.
        public var url: String
        /// Its exact size on the wire.
        public var size: ByteCount
        /// The digest of its bytes on the wire.
        public var digest: Digest
        /// Frames of the pack, shorter for whoever has the older version; `nil` for none.
        public var frames: DeltaFrames?

        /// Creates a delta from its parts.
        public init(
            base: Digest,
            url: String,
            size: ByteCount,
            digest: Digest,
            frames: DeltaFrames? = nil
        ) {
            self.base = base
            self.url = url
            self.size = size
            self.digest = digest
            self.frames = frames
        }
    }

    /// A delta set: an object with a table, and frames that refer to bytes of an older version's files.
    ///
    /// It is at `../d/<SHA-256>` from the index.
    public struct DeltaFrames: Hashable, Sendable {
        /// Its exact size.
        public var size: ByteCount
        /// The digest of its bytes, which is its name.
        public var digest: Digest
        /// The size of the table that it begins with.
        public var tableSize: ByteCount
        /// The digest of the table.
        public var tableDigest: Digest

        /// Creates a reference from its parts.
        public init(size: ByteCount, digest: Digest, tableSize: ByteCount, tableDigest: Digest) {
            self.size = size
            self.digest = digest
            self.tableSize = tableSize
            self.tableDigest = tableDigest
        }
    }

    /// Creates a reference from its parts.
    public init(
        url: String,
        size: ByteCount,
        digest: Digest,
        contentSize: ByteCount,
        contentDigest: Digest,
        bundleSize: ByteCount,
        deltas: [Delta] = []
    ) {
        self.url = url
        self.size = size
        self.digest = digest
        self.contentSize = contentSize
        self.contentDigest = contentDigest
        self.bundleSize = bundleSize
        self.deltas = deltas
    }
}

/// The archive that carries a pack.
public struct PackArchive: Hashable, Sendable {
    /// Where it is: absolute, or relative to each mirror in turn.
    public var url: String
    /// How the content is wrapped.
    public var format: ArchiveFormat
    /// Its exact size on the wire.
    public var size: ByteCount
    /// The digest of its bytes on the wire.
    public var digest: Digest
    /// The name that the content of a ``ArchiveFormat/file`` gets; `nil` stands for the last
    /// component of ``url``.
    public var fileName: String?
    /// The bytes of content that a decoder keeps in memory at most; `nil` where the publisher does not say.
    ///
    /// Of ``ArchiveFormat/tarZstandard`` alone, and at most ``ManifestLimits/windowSize``.
    public var windowSize: ByteCount?

    /// Creates an archive from its parts.
    public init(
        url: String,
        format: ArchiveFormat,
        size: ByteCount,
        digest: Digest,
        fileName: String? = nil,
        windowSize: ByteCount? = nil
    ) {
        self.url = url
        self.format = format
        self.size = size
        self.digest = digest
        self.fileName = fileName
        self.windowSize = windowSize
    }
}
