/// A moment in HTTP, which counts whole seconds (RFC 9110, section 5.6.7): the one reader and writer of such dates.
package struct HTTPDate: Hashable, Comparable, Sendable {
    /// Seconds since 1970, leap seconds not counted.
    package let seconds: Int64

    /// Creates the moment `seconds` after the start of 1970.
    package init(seconds: Int64) { self.seconds = seconds }

    /// Reads a date in any of the three forms of RFC 9110, section 5.6.7, or returns `nil` for other text and for a
    /// date that no calendar has.
    ///
    /// The name of the weekday is not compared with the date.
    package init?(_ text: String) {
        let words = text.split { $0 == " " || $0 == "," || $0 == "-" }
        guard let date = words.count == 5 ? Self.reordered(words) : words, date.count == 6,
            date[5] == "GMT", let day = Self.digits(date[1]),
            let month = Self.months.firstIndex(of: String(date[2])),
            let year = Self.digits(date[3]),
            let time = Self.time(date[4]),
            let moment = CalendarTime((Self.fullYear(year, of: date[3]), month + 1, day), time)
        else { return nil }
        seconds = moment.secondsSince1970
    }

    /// Orders moments by time.
    package static func < (left: Self, right: Self) -> Bool { left.seconds < right.seconds }

    /// Turns the words of asctime(3) into the order of the other forms.
    private static func reordered(_ words: [Substring]) -> [Substring]? {
        [words[0], words[2], words[1], words[4], words[3], "GMT"]
    }

    private static func time(_ text: Substring) -> (hour: Int, minute: Int, second: Int)? {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false).map(digits)
        guard parts.count == 3, let hour = parts[0], let minute = parts[1], let second = parts[2]
        else { return nil }
        return (hour, minute, second)
    }

    /// The year that digits stand for: RFC 850 has two.
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
    /// The moment as a field has it: `Sun, 06 Nov 1994 08:49:37 GMT`.
    package var description: String {
        let time = CalendarTime(secondsSince1970: seconds)
        let (weekday, month) = (Self.weekdays[time.weekday], Self.months[time.month - 1])
        return
            "\(weekday), \(time.day.padded(to: 2)) \(month) \(time.year.padded(to: 4)) \(time.timeText) GMT"
    }

    /// The moment as a person reads it in a table: `1994-11-06 08:49`.
    package var forTable: String {
        let time = CalendarTime(secondsSince1970: seconds)
        return "\(time.dateText) \(time.timeText.dropLast(3))"
    }
}
