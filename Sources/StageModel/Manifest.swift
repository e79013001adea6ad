/// A publisher's offer to one application: packs with their policies and URLs.
public struct Manifest: Hashable, Sendable {
    /// The major version of the format that this code reads.
    public static let formatVersion = 1

    /// The application that the packs are for.
    public var application: ApplicationID
    /// The revision, which increases with each change of the publisher.
    public var revision: Int
    /// The versions of the application that the manifest applies to; `nil` for all.
    public var applicationVersion: VersionRequirement?
    /// The mirrors, in order of preference.
    ///
    /// Without mirrors, URLs are relative to the manifest's own URL.
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

    /// Returns the pack with this id.
    public subscript(id: PackID) -> Pack? { packs.first { $0.id == id } }
}

/// An asset pack as a manifest describes it.
public struct Pack: Hashable, Sendable {
    /// The name of the pack.
    public var id: PackID
    /// The publisher's version; a higher number is newer.
    public var version: Int
    /// The condition under which the pack is downloaded.
    public var policy: DownloadPolicy
    /// The pack as one archive; `nil` for a pack that has only an index.
    ///
    /// Beside an index it is an alternative download of the same files, smaller if most of them are missing;
    /// the unpacked files are verified against the index.
    public var archive: PackArchive?
    /// The pack as an index with bundles; `nil` for a pack that has only an archive.
    public var index: PackIndex?
    /// The sum of the file sizes.
    public var installedSize: ByteCount
    /// The number of regular files and symbolic links, without directories.
    public var fileCount: Int
    /// The number of directories, including implied parents, without that of the pack itself; `nil` if the manifest does not
    /// state it.
    public var directoryCount: Int?
    /// The order among packs of the same policy: higher first.
    public var priority: Int
    /// The versions of the application that the pack is for; `nil` for all.
    public var applicationVersion: VersionRequirement?
    /// The publisher's data for the application, as JSON text; `nil` for none.
    public var userInfo: String?

    /// Returns whether the pack is for this version of the application; `true` if the version is unknown.
    public func isFor(applicationVersion version: String?) -> Bool {
        guard let version, let applicationVersion else { return true }
        return applicationVersion.isMet(by: version)
    }

    /// Creates a pack from its parts; it must have an archive or an index.
    public init(
        id: PackID,
        version: Int,
        policy: DownloadPolicy,
        archive: PackArchive?,
        index: PackIndex? = nil,
        installedSize: ByteCount,
        fileCount: Int
    ) {
        precondition(archive != nil || index != nil, "a pack has an archive or an index")
        self.id = id
        self.version = version
        self.policy = policy
        self.archive = archive
        self.index = index
        self.installedSize = installedSize
        self.fileCount = fileCount
        directoryCount = nil
        priority = 0
        applicationVersion = nil
        userInfo = nil
    }
}

extension Pack {
    /// The identity of the pack's content on all servers: the digest of the archive, or of the uncompressed
    /// index, which covers every byte.
    public var contentDigest: Digest {
        guard let digest = index?.contentDigest ?? archive?.digest else {
            preconditionFailure("a pack has an archive or an index")
        }
        return digest
    }

    /// The bytes to transfer if nothing is installed: of an indexed pack, the smaller of index and bundles, and of
    /// ``archiveDownloadSize``.
    public var downloadSize: ByteCount {
        guard let index else { return archive?.size ?? .zero }
        let objects = index.size + index.bundleSize
        return min(objects, archiveDownloadSize ?? objects)
    }

    /// The bytes to transfer by the archive if nothing is installed: the archive and, of an indexed pack, the delta
    /// of the index from the archive's files or, without one, the index; `nil` if there is no archive.
    public var archiveDownloadSize: ByteCount? {
        archive.map { $0.size + (index?.sizeBesideArchive ?? .zero) }
    }

    /// The digests by which partial downloads of the pack are identified: its content digest, and those of the
    /// archive and the patches of an indexed pack.
    public var downloads: [Digest] {
        guard let index else { return [contentDigest] }
        let patches = index.deltas.compactMap(\.patch)
        return [contentDigest] + [archive?.digest].compactMap(\.self) + patches.map(\.digest)
    }

    /// The URLs in the manifest from which a first installation of the pack is downloaded.
    public var urls: [String] { [index?.url, archive?.url].compactMap(\.self) }
}

/// A reference to a pack's index, which lists its files and the location of each byte.
public struct PackIndex: Hashable, Sendable {
    /// The index's URL: absolute, or relative to each mirror; bundles are at `../b/<SHA-256>` from it.
    public var url: String
    /// The exact download size of the index, in bytes.
    public var size: ByteCount
    /// The digest of the index as downloaded.
    public var digest: Digest
    /// The decompressed size of the index, in bytes.
    public var contentSize: ByteCount
    /// The digest of the decompressed index.
    public var contentDigest: Digest
    /// The bytes of bundles that a first installation downloads.
    public var bundleSize: ByteCount
    /// The same index as deltas from older ones.
    public var deltas: [Delta]
    /// The same index as a delta from the file table of the pack's archive; `nil` for none.
    public var fileTableDelta: CompanionDelta?

    /// A delta of the index for a client that has decoded another object of the pack, and computes digests of its content.
    ///
    /// With it, the client does not download these digests: those of the archive's files, or of a patch's pieces.
    public struct CompanionDelta: Hashable, Sendable {
        /// The delta's URL: absolute, or relative to each mirror.
        public var url: String
        /// The exact download size of the delta, in bytes.
        public var size: ByteCount
        /// The digest of the delta as downloaded.
        public var digest: Digest

        /// Creates a reference from its parts.
        public init(url: String, size: ByteCount, digest: Digest) {
            self.url = url
            self.size = size
            self.digest = digest
        }
    }

    /// An index as a delta from an older one.
    public struct Delta: Hashable, Sendable {
        /// The ``PackIndex/contentDigest`` of the older index.
        public var base: Digest
        /// The delta's URL.
        public var url: String
        /// The exact download size of the delta, in bytes.
        public var size: ByteCount
        /// The digest of the delta as downloaded.
        public var digest: Digest
        /// The delta set with smaller frames for clients that have the older version; `nil` for none.
        public var frames: DeltaFrames?
        /// The patch for clients that have the older version; `nil` for none.
        public var patch: Patch?

        /// Creates a delta from its parts.
        public init(
            base: Digest,
            url: String,
            size: ByteCount,
            digest: Digest,
            frames: DeltaFrames? = nil,
            patch: Patch? = nil
        ) {
            self.base = base
            self.url = url
            self.size = size
            self.digest = digest
            self.frames = frames
            self.patch = patch
        }
    }

    /// A delta set: an object with a table, and frames compressed against the files of an older version.
    ///
    /// Its URL is `../d/<SHA-256>` from the index.
    public struct DeltaFrames: Hashable, Sendable {
        /// The exact download size of the delta set, in bytes.
        public var size: ByteCount
        /// The digest of the delta set, which is also its name.
        public var digest: Digest
        /// The size of the table at its start.
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

    /// A patch: all content that an older version lacks, in parts that are compressed with content of that version as
    /// their dictionary.
    public struct Patch: Hashable, Sendable {
        /// The patch's URL: absolute, or relative to each mirror.
        public var url: String
        /// The exact download size of the patch, in bytes.
        public var size: ByteCount
        /// The digest of the patch as downloaded.
        public var digest: Digest
        /// The maximum number of bytes that a part of the patch decompresses to, which a decoder keeps in memory; at most
        /// ``ManifestLimits/windowSize``.
        public var windowSize: ByteCount
        /// The maximum number of bytes of the older version that a decoder also keeps in memory; at most ``ManifestLimits/windowSize``.
        public var prefixSize: ByteCount
        /// The index, without the digests that follow from the patch, as a delta from the older one; `nil` for none.
        public var indexDelta: CompanionDelta?

        /// Creates a reference from its parts.
        public init(
            url: String,
            size: ByteCount,
            digest: Digest,
            windowSize: ByteCount,
            prefixSize: ByteCount,
            indexDelta: CompanionDelta? = nil
        ) {
            self.url = url
            self.size = size
            self.digest = digest
            self.windowSize = windowSize
            self.prefixSize = prefixSize
            self.indexDelta = indexDelta
        }
    }

    /// The bytes of the index to download beside the archive if nothing is installed: of the delta from the archive's
    /// files or, without one, of the index.
    public var sizeBesideArchive: ByteCount { fileTableDelta?.size ?? size }

    /// Returns the delta from an older version with this ``contentDigest``; `nil` if there is none.
    public func delta(from base: Digest?) -> Delta? { deltas.first { $0.base == base } }

    /// Creates a reference from its parts.
    public init(
        url: String,
        size: ByteCount,
        digest: Digest,
        contentSize: ByteCount,
        contentDigest: Digest,
        bundleSize: ByteCount,
        deltas: [Delta] = [],
        fileTableDelta: CompanionDelta? = nil
    ) {
        self.url = url
        self.size = size
        self.digest = digest
        self.contentSize = contentSize
        self.contentDigest = contentDigest
        self.bundleSize = bundleSize
        self.deltas = deltas
        self.fileTableDelta = fileTableDelta
    }
}

/// A reference to the archive of a pack.
public struct PackArchive: Hashable, Sendable {
    /// The archive's URL: absolute, or relative to each mirror.
    public var url: String
    /// The container format.
    public var format: ArchiveFormat
    /// The exact download size of the archive, in bytes.
    public var size: ByteCount
    /// The digest of the archive as downloaded.
    public var digest: Digest
    /// The file name for the format ``ArchiveFormat/file``; `nil` for the last component of ``url``.
    public var fileName: String?
    /// The maximum number of bytes of content that a decoder keeps in memory; `nil` if the publisher does not state it.
    ///
    /// Only for ``ArchiveFormat/tarZstandard``, and at most ``ManifestLimits/windowSize``.
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
