import FoundationEssentials
import Glibc
package import StageModel

extension InternetTime {
    /// The local time for people, with the time that has passed since then or remains until then.
    package var text: String { text(at: InternetTime(Date())) }

    /// Returns the local time for people, such as `2030-12-31 23:59 (3 minutes ago)`.
    package func text(at now: InternetTime) -> String {
        "\(localTime(hasSeconds: false)) (\(distance(from: now)))"
    }

    /// The date and the time of day in the local time zone, as `2030-12-31 23:59:00`.
    package var localTime: String { localTime(hasSeconds: true) }

    private func localTime(hasSeconds: Bool) -> String {
        var time = time_t(secondsSince1970)
        var parts = unsafe tm()
        // A year that the C library cannot represent is printed in RFC 3339 format.
        guard unsafe localtime_r(&time, &parts) != nil else { return description }
        let date = unsafe [parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday].map(
            Self.twoDigits
        )
        let day = unsafe [parts.tm_hour, parts.tm_min, parts.tm_sec].map(Self.twoDigits)
        let shown = hasSeconds ? day[...] : day.dropLast()
        return date.joined(separator: "-") + " " + shown.joined(separator: ":")
    }

    private static func twoDigits(_ number: CInt) -> String {
        number < 10 ? "0\(number)" : "\(number)"
    }

    /// Returns the rounded time between this time and `now`: `3 minutes ago`, `in 2 hours`.
    private func distance(from now: InternetTime) -> String {
        let seconds = secondsSince1970 - now.secondsSince1970
        let words =
            switch abs(seconds) {
            case ..<2: "now"
            case ..<90: abs(seconds).quantity(of: "second")
            case ..<5400: ((abs(seconds) + 30) / 60).quantity(of: "minute")
            case ..<129_600: ((abs(seconds) + 1800) / 3600).quantity(of: "hour")
            default: ((abs(seconds) + 43_200) / 86_400).quantity(of: "day")
            }
        if abs(seconds) < 2 { return words }
        return seconds < 0 ? "\(words) ago" : "in \(words)"
    }
}
