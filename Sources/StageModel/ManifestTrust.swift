/// Over which transports a manifest is believed without a root of trust.
public enum ManifestTrust {
    /// Whether a manifest from the URL may be accepted for its transport alone.
    ///
    /// That holds for https and for local files, and for plain http from this machine only
    /// (``isLoopback(_:)``). It holds for each URL on the
    /// way, redirects included, and for none with a user's name or password, which would be stored with
    /// the manifest.
    public static func isAcceptable(_ url: String) -> Bool {
        let url = URLReference(url)
        let host = url.authority.flatMap { URLAuthority($0)?.host }
        switch url.scheme?.lowercased() {
        case "https": return host.map { !$0.isEmpty } ?? false
        case "file": return true
        case "http": return host.map(isLoopback) ?? false
        default: return false
        }
    }

    /// Whether a manifest may come from the URL.
    ///
    /// A signed one is believed for its signatures: over plain http from any machine, too.
    package static func isAcceptable(_ url: String, isSigned: Bool) -> Bool {
        if isAcceptable(url) { return true }
        let url = URLReference(url)
        guard isSigned, url.scheme?.lowercased() == "http" else { return false }
        return url.authority.flatMap { URLAuthority($0)?.host }.map { !$0.isEmpty } ?? false
    }

    /// Whether the URL is an https URL, or an http URL of this machine written as
    /// ``isAcceptable(_:)`` wants it.
    public static func isNetwork(_ url: String) -> Bool {
        isAcceptable(url) && URLReference(url).scheme?.lowercased() != "file"
    }

    /// Whether the host of a URL is this machine by what it is called: `localhost` and the names below it
    /// (RFC 6761, section 6.3), with a dot at the end or without, and the addresses of
    /// ``isLoopbackAddress(_:)``, those of IPv6 in brackets.
    ///
    /// A resolver may take a name for another machine all the same: the address of the connection is
    /// compared, too, before a request is sent.
    public static func isLoopback(_ host: String) -> Bool {
        var host = host.lowercased()
        if host.hasPrefix("[") {
            return host.hasSuffix("]") && isLoopbackAddress(String(host.dropFirst().dropLast()))
        }
        if isLoopbackAddress(host) { return true }
        if host.hasSuffix(".") { host.removeLast() }
        return host == "localhost" || host.hasSuffix(".localhost")
    }

    /// Whether a numeric address is this machine's: one of 127.0.0.0/8, ::1, or one of the former written
    /// as IPv6 addresses (RFC 4291, section 2.5.5.2).
    public static func isLoopbackAddress(_ address: String) -> Bool {
        if let numbers = numbers(ofIPv4: address[...]) { return numbers[0] == 127 }
        guard let words = words(ofIPv6: address) else { return false }
        if words == [0, 0, 0, 0, 0, 0, 0, 1] { return true }
        return words.prefix(6) == [0, 0, 0, 0, 0, 0xFFFF] && words[6] >> 8 == 127
    }

    /// Reads an address of four plain decimal numbers.
    private static func numbers(ofIPv4 text: Substring) -> [UInt8]? {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        let numbers = parts.compactMap { part -> UInt8? in
            // 'UInt8' reads a sign and leading zeros, which some resolvers take for octal.
            UInt8(part).flatMap { String($0) == part ? $0 : nil }
        }
        return parts.count == 4 && numbers.count == 4 ? numbers : nil
    }

    /// Reads an address of eight words (RFC 4291, section 2.2), without a zone.
    private static func words(ofIPv6 text: String) -> [UInt16]? {
        let halves = text.split(separator: "::", omittingEmptySubsequences: false)
        var words: [[UInt16]] = []
        for (index, half) in halves.enumerated() {
            guard let read = Self.words(ofHalf: half, isLast: index == halves.count - 1) else {
                return nil
            }
            words.append(read)
        }
        switch words.count {
        case 1: return words[0].count == 8 ? words[0] : nil
        case 2:
            let missing = 8 - words[0].count - words[1].count
            return missing > 0 ? words[0] + Array(repeating: 0, count: missing) + words[1] : nil
        default: return nil
        }
    }

    /// Reads words between colons; the last two may be an IPv4 address.
    private static func words(ofHalf text: Substring, isLast: Bool) -> [UInt16]? {
        guard !text.isEmpty else { return [] }
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        var words: [UInt16] = []
        for (index, part) in parts.enumerated() {
            let digits = part.utf8.allSatisfy { Character(Unicode.Scalar($0)).isHexDigit }
            if (1...4).contains(part.utf8.count), digits, let word = UInt16(part, radix: 16) {
                words.append(word)
            } else if isLast, index == parts.count - 1, let numbers = numbers(ofIPv4: part) {
                words.append(UInt16(numbers[0]) << 8 | UInt16(numbers[1]))
                words.append(UInt16(numbers[2]) << 8 | UInt16(numbers[3]))
            } else {
                return nil
            }
        }
        return words
    }
}
