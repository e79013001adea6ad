/// An HTTP date, which counts whole seconds (RFC 9110, section 5.6.7).
///
/// All HTTP dates are parsed and written here.
package struct HTTPDate: Hashable, Comparable, Sendable {
    /// Seconds since 1970, without leap seconds.
    package let seconds: Int64

    /// Creates a date from seconds since 1970.
    package init(seconds: Int64) { self.seconds = seconds }

    /// Parses a date in any of the three formats of RFC 9110, section 5.6.7; returns `nil` for other text and
    /// for dates that do not exist.
    ///
    /// Does not check the weekday.
    package init?(_ text: String) {
        let words = text.split { $0 == " " || $0 == "," || $0 == "-" }
        guard let date = words.count == 5 ? Self.reordered(words) : words, date.count == 6,
            date[5] == "GMT", let day = Self.digits(date[1]),
            let month = Self.months.firstIndex(of: String(date[2])),
            let year = Self.digits(date[3]),
            let time = Self.time(date[4]),
            let moment = CalendarTime(
                date: (Self.fullYear(year, of: date[3]), month + 1, day),
                time: time
            )
        else { return nil }
        seconds = moment.secondsSince1970
    }

    /// Orders dates by time.
    package static func < (left: Self, right: Self) -> Bool { left.seconds < right.seconds }

    /// Reorders the words of asctime(3) like those of the other formats.
    private static func reordered(_ words: [Substring]) -> [Substring]? {
        [words[0], words[2], words[1], words[4], words[3], "GMT"]
    }

    private static func time(_ text: Substring) -> (hour: Int, minute: Int, second: Int)? {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false).map(digits)
        guard parts.count == 3, let hour = parts[0], let minute = parts[1], let second = parts[2]
        else { return nil }
        return (hour, minute, second)
    }

    /// Returns the full year for the two digits of RFC 850.
    private static func fullYear(_ year: Int, of digits: Substring) -> Int {
        digits.utf8.count == 2 ? year + (year < 70 ? 2000 : 1900) : year
    }

    private static func digits(_ text: Substring) -> Int? {
        text.utf8.count <= 4 && text.utf8.allSatisfy(\.isASCIIDigit) ? Int(text) : nil
    }

    private static let weekdays = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]
}

extension HTTPDate: CustomStringConvertible {
    /// The date as in a header field: `Sun, 06 Nov 1994 08:49:37 GMT`.
    package var description: String {
        let time = CalendarTime(secondsSince1970: seconds)
        let (weekday, month) = (Self.weekdays[time.weekday], Self.months[time.month - 1])
        return
            "\(weekday), \(time.day.padded(to: 2)) \(month) \(time.year.padded(to: 4)) \(time.timeText) GMT"
    }

    /// The date for a table: `1994-11-06 08:49`.
    package var forTable: String {
        let time = CalendarTime(secondsSince1970: seconds)
        return "\(time.dateText) \(time.timeText.dropLast(3))"
    }
}
