extension HTTPDate {
    /// Parses the expiration date of a cookie, which servers write in many formats (RFC 6265, section 5.1.1); returns
    /// `nil` for other text and for dates that do not exist.
    package init?(cookie text: String) {
        var parts = CookieDate()
        for word in text.utf8.split(whereSeparator: CookieDate.isDelimiter) {
            parts.take(Substring(word))
        }
        guard let moment = parts.moment else { return nil }
        self.init(seconds: moment.secondsSince1970)
    }
}

/// Parts of a cookie's date in any order, each by the first word that has its form.
private struct CookieDate {
    private var time: (hour: Int, minute: Int, second: Int)?
    private var day: Int?
    private var month: Int?
    private var year: Int?

    private static let months = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ]

    /// Returns whether a byte separates words.
    static func isDelimiter(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x09, 0x20...0x2F, 0x3B...0x40, 0x5B...0x60, 0x7B...0x7E: true
        default: false
        }
    }

    /// Uses a word as the first missing part whose form it has.
    mutating func take(_ word: Substring) {
        if time == nil, let found = Self.time(word) {
            time = found
        } else if day == nil, let found = Self.number(word, digits: 1...2) {
            day = found
        } else if month == nil, let found = Self.months.firstIndex(of: word.prefix(3).lowercased())
        {
            month = found + 1
        } else if year == nil, let found = Self.number(word, digits: 2...4) {
            year = found < 70 ? found + 2000 : found < 100 ? found + 1900 : found
        }
    }

    /// The date, if it is complete, exists and is not before 1601.
    var moment: CalendarTime? {
        guard let time, let day, let month, let year, year >= 1601 else { return nil }
        return CalendarTime(date: (year, month, day), time: time)
    }

    private static func time(_ word: Substring) -> (hour: Int, minute: Int, second: Int)? {
        let parts = word.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count >= 3, parts[..<2].allSatisfy({ $0.utf8.allSatisfy(\.isASCIIDigit) }),
            let hour = number(parts[0], digits: 1...2),
            let minute = number(parts[1], digits: 1...2),
            let second = number(parts[2], digits: 1...2)
        else { return nil }
        return (hour, minute, second)
    }

    /// Returns the number that a word begins with, if it has so many digits.
    private static func number(_ word: Substring, digits: ClosedRange<Int>) -> Int? {
        let start = word.utf8.prefix(while: \.isASCIIDigit)
        return digits.contains(start.count) ? Int(Substring(start)) : nil
    }
}
