public import StageModel

/// A point in time in whole seconds, as metadata writes its expiry.
public struct MetadataTime: Hashable, Sendable, Comparable {
    /// The seconds since 1970-01-01T00:00:00Z, without leap seconds.
    public let secondsSince1970: Int64

    /// Creates a point in time, which may be before 1970.
    public init(secondsSince1970: Int64) { self.secondsSince1970 = secondsSince1970 }

    /// Reads `YYYY-MM-DDTHH:MM:SSZ`, the only form that metadata may have.
    ///
    /// - Throws: ``ValueError`` for any other text, and for a date that no calendar has.
    public init(_ text: String) throws(ValueError) {
        let fault = ValueError(expected: "a time such as '2030-12-31T23:59:59Z'", text: text)
        let bytes = Array(text.utf8)
        let form = Array("0000-00-00T00:00:00Z".utf8)
        guard bytes.count == form.count else { throw fault }
        for (byte, expected) in zip(bytes, form) {
            let isDigit = (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
            guard expected == UInt8(ascii: "0") ? isDigit : byte == expected else { throw fault }
        }
        func number(_ range: Range<Int>) -> Int {
            bytes[range].reduce(0) { $0 * 10 + Int($1 - UInt8(ascii: "0")) }
        }
        let year = number(0..<4)
        let month = number(5..<7)
        let day = number(8..<10)
        let (hour, minute, second) = (number(11..<13), number(14..<16), number(17..<19))
        guard (1...12).contains(month), day >= 1, day <= Self.days(inMonth: month, of: year),
            hour < 24, minute < 60, second < 60
        else { throw fault }
        let days = Self.days(before: year, month: month) + day - 1
        secondsSince1970 = Int64(days * 86400 + hour * 3600 + minute * 60 + second)
    }

    /// Orders points in time, the earlier one first.
    public static func < (left: Self, right: Self) -> Bool {
        left.secondsSince1970 < right.secondsSince1970
    }

    private static func isLeap(_ year: Int) -> Bool {
        year.isMultiple(of: 4) && (!year.isMultiple(of: 100) || year.isMultiple(of: 400))
    }

    private static func days(inMonth month: Int, of year: Int) -> Int {
        switch month {
        case 2: isLeap(year) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }

    /// Days from 1970-01-01 to the first day of a month of the Gregorian calendar.
    private static func days(before year: Int, month: Int) -> Int {
        // Years begin in March here, so that the leap day is the last of its year.
        let (year, month) = month > 2 ? (year, month - 3) : (year - 1, month + 9)
        let leapDays =
            year.floorDivided(by: 4) - year.floorDivided(by: 100) + year.floorDivided(by: 400)
        return 365 * year + leapDays + (153 * month + 2) / 5 - 719_468
    }
}

extension MetadataTime: CustomStringConvertible {
    /// The time in UTC as `YYYY-MM-DDTHH:MM:SSZ`.
    public var description: String {
        let days = Int(secondsSince1970).floorDivided(by: 86400)
        let rest = Int(secondsSince1970 % 86400)
        let second = rest < 0 ? rest + 86400 : rest
        let (year, month, day) = Self.date(ofDay: days)
        let date =
            "\(Self.padded(year, to: 4))-\(Self.padded(month, to: 2))-\(Self.padded(day, to: 2))"
        let hours = "\(Self.padded(second / 3600, to: 2)):\(Self.padded(second / 60 % 60, to: 2))"
        return "\(date)T\(hours):\(Self.padded(second % 60, to: 2))Z"
    }

    /// The date of a day counted from 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date
    /// Algorithms").
    private static func date(ofDay days: Int) -> (year: Int, month: Int, day: Int) {
        // The Gregorian calendar repeats after 400 years, which begin in March here.
        let shifted = days + 719_468
        let era = shifted.floorDivided(by: 146_097)
        let day = shifted - era * 146_097
        let year = (day - day / 1460 + day / 36524 - day / 146_096) / 365
        let dayOfYear = day - (365 * year + year / 4 - year / 100)
        let month = (5 * dayOfYear + 2) / 153
        let isNextYear = month >= 10
        return (
            year + era * 400 + (isNextYear ? 1 : 0),
            isNextYear ? month - 9 : month + 3,
            dayOfYear - (153 * month + 2) / 5 + 1
        )
    }

    private static func padded(_ number: Int, to width: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }
}

extension Int {
    /// The quotient rounded down, also for negative numbers.
    fileprivate func floorDivided(by divisor: Int) -> Int {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? quotient - 1 : quotient
    }
}
