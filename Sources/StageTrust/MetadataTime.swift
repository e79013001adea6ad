public import StageModel

/// A point in time in whole seconds, as in the expiry of metadata.
public struct MetadataTime: Hashable, Sendable, Comparable {
    /// The seconds since 1970-01-01T00:00:00Z, without leap seconds.
    public let secondsSince1970: Int64

    /// Creates a point in time, which may be before 1970.
    public init(secondsSince1970: Int64) { self.secondsSince1970 = secondsSince1970 }

    /// Parses `YYYY-MM-DDTHH:MM:SSZ`, the only format that metadata may use.
    ///
    /// - Throws: ``ValueError`` for other text and for dates that do not exist.
    public init(_ text: String) throws(ValueError) {
        let time = try InternetTime(text)
        guard time.description == text else {
            throw ValueError(expected: "a time such as '2030-12-31T23:59:59Z'", text: text)
        }
        secondsSince1970 = time.secondsSince1970
    }

    /// Orders points in time, earlier ones first.
    public static func < (left: Self, right: Self) -> Bool {
        left.secondsSince1970 < right.secondsSince1970
    }
}

extension MetadataTime: CustomStringConvertible {
    /// The time in UTC as `YYYY-MM-DDTHH:MM:SSZ`.
    public var description: String {
        InternetTime(secondsSince1970: secondsSince1970).description
    }
}
