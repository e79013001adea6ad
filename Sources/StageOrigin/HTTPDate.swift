/// A moment in HTTP, which counts whole seconds (RFC 9110 §5.6.7).
struct HTTPDate: Equatable, Comparable, Sendable {
    /// Seconds since 1970, leap seconds not counted.
    var seconds: Int64

    /// Creates the moment `seconds` after the start of 1970.
    init(seconds: Int64) { self.seconds = seconds }

    /// Reads a date in any of the three forms of §5.6.7, or returns `nil` for other text.
    init?(_ text: String) {
        let words = text.split { $0 == " " || $0 == "," || $0 == "-" }
        guard let date = words.count == 5 ? Self.reordered(words) : words, date.count == 6,
            date[5] == "GMT", let day = Self.digits(date[1]), (1...31).contains(day),
            let month = Self.months.firstIndex(of: String(date[2])),
            let year = Self.digits(date[3]),
            let time = Self.time(date[4])
        else { return nil }
        // RFC 850 has two digits for the year.
        let fullYear = date[3].count == 2 ? year + (year < 70 ? 2000 : 1900) : year
        seconds = Self.days(fullYear, Int64(month) + 1, day) * 86400 + time
    }

    /// Orders moments by time.
    static func < (left: Self, right: Self) -> Bool { left.seconds < right.seconds }

    /// Turns the words of asctime(3) into the order of the other forms.
    private static func reordered(_ words: [Substring]) -> [Substring]? {
        [words[0], words[2], words[1], words[4], words[3], "GMT"]
    }

    private static func time(_ text: Substring) -> Int64? {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false).map(digits)
        guard parts.count == 3, let hours = parts[0], let minutes = parts[1],
            let seconds = parts[2], hours < 24, minutes < 60, seconds < 61
        else { return nil }
        return hours * 3600 + minutes * 60 + seconds
    }

    private static func digits(_ text: Substring) -> Int64? {
        text.count <= 4 && text.allSatisfy { ("0"..."9").contains($0) } ? Int64(text) : nil
    }

    /// Days since 1970 of a date (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    private static func days(_ year: Int64, _ month: Int64, _ day: Int64) -> Int64 {
        let year = month <= 2 ? year - 1 : year
        let era = (year >= 0 ? year : year - 399) / 400
        let yearOfEra = year - era * 400
        let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
            - 719_468
    }

    /// The inverse of ``days(_:_:_:)``.
    private var date: (year: Int64, month: Int64, day: Int64) {
        let days = dayNumber + 719_468
        let era = (days >= 0 ? days : days - 146_096) / 146_097
        let dayOfEra = days - era * 146_097
        let yearOfEra =
            (dayOfEra - dayOfEra / 1460 + dayOfEra / 36524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shifted = (5 * dayOfYear + 2) / 153
        let month = shifted + (shifted < 10 ? 3 : -9)
        let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
        return (year, month, dayOfYear - (153 * shifted + 2) / 5 + 1)
    }

    private var dayNumber: Int64 { (seconds - secondOfDay) / 86400 }
    private var secondOfDay: Int64 { ((seconds % 86400) + 86400) % 86400 }

    private var time: String {
        let numbers = [secondOfDay / 3600, secondOfDay / 60 % 60, secondOfDay % 60]
        return numbers.map { Self.padded($0, 2) }.joined(separator: ":")
    }

    private static func padded(_ number: Int64, _ width: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }

    private static let weekdays = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]
}

extension HTTPDate: CustomStringConvertible {
    /// The moment as a field has it: `Sun, 06 Nov 1994 08:49:37 GMT`.
    var description: String {
        // 1970 began on a Thursday.
        let weekday = Self.weekdays[Int(((dayNumber + 4) % 7 + 7) % 7)]
        let (year, month, day) = date
        let name = Self.months[Int(month) - 1]
        return "\(weekday), \(Self.padded(day, 2)) \(name) \(Self.padded(year, 4)) \(time) GMT"
    }

    /// The moment as a person reads it in a table: `1994-11-06 08:49`.
    var forTable: String {
        let (year, month, day) = date
        let numbers = [Self.padded(year, 4), Self.padded(month, 2), Self.padded(day, 2)]
        return numbers.joined(separator: "-") + " " + time.dropLast(3)
    }
}
