package import FoundationEssentials

/// A point in time in RFC 3339 format.
///
/// All such dates are parsed and written here.
package struct InternetTime: Hashable, Comparable, Sendable {
    /// The whole seconds since 1970-01-01T00:00:00Z, rounded down, without leap seconds.
    package let secondsSince1970: Int64
    /// The part of a second after ``secondsSince1970``, in nanoseconds.
    package let nanoseconds: Int

    /// Creates a point in time, which may be before 1970.
    package init(secondsSince1970: Int64, nanoseconds: Int = 0) {
        precondition((0..<1_000_000_000).contains(nanoseconds))
        self.secondsSince1970 = secondsSince1970
        self.nanoseconds = nanoseconds
    }

    /// Parses an RFC 3339 date (section 5.6) of the years 0000 to 9999, with any offset and any number of
    /// decimals, of which nine count.
    ///
    /// A leap second must be the last second of a day in UTC; it counts as the second after it.
    ///
    /// - Throws: ``ValueError`` for other text and for dates that do not exist.
    package init(_ text: String) throws(ValueError) {
        guard let time = Self(reading: text) else {
            throw ValueError(expected: "a time such as '2030-12-31T23:59:59Z'", text: text)
        }
        self = time
    }

    private init?(reading text: String) {
        var rest = text.utf8[...]
        func number(_ digits: Int, after separator: String = "") -> Int? {
            guard let first = rest.first ?? separator.utf8.first,
                separator.isEmpty || separator.utf8.contains(first)
            else { return nil }
            rest = rest.dropFirst(separator.isEmpty ? 0 : 1)
            let part = rest.prefix(digits)
            rest = rest.dropFirst(digits)
            guard part.count == digits, part.allSatisfy(\.isASCIIDigit) else { return nil }
            return Int(Substring(part))
        }
        guard let year = number(4), let month = number(2, after: "-"),
            let day = number(2, after: "-"), let hour = number(2, after: "Tt"),
            let minute = number(2, after: ":"), let second = number(2, after: ":"),
            let local = CalendarTime(date: (year, month, day), time: (hour, minute, second)),
            let nanoseconds = Self.fraction(in: &rest)
        else { return nil }
        var offset = 0
        if rest.elementsEqual("Z".utf8) || rest.elementsEqual("z".utf8) {
            rest = rest.dropFirst()
        } else {
            let sign = rest.first == UInt8(ascii: "-") ? -60 : 60
            guard let hours = number(2, after: "+-"), let minutes = number(2, after: ":"),
                hours < 24, minutes < 60
            else { return nil }
            offset = (hours * 60 + minutes) * sign
        }
        guard rest.isEmpty else { return nil }
        let seconds = local.secondsSince1970 - Int64(offset)
        // A leap second is the last of a day; it counts as the first second of the next day.
        guard second < 60 || seconds.isMultiple(of: 86400) else { return nil }
        self.init(secondsSince1970: seconds, nanoseconds: nanoseconds)
    }

    /// Parses the decimals of a second; 0 if there are none.
    private static func fraction(in rest: inout Substring.UTF8View) -> Int? {
        guard rest.first == UInt8(ascii: ".") else { return 0 }
        let digits = rest.dropFirst().prefix(while: \.isASCIIDigit)
        rest = rest.dropFirst(1 + digits.count)
        guard !digits.isEmpty else { return nil }
        let counted = Substring(digits.prefix(9))
        return Int(counted + String(repeating: "0", count: 9 - counted.utf8.count))
    }

    /// Orders points in time, earlier ones first.
    package static func < (left: Self, right: Self) -> Bool {
        (left.secondsSince1970, left.nanoseconds) < (right.secondsSince1970, right.nanoseconds)
    }

    /// The time in UTC as `YYYY-MM-DDTHH:MM:SS.mmmZ`, rounded down to milliseconds.
    package var textWithMilliseconds: String {
        "\(description.dropLast()).\((nanoseconds / 1_000_000).padded(to: 3))Z"
    }
}

extension InternetTime: CustomStringConvertible {
    /// The time in UTC as `YYYY-MM-DDTHH:MM:SSZ`, rounded down to seconds.
    ///
    /// A year after 9999 has more than four digits, which RFC 3339 does not allow; ``init(_:)-(Date)`` never
    /// creates one.
    package var description: String {
        let time = CalendarTime(secondsSince1970: secondsSince1970)
        return "\(time.dateText)T\(time.timeText)Z"
    }
}

extension InternetTime {
    /// The range of seconds that RFC 3339 can represent: the years 0000 to 9999.
    private static let seconds = -62_167_219_200.0...253_402_300_799.0

    /// Creates a point in time from a Foundation date, rounded to milliseconds and clamped to the range of
    /// RFC 3339.
    package init(_ date: Date) {
        let seconds = date.timeIntervalSince1970
        let clamped =
            seconds.isNaN ? 0 : min(max(seconds, Self.seconds.lowerBound), Self.seconds.upperBound)
        let milliseconds = Int64((clamped * 1000).rounded())
        let rest = ((milliseconds % 1000) + 1000) % 1000
        self.init(
            secondsSince1970: (milliseconds - rest) / 1000,
            nanoseconds: Int(rest) * 1_000_000
        )
    }

    /// The point in time as a Foundation date.
    package var date: Date {
        Date(timeIntervalSince1970: Double(secondsSince1970) + Double(nanoseconds) / 1e9)
    }
}
