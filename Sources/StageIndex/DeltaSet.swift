public import StageModel

/// Which frames of one version a client that has another one can make of shorter bytes and of what is
/// in its files: the table of a delta set.
///
/// A delta frame is a Zstandard frame that refers to a window: bytes of the older version's files. Its
/// bytes come after the table, in the same object. `Manifests/indexed-packs.md` specifies how it is
/// written.
public struct DeltaSet: Equatable, Sendable {
    /// The ``PackIndex/contentDigest`` of the version that is made.
    public var new: Digest
    /// The ``PackIndex/contentDigest`` of the version that has the windows.
    public var old: Digest
    /// The windows, in the order of their first use.
    public var windows: [Window]
    /// The delta frames, in the order of their bytes.
    public var frames: [Frame]

    /// Bytes of the older version that delta frames refer to: those of its segments, one after the other.
    public struct Window: Hashable, Sendable {
        /// What it is made of; at least one.
        public var segments: [Segment]

        /// Creates a window from its parts.
        public init(segments: [Segment]) { self.segments = segments }

        /// Its bytes: 1 to ``IndexLimits/windowLength``.
        public var length: Int { segments.reduce(0) { $0 + $1.length } }
    }

    /// Part of a file of the older version.
    public struct Segment: Hashable, Sendable {
        /// The file, by its position among the entries of the older index.
        public var entry: Int
        /// Where the part begins in the file.
        public var offset: Int64
        /// The bytes of the part: at least 1.
        public var length: Int

        /// Creates a segment from its parts.
        public init(entry: Int, offset: Int64, length: Int) {
            self.entry = entry
            self.offset = offset
            self.length = length
        }
    }

    /// The shorter form of a frame.
    public struct Frame: Hashable, Sendable {
        /// The frame that it makes, by its position in the newer index.
        public var position: Int
        /// The window that it refers to, by its position in the set.
        public var window: Int
        /// Its bytes: 1 to ``IndexLimits/frameLength``.
        public var length: Int
        /// The digest of its bytes.
        public var digest: Digest

        /// Creates a delta frame from its parts.
        public init(position: Int, window: Int, length: Int, digest: Digest) {
            self.position = position
            self.window = window
            self.length = length
            self.digest = digest
        }
    }

    /// Creates a set from its parts.
    public init(new: Digest, old: Digest, windows: [Window] = [], frames: [Frame] = []) {
        self.new = new
        self.old = old
        self.windows = windows
        self.frames = frames
    }

    /// Where each delta frame is in an object whose table has so many bytes.
    public func ranges(afterTable size: Int) -> [Range<Int64>] {
        var end = Int64(size)
        return frames.map { frame in
            defer { end += Int64(frame.length) }
            return end..<end + Int64(frame.length)
        }
    }

    /// The bytes of the delta frames, without the table.
    public var byteCount: Int64 { frames.reduce(0) { $0 + Int64($1.length) } }

    /// Checks that the set is about these two indexes: that there are the frames that it makes, and the
    /// bytes that its windows are made of.
    ///
    /// - Throws: ``IndexError`` for the first thing that there is not.
    public func check(from old: ContentIndex, to new: ContentIndex) throws(IndexError) {
        try check(to: new) { entry in
            old.entries.indices.contains(entry) ? old.entries.file(at: entry)?.size : nil
        }
    }

    /// Checks that the set is about these two versions, where of the older one the sizes of its files are
    /// known by their positions among the entries.
    ///
    /// - Throws: ``IndexError`` for the first thing that there is not.
    public func check(
        to new: ContentIndex,
        sizeOfFile: (_ entry: Int) -> Int64?
    ) throws(IndexError) {
        for frame in frames where !new.frames.indices.contains(frame.position) {
            throw IndexError(offset: 0, reason: "the index has no frame \(frame.position)")
        }
        for segment in windows.lazy.flatMap(\.segments) {
            guard let size = sizeOfFile(segment.entry),
                segment.offset <= size - Int64(segment.length)
            else {
                throw IndexError(
                    offset: 0,
                    reason: "the older version has no such part of entry \(segment.entry)"
                )
            }
        }
    }
}

extension IndexLimits {
    /// The most bytes of an older version that a delta frame refers to: 4.7 MiB, in round figures.
    public static let windowLength = 4_915_200
}
