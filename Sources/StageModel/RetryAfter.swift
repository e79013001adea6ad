/// Value of a `Retry-After` field (RFC 9110, section 10.2.3).
package enum RetryAfter {
    /// Reads the delay that a server asks for; `nil` if the value has neither of the two forms.
    ///
    /// - Parameters:
    ///   - value: A number of seconds, or a date.
    ///   - date: Value of the `Date` field of the same answer, from which a date is measured.
    /// - Returns: The delay, 0 to 24 hours.
    package static func delay(in value: String, answeredAt date: String?) -> Duration? {
        let day: Int64 = 24 * 60 * 60
        if let seconds = Int64(value) { return .seconds(min(max(seconds, 0), day)) }
        guard let until = HTTPDate(value), let date, let now = HTTPDate(date) else { return nil }
        return .seconds(min(max(until.seconds - now.seconds, 0), day))
    }
}
