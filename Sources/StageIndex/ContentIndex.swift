public import StageModel

/// What one version of an indexed pack holds, and where each byte of it can be fetched: files, the
/// frames that they are made of, and the bundles that the frames lie in.
///
/// `Manifests/indexed-packs.md` specifies how it is written.
public struct ContentIndex: Equatable, Sendable {
    /// The objects that frames are fetched from.
    public var bundles: [Bundle]
    /// The frames, in the order of their first use.
    public var frames: [Frame]
    /// What the pack holds, ordered by the bytes of the paths; of directories those that are empty.
    public var entries: EntryList

    /// One object with frames, one after the other.
    public struct Bundle: Hashable, Sendable {
        /// The digest of the whole object, which is its name.
        public var digest: Digest
        /// Its size in bytes.
        public var size: Int64

        /// Creates a bundle from its parts.
        public init(digest: Digest, size: Int64) {
            self.digest = digest
            self.size = size
        }
    }

    /// A piece of content that is fetched and verified as a whole.
    public struct Frame: Hashable, Sendable {
        /// The digest of the content.
        public var digest: Digest
        /// The bytes of the content: 1 to ``IndexLimits/frameLength``.
        public var length: Int
        /// How it is stored where that is not as it is: the digest and the bytes of its Zstandard
        /// frame.
        public var compressed: Compressed?
        /// The bundle, by its position in the index.
        public var bundle: Int
        /// Where it begins in the bundle.
        public var offset: Int64

        /// Creates a frame from its parts.
        public init(
            digest: Digest,
            length: Int,
            compressed: Compressed?,
            bundle: Int,
            offset: Int64
        ) {
            self.digest = digest
            self.length = length
            self.compressed = compressed
            self.bundle = bundle
            self.offset = offset
        }

        /// How many bytes it has in the bundle.
        public var storedLength: Int { compressed?.length ?? length }
        /// The digest of the bytes in the bundle.
        public var storedDigest: Digest { compressed?.digest ?? digest }
        /// Where it is in the bundle.
        public var range: Range<Int64> { offset..<offset + Int64(storedLength) }
    }

    /// The compressed form of a frame.
    public struct Compressed: Hashable, Sendable {
        /// Its digest.
        public var digest: Digest
        /// Its bytes.
        public var length: Int

        /// Creates the form from its parts.
        public init(digest: Digest, length: Int) {
            self.digest = digest
            self.length = length
        }
    }

    /// Something that a pack holds.
    public struct Entry: Hashable, Sendable {
        /// Where it is.
        public var path: ContentPath
        /// What it is.
        public var kind: Kind

        /// Creates an entry from its parts.
        public init(path: ContentPath, kind: Kind) {
            self.path = path
            self.kind = kind
        }
    }

    /// What an entry is.
    public enum Kind: Hashable, Sendable {
        /// A regular file.
        case file(File)
        /// A directory without anything in it.
        case directory
        /// A symbolic link.
        case link(to: LinkTarget)
    }

    /// A regular file.
    public struct File: Hashable, Sendable {
        /// Whether its mode is 0755 instead of 0644.
        public var isExecutable: Bool
        /// Its bytes.
        public var size: Int64
        /// The digest of its content.
        public var digest: Digest
        /// What it is made of.
        public var content: Content

        /// Creates a file from its parts.
        public init(isExecutable: Bool, size: Int64, digest: Digest, content: Content) {
            self.isExecutable = isExecutable
            self.size = size
            self.digest = digest
            self.content = content
        }
    }

    /// What a file is made of.
    public enum Content: Hashable, Sendable {
        /// Part of one frame, from `offset` on, that holds other files as well; or nothing, for a file
        /// without bytes.
        case part(frame: Int, offset: Int)
        /// These frames, one after the other, whole.
        case frames([Int])
    }

    /// Creates an index from its parts.
    public init(
        bundles: [Bundle] = [],
        frames: [Frame] = [],
        entries: some Sequence<Entry> = EntryList()
    ) {
        self.bundles = bundles
        self.frames = frames
        self.entries = EntryList(entries)
    }

    /// Forgets bundles that no frame is in.
    public mutating func dropUnusedBundles() {
        let used = Set(frames.map(\.bundle)).sorted()
        let positions = Dictionary(uniqueKeysWithValues: zip(used, 0...))
        bundles = used.map { bundles[$0] }
        for index in frames.indices { frames[index].bundle = positions[frames[index].bundle] ?? 0 }
    }

    /// The sum of the sizes of the files.
    public var installedSize: ByteCount {
        ByteCount(entries.indices.reduce(Int64(0)) { $0 + entries.size(at: $1) })
    }

    /// How many files and symbolic links there are.
    public var fileCount: Int { entries.indices.count { !entries.isDirectory(at: $0) } }

    /// The bytes of all frames as they are stored: what a first installation transfers.
    public var storedSize: ByteCount { storedLength(of: frames.indices) }

    /// The bytes of some frames as they are stored.
    public func storedLength(of positions: some Sequence<Int>) -> ByteCount {
        ByteCount(positions.reduce(Int64(0)) { $0 + Int64(frames[$1].storedLength) })
    }
}
