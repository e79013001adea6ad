/// Eight bytes of a text, which are compared at once.
///
/// The functions return a word that marks bytes by their upper bits. The first marked byte (``firstMarked(_:)``) is
/// exact; bytes after it may be marked wrongly.
private struct ByteWord {
    private static let ones: UInt64 = 0x0101_0101_0101_0101
    private static let upperBits: UInt64 = 0x8080_8080_8080_8080

    /// The bytes, the first one in the lowest bits.
    let bits: UInt64

    /// Marks bytes that are equal to `byte`.
    func bytes(equalTo byte: UInt8) -> UInt64 {
        let difference = bits ^ (Self.ones &* UInt64(byte))
        return (difference &- Self.ones) & ~difference & Self.upperBits
    }

    /// Marks bytes below `limit`, which is at most 128.
    func bytes(below limit: UInt8) -> UInt64 {
        (bits &- (Self.ones &* UInt64(limit))) & ~bits & Self.upperBits
    }

    /// Marks bytes that are not ASCII.
    var nonASCIIBytes: UInt64 { bits & Self.upperBits }

    /// Returns the index of the first marked byte in the word, 8 if none is marked.
    static func firstMarked(_ marks: UInt64) -> Int { marks.trailingZeroBitCount / 8 }
}

extension Span<UInt8> {
    /// Returns the offset of the first byte that is equal to `byte`, or `nil` if there is none.
    fileprivate func firstOffset(of byte: UInt8) -> Int? {
        let offset = firstOffset(from: 0) {
            $0.bytes(equalTo: byte)
        } matching: {
            $0 == byte
        }
        return offset < count ? offset : nil
    }

    /// Returns the offset of the first byte from `start` on that ends the plain characters of a string in JSON: a
    /// quotation mark, a backslash or a control character; ``count`` if there is none.
    func endOfPlainStringContent(from start: Int) -> Int {
        firstOffset(from: start) { word in
            word.bytes(equalTo: UInt8(ascii: "\"")) | word.bytes(equalTo: UInt8(ascii: "\\"))
                | word.bytes(below: 0x20)
        } matching: { byte in
            byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") || byte < 0x20
        }
    }

    /// Returns the offset of the first byte from `start` on that is a backslash or not ASCII; ``count`` if there is none.
    func endOfPlainASCII(from start: Int) -> Int {
        firstOffset(from: start) { word in
            word.bytes(equalTo: UInt8(ascii: "\\")) | word.nonASCIIBytes
        } matching: { byte in
            byte == UInt8(ascii: "\\") || byte >= 0x80
        }
    }

    /// Returns the offset of the first matching byte from `start` on; ``count`` if there is none.
    ///
    /// - Parameters:
    ///   - start: The first offset, which is not negative.
    ///   - marks: Marks the matching bytes of a word.
    ///   - matching: Returns whether a single byte matches.
    /// - Returns: The offset.
    @inline(__always)
    private func firstOffset(
        from start: Int,
        _ marks: (ByteWord) -> UInt64,
        matching: (UInt8) -> Bool
    ) -> Int {
        precondition(start >= 0)
        var position = start
        while position + 8 <= count {
            let bits = unsafe bytes.unsafeLoadUnaligned(
                fromUncheckedByteOffset: position,
                as: UInt64.self
            )
            let found = marks(ByteWord(bits: UInt64(littleEndian: bits)))
            if found != 0 { return position + ByteWord.firstMarked(found) }
            position += 8
        }
        while position < count, !matching(self[position]) { position += 1 }
        return position
    }
}

extension Substring {
    /// Returns the index of the first byte of the text in UTF-8 that is equal to `byte`, or `nil` if there is none.
    ///
    /// Takes a tenth of the instructions of `utf8.firstIndex(of:)`: a run searches names of generations and URLs thousands of
    /// times.
    package func firstIndex(ofByte byte: UInt8) -> Index? {
        utf8.span.firstOffset(of: byte).map { utf8.index(startIndex, offsetBy: $0) }
    }
}
