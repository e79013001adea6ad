package import StageModel

/// The table of a delta set: the frames of a new version that can be restored from fewer bytes and the files
/// of an older version.
///
/// A delta frame is a Zstandard frame that refers to a window of bytes of the older version's files. Its
/// bytes follow the table in the same object. `Manifests/indexed-packs.md` specifies the encoding.
package struct DeltaSet: Equatable, Sendable {
    /// The ``PackIndex/contentDigest`` of the newer version, which the delta frames restore.
    package var new: Digest
    /// The ``PackIndex/contentDigest`` of the older version, which the windows refer to.
    package var old: Digest
    /// The windows, in the order of their first use.
    package var windows: [Window]
    /// The delta frames, in the order of their bytes and of their windows.
    package var frames: [Frame]

    /// Bytes of the older version that delta frames refer to: its segments, one after the other.
    package struct Window: Hashable, Sendable {
        /// The segments, at least one.
        package var segments: [Segment]

        /// Creates a window from its parts.
        package init(segments: [Segment]) { self.segments = segments }

        /// The length in bytes: 1 to ``IndexLimits/windowLength``.
        package var length: Int { segments.reduce(0) { $0 + $1.length } }
    }

    /// Part of a file of the older version.
    package struct Segment: Hashable, Sendable {
        /// The position of the file among the entries of the older index.
        package var entry: Int
        /// The offset of the part in the file.
        package var offset: Int64
        /// The length of the part in bytes, at least 1.
        package var length: Int

        /// Creates a segment from its parts.
        package init(entry: Int, offset: Int64, length: Int) {
            self.entry = entry
            self.offset = offset
            self.length = length
        }
    }

    /// A frame in its shorter form.
    package struct Frame: Hashable, Sendable {
        /// The position in the newer index of the frame that it restores.
        package var position: Int
        /// The position in the set of the window that it refers to.
        package var window: Int
        /// The length in bytes: 1 to ``IndexLimits/frameLength``.
        package var length: Int
        /// The digest of its bytes.
        package var digest: Digest

        /// Creates a delta frame from its parts.
        package init(position: Int, window: Int, length: Int, digest: Digest) {
            self.position = position
            self.window = window
            self.length = length
            self.digest = digest
        }
    }

    /// Creates a set from its parts.
    package init(new: Digest, old: Digest, windows: [Window] = [], frames: [Frame] = []) {
        self.new = new
        self.old = old
        self.windows = windows
        self.frames = frames
    }

    /// Returns the ranges of the delta frames in an object whose table has `size` bytes.
    package func ranges(afterTable size: Int) -> [Range<Int64>] {
        var end = Int64(size)
        return frames.map { frame in
            defer { end += Int64(frame.length) }
            return end..<end + Int64(frame.length)
        }
    }

    /// The length of all delta frames in bytes, without the table.
    package var byteCount: Int64 { frames.reduce(0) { $0 + Int64($1.length) } }

    /// Checks the set against two indexes: they must contain the frames that it restores and the bytes of its
    /// windows.
    ///
    /// - Throws: ``IndexError`` for the first missing item, and for windows that are too large for the frames.
    package func check(from old: ContentIndex, to new: ContentIndex) throws(IndexError) {
        try check(to: new) { entry in
            old.entries.indices.contains(entry) ? old.entries.file(at: entry)?.size : nil
        }
    }

    /// Returns the maximum bytes of all windows in a set that restores this number of bytes: 32 for each of
    /// them, and 256 MiB.
    ///
    /// A few bytes of a table name a window, and a reader reads all of it. The windows of real updates have about as many
    /// bytes as the frames that they restore. A writer keeps no frames whose windows would exceed the limit.
    package static func maximumWindowBytes(forContentOf size: Int64) -> Int64 {
        32 * size + 268_435_456
    }

    /// Checks the set against two versions, where only the file sizes of the older one are known, by position
    /// among its entries.
    ///
    /// - Throws: ``IndexError`` for the first missing item, and for windows that are too large for the frames.
    package func check(
        to new: ContentIndex,
        sizeOfFile: (_ entry: Int) -> Int64?
    ) throws(IndexError) {
        var restored: Int64 = 0
        for frame in frames {
            guard new.frames.indices.contains(frame.position) else {
                throw IndexError(offset: 0, reason: "the index has no frame \(frame.position)")
            }
            restored += Int64(new.frames[frame.position].length)
        }
        let most = Self.maximumWindowBytes(forContentOf: restored)
        let windowBytes = windows.reduce(Int64(0)) { $0 + Int64($1.length) }
        guard windowBytes <= most else {
            throw IndexError(
                offset: 0,
                reason: "the windows have more than \(most.quantity(of: "byte"))"
            )
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
    /// The maximum number of bytes of an older version that a delta frame refers to: about 4.7 MiB.
    package static let windowLength = 4_915_200
}
