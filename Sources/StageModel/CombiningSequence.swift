/// A limit for combining characters in a row (UAX #15, section 13, "Stream-Safe Text Format").
///
/// Swift sorts adjacent combining characters by insertion whenever it compares or hashes text: 1 MiB of them takes
/// minutes each time. So text from outside is checked, in linear time, before it is compared. Records of StagePack and
/// messages between its processes have a higher limit, since they quote names of up to 2,048 bytes.
package struct CombiningSequence {
    /// The maximum number of combining characters in a row: more than any language needs.
    package static let limit = 30
    /// The maximum number in records of StagePack and in messages between its processes: as many as a quoted name may have.
    package static let quotationLimit = 1024

    private let limit: Int
    private var length = 0

    private init(limit: Int) { self.limit = limit }

    /// Adds the next character of the text, and returns whether the sequence that it belongs to is too long.
    private mutating func isTooLong(adding scalar: Unicode.Scalar) -> Bool {
        length = scalar.isSortedByNormalization ? length + 1 : 0
        return length > limit
    }

    /// Returns whether a sequence in the text is longer than `limit`.
    package static func exceedsLimit(in text: String, limit: Int = Self.limit) -> Bool {
        exceedsLimit(in: text[...], limit: limit)
    }

    /// Returns whether a sequence in the text is longer than `limit`.
    ///
    /// Not generic over `StringProtocol`: other modules would call it unspecialized, and the first such call of a process searches
    /// all conformances of the program. Each process that decodes an archive is new.
    package static func exceedsLimit(in text: Substring, limit: Int = Self.limit) -> Bool {
        guard text.utf8.contains(where: { $0 >= 0x80 }) else { return false }
        var sequence = CombiningSequence(limit: limit)
        return text.unicodeScalars.contains { sequence.isTooLong(adding: $0) }
    }

    /// Checks JSON from outside, before a parser reads it.
    ///
    /// - Throws: ``ManifestError/notJSON(_:)`` with the position of a sequence that is too long.
    package static func check(json: [UInt8]) throws(ManifestError) {
        guard let offset = excess(inJSON: json.span) else { return }
        throw JSONParser(json).fault(
            ValueError(expected: "at most \(limit) combining characters in a row", found: "more"),
            at: offset
        )
    }

    /// Returns the offset of the first character that makes a sequence longer than `limit`, or `nil` if there is none.
    ///
    /// Escapes count as the characters that they stand for. The bytes need not be valid JSON or UTF-8.
    package static func excess(inJSON json: Span<UInt8>, limit: Int = Self.limit) -> Int? {
        var sequence = CombiningSequence(limit: limit)
        var position = 0
        while position < json.count {
            let plainEnd = json.endOfPlainText(from: position)
            if plainEnd > position {
                sequence.length = 0
                position = plainEnd
                continue
            }
            let (scalar, end) = json.scalar(at: position)
            guard !sequence.isTooLong(adding: scalar) else { return position }
            position = end
        }
        return nil
    }

    /// Returns the text with every longer sequence cut at ``limit``, and an ellipsis in place of the rest.
    package static func shortened(_ text: String) -> String {
        guard exceedsLimit(in: text) else { return text }
        var sequence = CombiningSequence(limit: Self.limit)
        var scalars = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            if !sequence.isTooLong(adding: scalar) {
                scalars.append(scalar)
            } else if sequence.length == Self.limit + 1 {
                scalars.append("…")
            }
        }
        return String(scalars)
    }

    /// Returns JSON with every longer sequence in its texts cut at ``quotationLimit``, beyond which readers of records and
    /// messages refuse it.
    package static func shortened(inJSON json: [UInt8]) -> [UInt8] {
        guard excess(inJSON: json.span, limit: quotationLimit) != nil else { return json }
        var sequence = CombiningSequence(limit: quotationLimit)
        var shortened: [UInt8] = []
        shortened.reserveCapacity(json.count)
        let span = json.span
        var position = 0
        while position < json.count {
            let plainEnd = span.endOfPlainText(from: position)
            if plainEnd > position {
                sequence.length = 0
                shortened += json[position..<plainEnd]
                position = plainEnd
                continue
            }
            let (scalar, end) = span.scalar(at: position)
            if !sequence.isTooLong(adding: scalar) { shortened += json[position..<end] }
            position = end
        }
        return shortened
    }
}

extension Unicode.Scalar {
    /// Indicates whether normalization orders the scalar by its combining class.
    fileprivate var isSortedByNormalization: Bool {
        value >= 0x300 && properties.canonicalCombiningClass != .notReordered
    }
}

extension Span<UInt8> {
    /// Returns the offset of the first character from `start` on that need not be ASCII: it is not, or it is escaped by its
    /// number (`\u`).
    fileprivate func endOfPlainText(from start: Int) -> Int {
        var position = start
        while true {
            position = endOfPlainASCII(from: position)
            guard position + 1 < count, self[position] == UInt8(ascii: "\\"),
                self[position + 1] != UInt8(ascii: "u"), self[position + 1] < 0x80
            else { return position }
            position += 2
        }
    }

    /// Returns the scalar at a byte that does not begin plain text, and where it ends.
    fileprivate func scalar(at start: Int) -> (scalar: Unicode.Scalar, end: Int) {
        self[start] < 0x80 ? escapedScalar(at: start) : encodedScalar(at: start)
    }

    /// Returns the scalar that is encoded in UTF-8 at a byte of at least 0x80, and where it ends.
    private func encodedScalar(at start: Int) -> (scalar: Unicode.Scalar, end: Int) {
        let length = Swift.min(self[start].leadingOnes, 4)
        let end = start + length
        guard length > 1, end <= count else { return ("\u{FFFD}", start + 1) }
        var value = UInt32(self[start]) & (0x7F >> UInt32(length))
        for position in start + 1..<end {
            guard self[position] & 0xC0 == 0x80 else { return ("\u{FFFD}", start + 1) }
            value = value << 6 | UInt32(self[position] & 0x3F)
        }
        return (Unicode.Scalar(value) ?? "\u{FFFD}", end)
    }

    /// Returns the scalar of the escape at a backslash, and where it ends.
    private func escapedScalar(at start: Int) -> (scalar: Unicode.Scalar, end: Int) {
        guard let first = escapedCodeUnit(at: start) else {
            return ("\u{FFFD}", Swift.min(start + 2, count))
        }
        guard UTF16.isLeadSurrogate(first), let second = escapedCodeUnit(at: start + 6),
            UTF16.isTrailSurrogate(second)
        else { return (Unicode.Scalar(first) ?? "\u{FFFD}", start + 6) }
        let value = 0x10000 + (UInt32(first) - 0xD800) << 10 + (UInt32(second) - 0xDC00)
        return (Unicode.Scalar(value) ?? "\u{FFFD}", start + 12)
    }

    /// Returns the code unit of an escape of the form `\uXXXX`, or `nil` if there is none.
    private func escapedCodeUnit(at start: Int) -> UInt16? {
        guard start + 6 <= count, self[start] == UInt8(ascii: "\\"),
            self[start + 1] == UInt8(ascii: "u")
        else { return nil }
        var value: UInt16 = 0
        for position in start + 2..<start + 6 {
            guard let digit = self[position].hexadecimalValue else { return nil }
            value = value << 4 | UInt16(digit)
        }
        return value
    }
}

extension UInt8 {
    /// The number of leading bits that are set.
    fileprivate var leadingOnes: Int { (~self).leadingZeroBitCount }
}
