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
    ///
    /// - Parameters:
    ///   - text: The value of a header field.
    ///   - now: The current time. A year of two digits is the latest one that is at most 50 years in the future.
    package init?(_ text: String, readAt now: @autoclosure () -> HTTPDate) {
        let words = text.split { $0 == " " || $0 == "," || $0 == "-" }
        guard let date = words.count == 5 ? Self.reordered(words) : words, date.count == 6,
            date[5] == "GMT", let day = Self.digits(date[1]),
            let month = Self.months.firstIndex(of: String(date[2])),
            let year = Self.digits(date[3]),
            let time = Self.time(date[4]),
            var moment = CalendarTime(date: (year, month + 1, day), time: time)
        else { return nil }
        if date[3].utf8.count == 2 {
            var limit = CalendarTime(secondsSince1970: now().seconds)
            limit.year += 50
            moment.year += limit.year - limit.year % 100
            if moment.secondsSince1970 > limit.secondsSince1970 { moment.year -= 100 }
        }
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
