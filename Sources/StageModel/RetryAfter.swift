/// The value of a `Retry-After` field (RFC 9110, section 10.2.3).
package enum RetryAfter {
    /// Parses the delay that a server requests; `nil` if the value is neither a number nor a date.
    ///
    /// - Parameters:
    ///   - value: A number of seconds, or a date.
    ///   - date: The `Date` field of the same response, to which a date is relative.
    ///   - now: The current time, for dates whose year has two digits.
    /// - Returns: The delay, 0 to 24 hours.
    package static func delay(
        in value: String,
        answeredAt date: String?,
        readAt now: @autoclosure () -> HTTPDate
    ) -> Duration? {
        let day: Int64 = 24 * 60 * 60
        if let seconds = Int64(value) { return .seconds(min(max(seconds, 0), day)) }
        guard let until = HTTPDate(value, readAt: now()), let date,
            let answered = HTTPDate(date, readAt: now())
        else { return nil }
        return .seconds(min(max(until.seconds - answered.seconds, 0), day))
    }
}
