/// A date and time of day in UTC (Gregorian calendar), in whole seconds; converts to and from seconds since
/// 1970.
struct CalendarTime: Equatable {
    var year: Int
    /// The month, and the day of the month, both from 1.
    var (month, day): (Int, Int)
    var (hour, minute, second): (Int, Int, Int)

    /// Creates a time from its parts, or returns `nil` if the date or the time of day does not exist.
    ///
    /// A second may be 60: ``secondsSince1970`` counts a leap second as the second after it.
    init?(date: (year: Int, month: Int, day: Int), time: (hour: Int, minute: Int, second: Int)) {
        guard (1...12).contains(date.month),
            (1...Self.days(inMonth: date.month, of: date.year)).contains(date.day),
            (0..<24).contains(time.hour), (0..<60).contains(time.minute),
            (0...60).contains(time.second)
        else { return nil }
        (year, month, day) = date
        (hour, minute, second) = time
    }

    /// Creates a time from seconds since 1970, without leap seconds.
    init(secondsSince1970 seconds: Int64) {
        let days = Int(seconds).floorDivided(by: 86400)
        (year, month, day) = Self.date(ofDay: days)
        let rest = Int(seconds % 86400)
        let time = rest < 0 ? rest + 86400 : rest
        (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60)
    }

    /// The seconds since 1970, without leap seconds.
    var secondsSince1970: Int64 {
        Int64(dayNumber * 86400 + hour * 3600 + minute * 60 + second)
    }

    /// The day of the week, 0 for Sunday.
    var weekday: Int {
        // 1970 began on a Thursday.
        let day = dayNumber + 4
        return day - day.floorDivided(by: 7) * 7
    }

    /// The date as `YYYY-MM-DD`.
    var dateText: String {
        "\(year.padded(to: 4))-\(month.padded(to: 2))-\(day.padded(to: 2))"
    }

    /// The time of day as `HH:MM:SS`.
    var timeText: String {
        "\(hour.padded(to: 2)):\(minute.padded(to: 2)):\(second.padded(to: 2))"
    }

    private static func days(inMonth month: Int, of year: Int) -> Int {
        let isLeap =
            year.isMultiple(of: 4) && (!year.isMultiple(of: 100) || year.isMultiple(of: 400))
        return switch month {
        case 2: isLeap ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }

    /// Days from 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    private var dayNumber: Int {
        // Years start in March here, so that the leap day is the last day of its year.
        let (year, month) = month > 2 ? (year, month - 3) : (year - 1, month + 9)
        let leapDays =
            year.floorDivided(by: 4) - year.floorDivided(by: 100) + year.floorDivided(by: 400)
        return 365 * year + leapDays + (153 * month + 2) / 5 - 719_468 + day - 1
    }

    /// Returns the date of a day counted from 1970-01-01.
    private static func date(ofDay days: Int) -> (year: Int, month: Int, day: Int) {
        // The Gregorian calendar repeats after 400 years.
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
}

extension Int {
    /// Returns the number with leading zeros, at least `width` characters long.
    func padded(to width: Int) -> String {
        let digits = String(self)
        return String(repeating: "0", count: Swift.max(0, width - digits.count)) + digits
    }

    /// Returns the quotient rounded down, also for negative numbers.
    fileprivate func floorDivided(by divisor: Int) -> Int {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? quotient - 1 : quotient
    }
}
