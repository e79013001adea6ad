/// The scheme, host and port of an http or https URL (RFC 6454, section 4), which determine the server.
///
/// All decisions about servers use this type: domain lists, credentials, connection limits. A host that
/// programs interpret differently has no origin, so that no decision is made for another server than the one
/// that receives the request.
package struct URLOrigin: Hashable, Sendable {
    /// `http` or `https`.
    package let scheme: String
    /// The host in lower case; an IPv6 address in brackets, in the format of RFC 5952 without dotted
    /// decimals.
    package let host: String
    /// The port; the scheme's default port if the URL has none.
    package let port: UInt16

    /// The host and port.
    package var authority: String { "\(host):\(port)" }

    /// Creates an origin from separate parts; `nil` if they are invalid.
    package init?(scheme: String, host: String, port: String) {
        guard let port = UInt16(port), let host = Self.canonicalHost(host) else { return nil }
        self.init(scheme: scheme, host: host, port: port)
    }

    fileprivate init(scheme: String, host: String, port: UInt16?) {
        self.scheme = scheme
        self.host = host
        self.port = port ?? Self.defaultPort(of: scheme)
    }

    private static func defaultPort(of scheme: String) -> UInt16 { scheme == "http" ? 80 : 443 }

    /// Returns the canonical form of a host, or `nil` for a host that programs interpret differently.
    ///
    /// A name consists of labels of ASCII letters, digits, `-` and `_`, with or without a final dot; it has
    /// no percent-encoding, and names in other scripts use `xn--`. An IPv4 address has four decimal numbers,
    /// because libcurl and resolvers also accept `0x7f.1` and `2130706433` as addresses. An IPv6 address is
    /// in brackets and has no zone.
    package static func canonicalHost(_ host: String) -> String? {
        if host.utf8.first == UInt8(ascii: "[") {
            guard host.utf8.last == UInt8(ascii: "]") else { return nil }
            return IPAddress(ipv6: String(host.dropFirst().dropLast())).map { "[\($0)]" }
        }
        // Some non-ASCII letters become ASCII letters in lower case.
        guard host.utf8.allSatisfy({ $0 < 0x80 }) else { return nil }
        var labels = host.lowercased().split(separator: ".", omittingEmptySubsequences: false)
        let isRooted = labels.count > 1 && labels.last?.isEmpty == true
        if isRooted { labels.removeLast() }
        guard let last = labels.last, labels.allSatisfy({ $0.isHostLabel }) else { return nil }
        guard !last.isNumber || !isRooted && IPAddress(ipv4: host) != nil else { return nil }
        return host.lowercased()
    }
}

extension URLOrigin: CustomStringConvertible {
    /// The origin as a URL with its port.
    package var description: String { "\(scheme)://\(authority)" }
}

extension URLReference {
    /// The scheme in lower case, or `nil` for a relative reference.
    package var schemeName: String? { scheme?.lowercased() }

    /// The origin of an http or https URL; `nil` for other URLs, and for those that ``checkOrigin()``
    /// refuses.
    package var origin: URLOrigin? { try? checkOrigin() }

    /// Indicates whether the URL contains a user name.
    package var hasUser: Bool { authority?.utf8.contains(UInt8(ascii: "@")) ?? false }

    /// The URL without user name and password.
    package var withoutUser: URLReference {
        var url = self
        if let authority, let at = authority.utf8.lastIndex(of: UInt8(ascii: "@")) {
            url.authority = Substring(authority.utf8[at...].dropFirst())
        }
        return url
    }

    /// Returns the URL with the user name and password of another one instead of its own.
    package func withUser(of other: URLReference) -> URLReference {
        var url = withoutUser
        if let source = other.authority, let at = source.utf8.lastIndex(of: UInt8(ascii: "@")),
            let authority = url.authority
        {
            url.authority = source[...at] + authority
        }
        return url
    }

    /// Indicates whether this is an http or https URL with a host that programs interpret differently.
    package var hasAmbiguousHost: Bool {
        guard ["http", "https"].contains(schemeName),
            let host = authority.flatMap({ URLAuthority($0)?.host }), !host.isEmpty
        else { return false }
        return URLOrigin.canonicalHost(host) == nil
    }

    /// Returns the origin of an http or https URL.
    ///
    /// - Throws: ``ValueError`` if the URL has another scheme, no host, or parts that programs interpret
    ///   differently.
    package func checkOrigin() throws(ValueError) -> URLOrigin {
        guard let scheme = schemeName, ["http", "https"].contains(scheme) else {
            throw ValueError(expected: "an http or https URL", text: withoutUser.text)
        }
        guard let authority, !authority.isEmpty else {
            throw ValueError(expected: "a URL with a host", text: text)
        }
        guard let parts = URLAuthority(authority) else {
            throw ValueError(
                expected: "a URL with a host, a port up to 65535 and one user at most",
                text: withoutUser.text
            )
        }
        guard !parts.host.isEmpty else {
            throw ValueError(expected: "a URL with a host", text: withoutUser.text)
        }
        guard let host = URLOrigin.canonicalHost(parts.host) else {
            throw ValueError(
                expected: "a host of ASCII letters, digits, '-', '_' and '.', or an IP address",
                text: parts.host
            )
        }
        return URLOrigin(scheme: scheme, host: host, port: parts.port)
    }

    /// The absolute path of a local file URL, percent-decoded and without `.` and `..`; `nil` for other URLs,
    /// and for paths that programs interpret differently.
    package var filePath: String? {
        let isHere = authority.map { ["", "localhost"].contains($0.lowercased()) } ?? true
        guard schemeName == "file", isHere, path.utf8.first == UInt8(ascii: "/"),
            let decoded = Self.removingDotSegments(path).percentDecoded,
            !decoded.utf8.contains(where: { $0 < 0x20 || $0 == 0x7F }),
            !decoded.pathComponents.contains(where: { $0 == "." || $0 == ".." })
        else { return nil }
        return decoded
    }
}

/// The user, host and port of an authority (RFC 3986, section 3.2).
private struct URLAuthority {
    /// The host as written.
    var host: String
    var port: UInt16?

    /// Parses an authority, or returns `nil` if its syntax is invalid.
    init?(_ text: Substring) {
        var rest = text
        if let at = text.utf8.firstIndex(of: UInt8(ascii: "@")) {
            guard text[..<at].utf8.allSatisfy(\.isAllowedInUser) else { return nil }
            rest = Substring(text.utf8[at...].dropFirst())
        }
        guard !rest.utf8.contains(UInt8(ascii: "@")) else { return nil }
        let isBracketed = rest.utf8.first == UInt8(ascii: "[")
        let end =
            isBracketed
            ? rest.utf8.firstIndex(of: UInt8(ascii: "]")).map(rest.utf8.index(after:))
            : rest.utf8.firstIndex(of: UInt8(ascii: ":")) ?? rest.endIndex
        guard let end else { return nil }
        host = String(rest[..<end])
        rest = rest[end...]
        // A colon without a port means the default port (RFC 3986, section 3.2.3).
        guard !rest.isEmpty, rest != ":" else { return }
        let digits = Substring(rest.utf8.dropFirst())
        guard rest.utf8.first == UInt8(ascii: ":"), digits.utf8.allSatisfy(\.isASCIIDigit),
            let port = UInt16(digits)
        else { return nil }
        self.port = port
    }
}

extension Substring {
    /// Indicates whether this is a valid label of a host name.
    fileprivate var isHostLabel: Bool {
        !isEmpty
            && utf8.allSatisfy { $0.isASCIILetter || $0.isASCIIDigit || $0 == 0x2D || $0 == 0x5F }
    }

    /// Indicates whether resolvers read the label as a number: decimal or octal digits, or `0x` and
    /// hexadecimal digits.
    fileprivate var isNumber: Bool {
        utf8.allSatisfy(\.isASCIIDigit)
            || hasPrefix("0x") && utf8.dropFirst(2).allSatisfy(\.isASCIIHexDigit)
    }
}

extension UInt8 {
    var isASCIILetter: Bool { (0x61...0x7A).contains(self | 0x20) }
    var isASCIIDigit: Bool { (0x30...0x39).contains(self) }
    var isASCIIHexDigit: Bool { isASCIIDigit || (0x61...0x66).contains(self | 0x20) }

    /// Indicates whether the byte is allowed in the user part of a URL (RFC 3986, section 3.2.1).
    fileprivate var isAllowedInUser: Bool {
        isASCIILetter || isASCIIDigit || "-._~%!$&'()*+,;=:".utf8.contains(self)
    }
}
