package import StageModel

extension DeltaSet {
    /// The first bytes of a table: a name, bytes that text-mode transfers corrupt, and the format version.
    static let magic: [UInt8] = Array("SPDS".utf8) + [0x0D, 0x0A, 0x1A, 0x01]

    /// The maximum number of bytes that ``Head`` reads.
    package static let headLength = magic.count + 2 * Digest.byteCount + 5

    /// The first fields of a delta set.
    package struct Head: Equatable, Sendable {
        /// The ``PackIndex/contentDigest`` of the newer version, which the delta frames restore.
        package var new: Digest
        /// The ``PackIndex/contentDigest`` of the older version, which the windows refer to.
        package var old: Digest
        /// The size of the whole table in bytes, including the head.
        package var tableSize: Int

        /// Decodes the head of a delta set from its first bytes.
        ///
        /// - Throws: ``IndexError`` for bytes that are not a delta set of this format version.
        package init(decoding bytes: [UInt8]) throws(IndexError) {
            var reader = ByteReader(bytes)
            self = try Self(from: &reader)
        }

        init(from reader: inout ByteReader) throws(IndexError) {
            try reader.readMagic(DeltaSet.magic, of: "delta set")
            new = try reader.digest("the digest of the newer index")
            old = try reader.digest("the digest of the older index")
            tableSize = try reader.tableSize()
        }
    }

    /// Decodes an untrusted table that ``encodedTable()`` wrote.
    ///
    /// Does not check whether the indexes contain what it refers to; ``check(from:to:)`` does.
    ///
    /// - Throws: ``IndexError`` for bytes that are not the table of a delta set of this format version.
    package init(decodingTable bytes: [UInt8]) throws(IndexError) {
        var reader = ByteReader(bytes)
        let head = try Head(from: &reader)
        try reader.checkTable(size: head.tableSize)
        self.init(new: head.new, old: head.old)
        // The smallest encoding of each item bounds the number of items.
        let counts = (
            windows: try reader.number("the number of windows", in: 0...reader.left / 4),
            frames: try reader.number("the number of delta frames", in: 0...reader.left / 35)
        )
        windows.reserveCapacity(counts.windows)
        var next: Int64 = 0
        for _ in 0..<counts.windows { windows.append(try Self.window(&next, from: &reader)) }
        frames.reserveCapacity(counts.frames)
        try readFrames(counts.frames, from: &reader)
        try reader.checkEnd()
    }

    private static func window(
        _ next: inout Int64,
        from reader: inout ByteReader
    ) throws(IndexError) -> Window {
        // With too few bytes left, decoding the parts fails as truncated.
        let parts = max(1, reader.left / 3)
        let count = try reader.number("the number of parts of a window", in: 1...parts)
        var segments: [Segment] = []
        segments.reserveCapacity(count)
        var remaining = IndexLimits.windowLength
        for _ in 0..<count {
            let step = try reader.difference("the file of a window")
            let (entry, isTooFar) = next.addingReportingOverflow(step)
            guard !isTooFar, (0...Int64(Int32.max)).contains(entry) else {
                throw reader.fault("a window refers to an impossible file")
            }
            next = entry + 1
            let most = UInt64(ManifestLimits.installedSize.rawValue)
            let offset = try reader.number("where a window begins", in: 0...most)
            guard remaining > 0 else { throw reader.fault("a window is too large") }
            let length = try reader.number("the length of a part of a window", in: 1...remaining)
            remaining -= length
            segments.append(Segment(entry: Int(entry), offset: Int64(offset), length: length))
        }
        return Window(segments: segments)
    }

    private mutating func readFrames(
        _ count: Int,
        from reader: inout ByteReader
    ) throws(IndexError) {
        var seen: Set<Int> = []
        seen.reserveCapacity(count)
        var positions: [(position: Int, window: Int)] = []
        positions.reserveCapacity(count)
        var next: Int64 = 0
        for _ in 0..<count {
            let step = try reader.difference("the frame of a delta frame")
            let (position, isTooFar) = next.addingReportingOverflow(step)
            guard !isTooFar, (0...Int64(Int32.max)).contains(position) else {
                throw reader.fault("a delta frame restores an impossible frame")
            }
            guard seen.insert(Int(position)).inserted else {
                throw reader.fault("two delta frames make one frame")
            }
            next = position + 1
            positions.append((Int(position), 0))
        }
        var last: Int64 = 0
        for index in 0..<count {
            let step = try reader.difference("the window of a delta frame")
            // A reader keeps one window, and would read another one again for each frame.
            guard step >= 0 else {
                throw reader.fault("the delta frames are not in the order of their windows")
            }
            let (window, isTooFar) = last.addingReportingOverflow(step)
            guard !isTooFar, windows.indices.contains(Int(clamping: window)) else {
                throw reader.fault("a delta frame refers to a missing window")
            }
            last = window
            positions[index].window = Int(window)
        }
        var lengths: [Int] = []
        lengths.reserveCapacity(count)
        for _ in 0..<count {
            lengths.append(
                try reader.number("the length of a delta frame", in: 1...IndexLimits.frameLength)
            )
        }
        for (entry, length) in zip(positions, lengths) {
            let digest = try reader.digest("the digest of a delta frame")
            frames.append(
                Frame(
                    position: entry.position,
                    window: entry.window,
                    length: length,
                    digest: digest
                )
            )
        }
    }

    /// Returns the encoded table; equal sets have equal bytes.
    package func encodedTable() -> [UInt8] {
        var rest: [UInt8] = []
        rest.append(number: windows.count)
        rest.append(number: frames.count)
        var next = 0
        for window in windows {
            rest.append(number: window.segments.count)
            for segment in window.segments {
                rest.append(difference: Int64(segment.entry - next))
                next = segment.entry + 1
                rest.append(number: UInt64(segment.offset))
                rest.append(number: segment.length)
            }
        }
        next = 0
        for frame in frames {
            rest.append(difference: Int64(frame.position - next))
            next = frame.position + 1
        }
        var last = 0
        for frame in frames {
            rest.append(difference: Int64(frame.window - last))
            last = frame.window
        }
        for frame in frames { rest.append(number: frame.length) }
        for frame in frames { rest += frame.digest.bytes }
        var bytes = Self.magic + new.bytes + old.bytes
        bytes.append(number: rest.count)
        return bytes + rest
    }
}
