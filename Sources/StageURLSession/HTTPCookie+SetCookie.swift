import Foundation
import FoundationNetworking
import StageModel

extension HTTPCookie {
    /// Creates the cookie of a `Set-Cookie` field (RFC 6265, sections 5.2 and 5.3); `nil` if the RFC ignores the field.
    ///
    /// Foundation's own parser on Linux ignores `Max-Age`, does not derive a default path, and splits values at commas.
    /// The domain has a leading dot, as on Apple's systems, if the cookie is for the hosts below it, too.
    convenience init?(setCookie field: String, from url: URL, at now: Date) {
        guard let parsed = SetCookie(field),
            let host = URLReference(url.absoluteString).origin?.host,
            let domain = parsed.domain(setBy: host)
        else { return nil }
        var properties: [HTTPCookiePropertyKey: Any] = [
            .name: parsed.name, .value: parsed.value, .domain: domain,
            .path: parsed.path ?? url.defaultCookiePath, .originURL: url,
        ]
        if let end = parsed.end(for: now) {
            properties[.expires] = end
        } else {
            properties[.discard] = "TRUE"
        }
        if parsed.isSecure { properties[.secure] = "TRUE" }
        if parsed.isHTTPOnly { properties[HTTPCookiePropertyKey(rawValue: "HttpOnly")] = "TRUE" }
        self.init(properties: properties)
    }

    /// Time when the object was created, in seconds; the storage recreates those of an earlier process.
    var created: TimeInterval {
        properties?[HTTPCookiePropertyKey(rawValue: "Created")] as? TimeInterval ?? 0
    }
}

extension URL {
    /// The path as a request has it, percent-encoded.
    var requestPath: String {
        let path = URLComponents(url: self, resolvingAgainstBaseURL: true)?.percentEncodedPath
        return path.flatMap { $0.isEmpty ? nil : $0 } ?? "/"
    }

    /// Path of a cookie that has none of its own (RFC 6265, section 5.1.4).
    fileprivate var defaultCookiePath: String {
        let path = requestPath
        guard path.hasPrefix("/"), let slash = path.lastIndex(of: "/"), slash > path.startIndex
        else { return "/" }
        return String(path[..<slash])
    }
}

/// A parsed `Set-Cookie` field (RFC 6265, section 5.2).
private struct SetCookie {
    let name: String
    let value: String
    /// Value of `Path`, if it is absolute.
    private(set) var path: String?
    private(set) var isSecure = false
    private(set) var isHTTPOnly = false
    /// Value of `Domain` in lower case, without a leading dot.
    private var domain: String?
    private var expires: HTTPDate?
    private var maximumAge: TimeInterval?

    /// Parses a field; `nil` if it has no name.
    init?(_ field: String) {
        let parts = field.split(separator: ";", omittingEmptySubsequences: false)
        guard let (name, found) = parts.first.flatMap(Self.pair), let value = found, !name.isEmpty
        else { return nil }
        (self.name, self.value) = (name, value)
        for part in parts.dropFirst() {
            guard let (name, value) = Self.pair(part) else { continue }
            take(name.lowercased(), value: value ?? "")
        }
    }

    /// Returns the two sides of an equals sign without surrounding blanks; without a sign there is no value.
    private static func pair(_ text: Substring) -> (name: String, value: String?)? {
        let sides = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            .map { $0.trimmingCharacters(in: .whitespaces) }
        return sides.first.map { ($0, sides.count > 1 ? sides[1] : nil) }
    }

    /// Takes an attribute, the last of each name.
    private mutating func take(_ name: String, value: String) {
        switch name {
        case "expires": expires = HTTPDate(cookie: value) ?? expires
        case "max-age": maximumAge = Self.seconds(value) ?? maximumAge
        case "domain":
            if !value.isEmpty { domain = value.drop { $0 == "." }.lowercased() }
        case "path": path = value.hasPrefix("/") ? value : nil
        case "secure": isSecure = true
        case "httponly": isHTTPOnly = true
        default: break
        }
    }

    /// Parses the value of `Max-Age`, and limits it to 2³¹ seconds.
    private static func seconds(_ text: String) -> TimeInterval? {
        let digits = text.hasPrefix("-") ? text.dropFirst() : text[...]
        guard !digits.isEmpty, digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            return nil
        }
        return text.hasPrefix("-") ? 0 : TimeInterval(min(Int64(digits) ?? .max, 1 << 31))
    }

    /// Returns when the cookie expires; `nil` for the end of the session.
    func end(for now: Date) -> Date? {
        if let maximumAge { return maximumAge > 0 ? now + maximumAge : .distantPast }
        return expires.map { Date(timeIntervalSince1970: TimeInterval($0.seconds)) }
    }

    /// Returns the domain of a cookie that a host has set; `nil` if the host may not set it.
    func domain(setBy host: String) -> String? {
        guard let domain, domain != host else {
            // An address, or a name without a dot, has no subdomains.
            return domain != nil && host.contains(".") && !host.isAddress ? ".\(host)" : host
        }
        guard domain.contains("."), host.hasSuffix(".\(domain)"), !host.isAddress else {
            return nil
        }
        return ".\(domain)"
    }
}

extension String {
    /// `true` if the host is an IP address.
    fileprivate var isAddress: Bool {
        guard let label = split(separator: ".").last, !hasPrefix("[") else { return true }
        return label.utf8.allSatisfy { (0x30...0x39).contains($0) }
    }
}
