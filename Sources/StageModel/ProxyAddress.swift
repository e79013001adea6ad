/// The syntax of proxies in configuration files and variables, which is that of libcurl (CURLOPT_PROXY(3)).
package enum ProxyAddress {
    /// The schemes; libcurl takes `socks`, which desktops set in `all_proxy`, as `socks4`.
    private static let schemes = [
        "http", "https", "socks", "socks4", "socks4a", "socks5", "socks5h",
    ]

    /// Checks a proxy: `[scheme://][user:password@]host[:port]`, or an empty text for none.
    ///
    /// - Throws: ``ValueError`` without the user name and the password.
    package static func check(_ text: String) throws(ValueError) {
        guard !text.isEmpty else { return }
        guard text.utf8.count <= ManifestLimits.pathLength, isValid(text) else {
            throw ValueError(
                expected: "a proxy such as 'http://proxy.example:8080'",
                text: concealingUser(text)
            )
        }
    }

    /// Returns a valid proxy without its user name and password.
    package static func withoutUser(_ text: String) -> String {
        let start = text.endOfScheme ?? text.startIndex
        let authority = text.utf8[start...].prefix { $0 != UInt8(ascii: "/") }
        guard let at = authority.lastIndex(of: UInt8(ascii: "@")) else { return text }
        return "\(text[..<start])\(Substring(text.utf8[at...].dropFirst()))"
    }

    /// Returns the text with dots in place of the user name and the password, also if a character of these ends the host of a URL,
    /// or if there is no scheme.
    private static func concealingUser(_ text: String) -> String {
        guard let at = text.utf8.lastIndex(of: UInt8(ascii: "@")) else { return text }
        let end = text.endOfScheme ?? text.startIndex
        let start = end <= at ? end : text.startIndex
        return "\(text[..<start])…\(text[at...])"
    }

    private static func isValid(_ text: String) -> Bool {
        let isPlain = text.unicodeScalars.allSatisfy { scalar in
            !scalar.isUnsafeForDisplay && !scalar.properties.isWhitespace
        }
        // Compares bytes, as libcurl does: in Swift, '@' and a combining character after it form one `Character`.
        var rest = text[...].utf8
        if let start = text.endOfScheme {
            let scheme = Substring(text.utf8[..<start].dropLast("://".utf8.count))
            guard schemes.contains(scheme.lowercased()) else { return false }
            rest = rest[start...]
        }
        // libcurl ignores a path.
        rest = rest.prefix { $0 != UInt8(ascii: "/") }
        if let at = rest.lastIndex(of: UInt8(ascii: "@")) { rest = rest[at...].dropFirst() }
        let isAddress = rest.first == UInt8(ascii: "[")
        let end = isAddress ? UInt8(ascii: "]") : UInt8(ascii: ":")
        let host = rest.prefix { $0 != end }.drop { $0 == UInt8(ascii: "[") }
        var port = rest.drop { $0 != end }
        if isAddress {
            guard port.first == UInt8(ascii: "]") else { return false }
            port = port.dropFirst()
        }
        guard isPlain, !host.isEmpty else { return false }
        guard port.first == UInt8(ascii: ":") else { return port.isEmpty }
        return Int(Substring(port.dropFirst())).map { (1...65535).contains($0) } ?? false
    }
}
