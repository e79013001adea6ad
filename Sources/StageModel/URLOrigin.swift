/// Scheme, host and port of an http or https URL (RFC 6454, section 4): the parts that decide which server is asked.
///
/// Every decision about a server reads URLs by this type: lists of domains, credentials, limits of connections. A
/// host that programs read in different ways has no origin, so that no decision is made of another server than the
/// one that is asked.
package struct URLOrigin: Hashable, Sendable {
    /// `http` or `https`.
    package let scheme: String
    /// The host in lower case; an IPv6 address in brackets, in the form of RFC 5952 without decimal numbers.
    package let host: String
    /// The port, the scheme's own where the URL names none.
    package let port: UInt16

    /// The host and port.
    package var authority: String { "\(host):\(port)" }

    /// Whether the port is the scheme's own.
    package var hasDefaultPort: Bool { port == Self.defaultPort(of: scheme) }

    /// Creates an origin from parts that another parser read; `nil` for one that no URL has.
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

    /// Returns the one form of a host that decisions compare, or `nil` for a host that programs read differently.
    ///
    /// A name has labels of ASCII letters, digits, `-` and `_`, and a dot at its end or none: no percent-encoding, and
    /// a name of another script as `xn--`. An IPv4 address has four decimal numbers, since libcurl and resolvers take
    /// `0x7f.1` and `2130706433` for addresses, too. An IPv6 address is in brackets and has no zone.
    package static func canonicalHost(_ host: String) -> String? {
        if host.utf8.first == UInt8(ascii: "[") {
            guard host.utf8.last == UInt8(ascii: "]") else { return nil }
            return IPAddress(ipv6: String(host.dropFirst().dropLast())).map { "[\($0)]" }
        }
        // Some letters of other scripts have an ASCII letter as their lower case.
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

    /// The server that an http or https URL names; `nil` for another URL, and for one that ``checkOrigin()`` refuses.
    package var origin: URLOrigin? { try? checkOrigin() }

    /// Whether the URL names a user, with a password or without.
    package var hasUser: Bool { authority?.utf8.contains(UInt8(ascii: "@")) ?? false }

    /// The URL without a user's name and password.
    package var withoutUser: URLReference {
        var url = self
        if let authority, let at = authority.utf8.lastIndex(of: UInt8(ascii: "@")) {
            url.authority = Substring(authority.utf8[at...].dropFirst())
        }
        return url
    }

    /// Whether the URL is an http or https URL with a host that programs read in different ways.
    package var hasAmbiguousHost: Bool {
        guard ["http", "https"].contains(schemeName),
            let host = authority.flatMap({ URLAuthority($0)?.host }), !host.isEmpty
        else { return false }
        return URLOrigin.canonicalHost(host) == nil
    }

    /// Returns the server that an http or https URL names.
    ///
    /// - Throws: ``ValueError`` if the URL has another scheme, no host, or parts that programs read in different ways.
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

    /// The absolute path that a file URL of this machine names, percent-decoded and without `.` and `..`; `nil` for
    /// another URL, and for a path that programs read in different ways.
    package var filePath: String? {
        let isHere = authority.map { ["", "localhost"].contains($0.lowercased()) } ?? true
        guard schemeName == "file", isHere, path.utf8.first == UInt8(ascii: "/"),
            let decoded = Self.removingDotSegments(path).percentDecoded,
            !decoded.utf8.contains(where: { $0 < 0x20 || $0 == 0x7F }),
            !decoded.split(separator: "/").contains(where: { $0 == "." || $0 == ".." })
        else { return nil }
        return decoded
    }
}

/// A user, a host and a port as an authority has them (RFC 3986, section 3.2).
private struct URLAuthority {
    /// The host as it is written.
    var host: String
    var port: UInt16?

    /// Takes an authority apart, or returns `nil` for one that breaks the syntax.
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
        // A colon without a port is one without a colon (RFC 3986, section 3.2.3).
        guard !rest.isEmpty, rest != ":" else { return }
        let digits = Substring(rest.utf8.dropFirst())
        guard rest.utf8.first == UInt8(ascii: ":"), digits.utf8.allSatisfy(\.isASCIIDigit),
            let port = UInt16(digits)
        else { return nil }
        self.port = port
    }
}

extension Substring {
    /// Whether a name of a host may have this between dots.
    fileprivate var isHostLabel: Bool {
        !isEmpty
            && utf8.allSatisfy { $0.isASCIILetter || $0.isASCIIDigit || $0 == 0x2D || $0 == 0x5F }
    }

    /// Whether resolvers take a label for a number: decimal or octal digits, or `0x` and hexadecimal digits.
    fileprivate var isNumber: Bool {
        utf8.allSatisfy(\.isASCIIDigit)
            || hasPrefix("0x") && utf8.dropFirst(2).allSatisfy(\.isASCIIHexDigit)
    }
}

extension UInt8 {
    var isASCIILetter: Bool { (0x61...0x7A).contains(self | 0x20) }
    var isASCIIDigit: Bool { (0x30...0x39).contains(self) }
    var isASCIIHexDigit: Bool { isASCIIDigit || (0x61...0x66).contains(self | 0x20) }

    /// Whether a user's name and password in a URL may have the byte (RFC 3986, section 3.2.1).
    fileprivate var isAllowedInUser: Bool {
        isASCIILetter || isASCIIDigit || "-._~%!$&'()*+,;=:".utf8.contains(self)
    }
}
