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
        let start = text.firstRange(of: "://")?.upperBound ?? text.startIndex
        let authority = text[start...].prefix { $0 != "/" }
        guard let at = authority.lastIndex(of: "@") else { return text }
        return "\(text[..<start])\(text[text.index(after: at)...])"
    }

    /// Returns the text with dots in place of the user name and the password, also if a character of these ends the host of a URL,
    /// or if there is no scheme.
    private static func concealingUser(_ text: String) -> String {
        guard let at = text.lastIndex(of: "@") else { return text }
        let start = text[..<at].firstRange(of: "://")?.upperBound ?? text.startIndex
        return text[..<start] + "…" + text[at...]
    }

    private static func isValid(_ text: String) -> Bool {
        let isPlain = text.unicodeScalars.allSatisfy { scalar in
            !scalar.isUnsafeForDisplay && !scalar.properties.isWhitespace
        }
        var rest = text[...]
        if let separator = text.firstRange(of: "://") {
            guard schemes.contains(text[..<separator.lowerBound].lowercased()) else { return false }
            rest = text[separator.upperBound...]
        }
        // libcurl ignores a path.
        rest = rest.prefix { $0 != "/" }
        if let at = rest.lastIndex(of: "@") { rest = rest[rest.index(after: at)...] }
        let isAddress = rest.first == "["
        let host = rest.prefix { isAddress ? $0 != "]" : $0 != ":" }.drop { $0 == "[" }
        var port = rest.drop { isAddress ? $0 != "]" : $0 != ":" }
        if isAddress {
            guard port.first == "]" else { return false }
            port = port.dropFirst()
        }
        guard isPlain, !host.isEmpty else { return false }
        guard port.first == ":" else { return port.isEmpty }
        return Int(port.dropFirst()).map { (1...65535).contains($0) } ?? false
    }
}
