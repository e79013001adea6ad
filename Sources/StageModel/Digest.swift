/// A SHA-256 digest (FIPS 180-4), which identifies an archive on any server.
public struct Digest: Hashable, Sendable {
    /// The number of bytes in a digest.
    public static let byteCount = 32

    // SIMD4 is not used: it is aligned to 32 bytes, but Swift 6.3 does not align frames of asynchronous functions so,
    // and these would write beyond their frames.
    private var words: InlineArray<4, UInt64>

    /// Creates a digest from its bytes, of which there must be ``byteCount``.
    public init(bytes: [UInt8]) {
        precondition(bytes.count == Self.byteCount, "a SHA-256 digest has 32 bytes")
        words = InlineArray(repeating: 0)
        for (index, byte) in bytes.enumerated() {
            words[index / 8] = words[index / 8] << 8 | UInt64(byte)
        }
    }

    /// Creates a digest from 64 hexadecimal digits, of either case.
    ///
    /// - Throws: ``ValueError`` for any other text.
    public init(hexadecimal text: String) throws(ValueError) {
        words = InlineArray(repeating: 0)
        var count = 0
        for digit in text.utf8 {
            guard count < 2 * Self.byteCount, let value = digit.hexadecimalValue else {
                throw ValueError(expected: "64 hexadecimal digits", text: text)
            }
            words[count / 16] = words[count / 16] << 4 | UInt64(value)
            count += 1
        }
        guard count == 2 * Self.byteCount else {
            throw ValueError(expected: "64 hexadecimal digits", text: text)
        }
    }

    /// The bytes of the digest, in order.
    public var bytes: [UInt8] {
        (0..<Self.byteCount).map { index in
            UInt8(truncatingIfNeeded: words[index / 8] >> UInt64(8 * (7 - index % 8)))
        }
    }

    private static let digits = Array("0123456789abcdef".utf8)

    /// Compares two digests.
    public static func == (left: Digest, right: Digest) -> Bool {
        left.words.indices.allSatisfy { left.words[$0] == right.words[$0] }
    }

    /// Feeds the digest to a hasher.
    public func hash(into hasher: inout Hasher) {
        for index in words.indices { hasher.combine(words[index]) }
    }
}

extension Digest: CustomStringConvertible {
    /// The digest as 64 lower-case hexadecimal digits.
    public var description: String {
        var text: [UInt8] = []
        text.reserveCapacity(2 * Self.byteCount)
        for byte in bytes {
            text.append(Self.digits[Int(byte >> 4)])
            text.append(Self.digits[Int(byte & 15)])
        }
        return String(decoding: text, as: UTF8.self)
    }
}

extension Digest: Codable {
    /// Decodes a digest from its hexadecimal digits.
    public init(from decoder: any Decoder) throws {
        self = try decoder.value { text throws(ValueError) in try Digest(hexadecimal: text) }
    }

    /// Encodes the digest as hexadecimal digits.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }
}
