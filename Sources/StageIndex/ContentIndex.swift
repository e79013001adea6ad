package import StageModel

/// The content of one version of an indexed pack: files, the frames that they consist of, and the bundles
/// that contain the frames.
///
/// `Manifests/indexed-packs.md` specifies the encoding.
package struct ContentIndex: Equatable, Sendable {
    /// The objects from which frames are downloaded.
    package var bundles: [Bundle]
    /// The frames, in the order of their first use.
    package var frames: [Frame]
    /// The entries of the pack, ordered by the bytes of their paths; only empty directories are listed.
    package var entries: EntryList

    /// An object that contains frames, one after the other.
    package struct Bundle: Hashable, Sendable {
        /// The digest of the whole object, which is also its name.
        package var digest: Digest
        /// The size of the object in bytes.
        package var size: Int64

        /// Creates a bundle from its parts.
        package init(digest: Digest, size: Int64) {
            self.digest = digest
            self.size = size
        }
    }

    /// A piece of content that is downloaded and verified as a unit.
    package struct Frame: Hashable, Sendable {
        /// The digest of the content.
        package var digest: Digest
        /// The number of bytes of the content: 1 to ``IndexLimits/frameLength``.
        package var length: Int
        /// The digest and length of its Zstandard frame; `nil` if it is stored uncompressed.
        package var compressed: Compressed?
        /// The position of its bundle in the index.
        package var bundle: Int
        /// The offset in the bundle.
        package var offset: Int64

        /// Creates a frame from its parts.
        package init(
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

        /// The number of bytes in the bundle.
        package var storedLength: Int { compressed?.length ?? length }
        /// The digest of the bytes in the bundle.
        package var storedDigest: Digest { compressed?.digest ?? digest }
        /// The range of its bytes in the bundle.
        package var range: Range<Int64> { offset..<offset + Int64(storedLength) }
    }

    /// The compressed form of a frame.
    package struct Compressed: Hashable, Sendable {
        /// The digest of the compressed bytes.
        package var digest: Digest
        /// The number of compressed bytes.
        package var length: Int

        /// Creates the form from its parts.
        package init(digest: Digest, length: Int) {
            self.digest = digest
            self.length = length
        }
    }

    /// An entry of a pack.
    package struct Entry: Hashable, Sendable {
        /// The path within the pack.
        package var path: ContentPath
        /// The kind and its content.
        package var kind: Kind

        /// Creates an entry from its parts.
        package init(path: ContentPath, kind: Kind) {
            self.path = path
            self.kind = kind
        }
    }

    /// The kind of an entry.
    package enum Kind: Hashable, Sendable {
        /// A regular file.
        case file(File)
        /// An empty directory.
        case directory
        /// A symbolic link.
        case link(to: LinkTarget)
    }

    /// A regular file.
    package struct File: Hashable, Sendable {
        /// Indicates whether its mode is 0755 instead of 0644.
        package var isExecutable: Bool
        /// The size in bytes.
        package var size: Int64
        /// The digest of its content.
        package var digest: Digest
        /// The frames that contain the content.
        package var content: Content

        /// Creates a file from its parts.
        package init(isExecutable: Bool, size: Int64, digest: Digest, content: Content) {
            self.isExecutable = isExecutable
            self.size = size
            self.digest = digest
            self.content = content
        }
    }

    /// The frames that contain a file's content.
    package enum Content: Hashable, Sendable {
        /// A part of one frame, starting at `offset`, that contains other files as well; also used for an
        /// empty file.
        case part(frame: Int, offset: Int)
        /// Whole frames, one after the other.
        case frames([Int])
    }

    /// Creates an index from its parts.
    package init(
        bundles: [Bundle] = [],
        frames: [Frame] = [],
        entries: some Sequence<Entry> = EntryList()
    ) {
        self.bundles = bundles
        self.frames = frames
        self.entries = EntryList(entries)
    }

    /// Removes bundles that contain no frame.
    package mutating func dropUnusedBundles() {
        let used = Set(frames.map(\.bundle)).sorted()
        let positions = Dictionary(uniqueKeysWithValues: zip(used, 0...))
        bundles = used.map { bundles[$0] }
        for index in frames.indices { frames[index].bundle = positions[frames[index].bundle] ?? 0 }
    }

    /// The sum of the sizes of the files.
    package var installedSize: ByteCount {
        ByteCount(entries.indices.reduce(Int64(0)) { $0 + entries.size(at: $1) })
    }

    /// The number of files and symbolic links.
    package var fileCount: Int { entries.indices.count { !entries.isDirectory(at: $0) } }

    /// The stored bytes of all frames, which a first installation downloads.
    package var storedSize: ByteCount { storedLength(of: frames.indices) }

    /// Returns the stored bytes of frames.
    package func storedLength(of positions: some Sequence<Int>) -> ByteCount {
        ByteCount(positions.reduce(Int64(0)) { $0 + Int64(frames[$1].storedLength) })
    }
}
