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
        guard !url.hasUser else { return false }
        return switch url.schemeName {
        case "https": url.origin != nil
        case "file": true
        case "http": url.origin.map { isLoopback($0.host) } ?? false
        default: false
        }
    }

    /// Whether a manifest may come from the URL.
    ///
    /// A signed one is believed for its signatures: over plain http from any machine, too.
    package static func isAcceptable(_ url: String, isSigned: Bool) -> Bool {
        if isAcceptable(url) { return true }
        let url = URLReference(url)
        return isSigned && !url.hasUser && url.origin?.scheme == "http"
    }

    /// Whether the URL is an https URL, or an http URL of this machine written as
    /// ``isAcceptable(_:)`` wants it.
    public static func isNetwork(_ url: String) -> Bool {
        isAcceptable(url) && URLReference(url).schemeName != "file"
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
        (IPAddress(ipv4: address) ?? IPAddress(ipv6: address))?.isLoopback ?? false
    }
}
