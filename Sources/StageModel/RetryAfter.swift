/// The value of a `Retry-After` field (RFC 9110, section 10.2.3).
package enum RetryAfter {
    /// Parses the delay that a server requests; `nil` if the value is neither a number nor a date, or names no later time.
    ///
    /// - Parameters:
    ///   - value: A number of seconds, or a date.
    ///   - date: The `Date` field of the same response, to which a date is relative; `nil` if it has none.
    ///   - now: The current time, for a response without a usable `Date` and for dates whose year has two digits.
    /// - Returns: The delay, up to 24 hours.
    package static func delay(
        in value: String,
        answeredAt date: String?,
        readAt now: @autoclosure () -> HTTPDate
    ) -> Duration? {
        let day: Int64 = 24 * 60 * 60
        let seconds: Int64
        if let number = Int64(value) {
            seconds = number
        } else if !value.isEmpty, value.utf8.allSatisfy({ (0x30...0x39).contains($0) }) {
            seconds = day
        } else if let until = HTTPDate(value, readAt: now()) {
            let answered = date.flatMap { HTTPDate($0, readAt: now()) } ?? now()
            seconds = until.seconds - answered.seconds
        } else {
            return nil
        }
        return seconds > 0 ? .seconds(min(seconds, day)) : nil
    }
}
