/// A number of bytes.
///
/// Sums and differences saturate instead of overflowing, since records and clients of the daemon name sizes that
/// are added up.
public struct ByteCount: Hashable, Sendable, Comparable, AdditiveArithmetic {
    /// The number itself.
    public var rawValue: Int64

    /// Creates a count of `rawValue` bytes.
    public init(_ rawValue: Int64) { self.rawValue = rawValue }

    /// Creates a count of `count` bytes.
    public init(_ count: Int) { rawValue = Int64(count) }

    /// No bytes.
    public static let zero = ByteCount(Int64(0))

    /// A count of `count` × 1,024 bytes.
    public static func kibibytes(_ count: Int64) -> ByteCount { ByteCount(count << 10) }

    /// A count of `count` × 1,048,576 bytes.
    public static func mebibytes(_ count: Int64) -> ByteCount { ByteCount(count << 20) }

    /// Orders counts by size.
    public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }

    /// The sum of two counts; the largest or smallest count instead of one that is out of range.
    public static func + (left: Self, right: Self) -> Self {
        let (sum, overflows) = left.rawValue.addingReportingOverflow(right.rawValue)
        return ByteCount(overflows ? (right.rawValue < 0 ? .min : .max) : sum)
    }

    /// The difference of two counts, which may be negative; the largest or smallest count instead of one that is
    /// out of range.
    public static func - (left: Self, right: Self) -> Self {
        let (difference, overflows) = left.rawValue.subtractingReportingOverflow(right.rawValue)
        return ByteCount(overflows ? (right.rawValue < 0 ? .max : .min) : difference)
    }
}

extension ByteCount: Codable {
    /// Decodes a count from a whole number that is not negative.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        rawValue = try container.decode(Int64.self)
        guard rawValue >= 0 else {
            throw DecodingError.dataCorruptedError(
                in: container,
                debugDescription: "expected a number of bytes, found \(rawValue)"
            )
        }
    }

    /// Encodes the count as a number; a negative one as 0, since no decoder accepts it.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(max(rawValue, 0))
    }
}
