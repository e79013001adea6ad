package import StageModel

/// The table of a patch: the parts that restore the pieces of a new version, each from a frame of its own and from
/// bytes of an older version.
///
/// The frames follow the table in the same object. `Manifests/indexed-packs.md` specifies the encoding.
package struct PatchTable: Equatable, Sendable {
    /// The parts, in the order of their content.
    package var parts: [Part]

    /// A part: one Zstandard frame, which can be decompressed without the others.
    package struct Part: Equatable, Sendable {
        /// The bytes of the new version's pieces that the frame restores: 1 to ``ManifestLimits/windowSize``, whole
        /// pieces.
        package var contentLength: Int
        /// The number of bytes of the encoded runs (``SimilarRun``), which the frame contains before the content.
        ///
        /// At most a sixteenth of ``contentLength``, and with it at most ``ManifestLimits/windowSize``.
        package var runsLength: Int
        /// The ranges of the older version's pieces that the frame refers to, in ascending order and without overlaps;
        /// at most ``ManifestLimits/windowSize`` bytes.
        package var prefix: [Range<Int64>]
        /// The length of the frame in bytes, at least 1.
        package var frameLength: Int

        /// Creates a part from its fields.
        package init(
            contentLength: Int,
            runsLength: Int = 0,
            prefix: [Range<Int64>],
            frameLength: Int
        ) {
            self.contentLength = contentLength
            self.runsLength = runsLength
            self.prefix = prefix
            self.frameLength = frameLength
        }

        /// The number of bytes of the older version.
        package var prefixLength: Int { prefix.reduce(0) { $0 + $1.count } }
        /// The minimum number of bytes of content for each byte of its encoded runs.
        package static let leastContentPerRunByte = 16

        /// Returns the maximum bytes of the encoded runs of some bytes of content, if both together have at most
        /// `limit`.
        ///
        /// A sixteenth of the content: more runs save nothing, and a decoder keeps them in memory.
        package static func maximumRunBytes(forContentOf contentLength: Int, limit: Int) -> Int {
            min(contentLength / leastContentPerRunByte, limit - contentLength)
        }

        /// The number of bytes that the frame decompresses to.
        package var decompressedLength: Int { runsLength + contentLength }
    }

    /// Creates a table from its parts.
    package init(parts: [Part] = []) { self.parts = parts }

    /// The maximum number of bytes that the frame of one part decompresses to.
    package var windowSize: ByteCount { ByteCount(parts.map(\.decompressedLength).max() ?? 0) }
    /// The maximum number of bytes of the older version that one part refers to.
    package var prefixSize: ByteCount { ByteCount(parts.map(\.prefixLength).max() ?? 0) }

    /// Returns the ranges of the frames in an object whose table has `size` bytes.
    package func ranges(afterTable size: Int) -> [Range<Int64>] {
        var end = Int64(size)
        return parts.map { part in
            defer { end += Int64(part.frameLength) }
            return end..<end + Int64(part.frameLength)
        }
    }

    /// Returns the most parts of a patch with this number of bytes of content: one for each 256 KiB, and one more.
    ///
    /// A few bytes of a table make a part, whose decoder takes time for each. A writer needs at most half as many: it fills
    /// parts of at least 1 MiB, and two consecutive ones have together more than one may have.
    package static func maximumPartCount(forContentOf size: Int64) -> Int { Int(size >> 18) + 1 }

    /// Returns the maximum bytes of the prefixes of all parts in a patch with this number of bytes of content: four for
    /// each of them, and ``ManifestLimits/windowSize``.
    ///
    /// A few bytes of a table name a prefix, and a reader reads all of it. A writer needs about half as many: a prefix has at
    /// most the bytes for which a part has room, and all parts but the last one are half full on average.
    package static func maximumPrefixBytes(forContentOf size: Int64) -> Int64 {
        4 * size + ManifestLimits.windowSize.rawValue
    }

    /// Checks the table against the pieces of both versions.
    ///
    /// - Parameters:
    ///   - content: The pieces that the newer version has and the older one lacks.
    ///   - source: All pieces of the older version.
    /// - Throws: ``IndexError`` if the parts do not make exactly `content`, one of them ends within a piece, a prefix refers
    ///   to bytes that `source` lacks, or the parts or their prefixes are too many for the content.
    package func check(
        content: PatchContent,
        source: PatchContent
    ) throws(IndexError) {
        try checkTotals(forContentOf: content.size)
        var end: Int64 = 0
        for (number, part) in parts.enumerated() {
            end += Int64(part.contentLength)
            guard end <= content.size, end == content.start(of: content.position(at: end)) else {
                throw IndexError(
                    offset: 0,
                    reason: "part \(number) of the patch does not end with a piece"
                )
            }
            guard part.prefix.allSatisfy({ $0.upperBound <= source.size }) else {
                throw IndexError(
                    offset: 0,
                    reason:
                        "part \(number) of the patch refers to bytes that the older version lacks"
                )
            }
        }
        guard end == content.size else {
            throw IndexError(
                offset: 0,
                reason: "the patch makes \(end.quantity(of: "byte")) instead of \(content.size)"
            )
        }
    }

    private func checkTotals(forContentOf size: Int64) throws(IndexError) {
        let maximumPartCount = Self.maximumPartCount(forContentOf: size)
        guard parts.count <= maximumPartCount else {
            throw IndexError(
                offset: 0,
                reason: "the patch has more than \(maximumPartCount.quantity(of: "part"))"
            )
        }
        let maximumBytes = Self.maximumPrefixBytes(forContentOf: size)
        let prefixBytes = parts.reduce(Int64(0)) { $0 + Int64($1.prefixLength) }
        guard prefixBytes <= maximumBytes else {
            throw IndexError(
                offset: 0,
                reason: "the prefixes have more than \(maximumBytes.quantity(of: "byte"))"
            )
        }
    }
}

extension PatchTable {
    /// The first bytes of a table: a name, bytes that text-mode transfers corrupt, and the format version.
    static let magic: [UInt8] = Array("SPPT".utf8) + [0x0D, 0x0A, 0x1A, 0x01]
    /// The maximum number of bytes that ``size(decodingHead:)`` reads.
    package static let headLength = magic.count + 5

    /// Returns the size of a whole table in bytes from its first ones.
    ///
    /// - Throws: ``IndexError`` for bytes that are not a patch of this format version.
    package static func size(decodingHead bytes: [UInt8]) throws(IndexError) -> Int {
        var reader = ByteReader(bytes)
        return try size(from: &reader)
    }

    private static func size(from reader: inout ByteReader) throws(IndexError) -> Int {
        try reader.readMagic(magic, of: "patch")
        return try reader.tableSize()
    }

    /// Decodes an untrusted table that ``encoded()`` wrote.
    ///
    /// Does not check whether the versions have what it refers to; ``check(content:source:)`` does.
    ///
    /// - Throws: ``IndexError`` for bytes that are not the table of a patch of this format version.
    package init(decoding bytes: [UInt8]) throws(IndexError) {
        var reader = ByteReader(bytes)
        try reader.checkTable(size: Self.size(from: &reader))
        // The smallest encoding of a part bounds the number of parts.
        let count = try reader.number("the number of parts", in: 0...reader.left / 4)
        parts = []
        parts.reserveCapacity(count)
        for _ in 0..<count { parts.append(try Self.part(from: &reader)) }
        try reader.checkEnd()
    }

    private static func part(from reader: inout ByteReader) throws(IndexError) -> Part {
        let limit = Int(ManifestLimits.windowSize.rawValue)
        let content = try reader.number("the length of a part", in: 1...limit)
        let runs = try reader.number(
            "the length of runs",
            in: 0...Part.maximumRunBytes(forContentOf: content, limit: limit)
        )
        let count = try reader.number("the number of ranges of a prefix", in: 0...reader.left / 2)
        var prefix: [Range<Int64>] = []
        prefix.reserveCapacity(count)
        var end: Int64 = 0
        var remaining = limit
        for _ in 0..<count {
            let most = ManifestLimits.installedSize.rawValue - end
            guard most >= 0 else { throw reader.fault("a prefix refers to impossible bytes") }
            let gap = try reader.number("where a range of a prefix begins", in: 0...UInt64(most))
            let start = end + Int64(gap)
            guard remaining > 0 else { throw reader.fault("a prefix is too large") }
            let length = try reader.number("the length of a range of a prefix", in: 1...remaining)
            remaining -= length
            end = start + Int64(length)
            prefix.append(start..<end)
        }
        return Part(
            contentLength: content,
            runsLength: runs,
            prefix: prefix,
            frameLength: try reader.number("the length of a frame", in: 1...2 * limit)
        )
    }

    /// Reads the table of an untrusted patch, and the ranges of its frames.
    ///
    /// - Parameters:
    ///   - size: The size of the patch in bytes.
    ///   - head: Returns the first bytes of the patch, at most the given number.
    /// - Returns: The table, and the range of each part's frame; `nil` if the patch is not a table and the frames that
    ///   it names.
    /// - Throws: The errors of `head`.
    package static func read<Failure: Error>(
        ofPatchWith size: Int64,
        head: (_ count: Int) throws(Failure) -> [UInt8]
    ) throws(Failure) -> (table: PatchTable, frames: [Range<Int64>])? {
        let start = try head(headLength)
        // The reason makes no difference: such a patch is of no use.
        guard let tableSize = try? Self.size(decodingHead: start), tableSize <= size else {
            return nil
        }
        let bytes = try head(tableSize)
        guard let table = try? PatchTable(decoding: bytes) else { return nil }
        let frames = table.ranges(afterTable: tableSize)
        return frames.last?.upperBound == size ? (table, frames) : nil
    }

    /// Returns the encoded table; equal tables have equal bytes.
    package func encoded() -> [UInt8] {
        var rest: [UInt8] = []
        rest.append(number: parts.count)
        for part in parts {
            rest.append(number: part.contentLength)
            rest.append(number: part.runsLength)
            rest.append(number: part.prefix.count)
            var end: Int64 = 0
            for range in part.prefix {
                rest.append(number: UInt64(range.lowerBound - end))
                rest.append(number: range.count)
                end = range.upperBound
            }
            rest.append(number: part.frameLength)
        }
        var bytes = Self.magic
        bytes.append(number: rest.count)
        return bytes + rest
    }
}
