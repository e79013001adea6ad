/// Over which transports a manifest is believed without a root of trust.
public enum ManifestTrust {
    /// Whether a manifest from the URL may be accepted for its transport alone.
    ///
    /// That holds for https and for local files, and for plain http from this machine only: from
    /// `localhost`, an address in 127.0.0.0/8 or `[::1]`, written just so. It holds for each URL on the
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

    /// Whether the URL is an https URL, or an http URL of this machine written as
    /// ``isAcceptable(_:)`` wants it.
    public static func isNetwork(_ url: String) -> Bool {
        isAcceptable(url) && URLReference(url).scheme?.lowercased() != "file"
    }

    /// Whether the host of a URL is this machine: `localhost`, an address in 127.0.0.0/8 or `[::1]`.
    public static func isLoopback(_ host: String) -> Bool {
        let host = host.lowercased()
        return host == "localhost" || host == "[::1]" || isLoopbackAddress(host)
    }

    /// Whether the host is an address in 127.0.0.0/8 of four plain decimal numbers.
    private static func isLoopbackAddress(_ host: String) -> Bool {
        let parts = host.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 4, parts[0] == "127" else { return false }
        return parts.allSatisfy { part in
            // 'UInt8' reads a sign and leading zeros, which some resolvers take for octal.
            UInt8(part).map { String($0) == part } ?? false
        }
    }
}
