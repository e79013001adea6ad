/// Rules for the transports over which an unsigned manifest is trusted.
public enum ManifestTrust {
    /// Returns whether a manifest from the URL may be trusted because of its transport.
    ///
    /// This holds for https, local files, and plain http from this machine (``isLoopback(_:)``). It must hold
    /// for each URL of a redirect chain. It never holds for a URL with a user name or password, which would
    /// be stored with the manifest.
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

    /// Returns whether a manifest may come from the URL.
    ///
    /// A signed manifest may also come over plain http from any host, because its signatures are verified.
    package static func isAcceptable(_ url: String, isSigned: Bool) -> Bool {
        if isAcceptable(url) { return true }
        let url = URLReference(url)
        return isSigned && !url.hasUser && url.origin?.scheme == "http"
    }

    /// Returns whether the URL is an https URL, or an http URL of this machine that ``isAcceptable(_:)``
    /// accepts.
    public static func isNetwork(_ url: String) -> Bool {
        isAcceptable(url) && URLReference(url).schemeName != "file"
    }

    /// Returns whether the host of a URL names this machine: `localhost` and its subdomains (RFC 6761,
    /// section 6.3), with or without a final dot, and the addresses of ``isLoopbackAddress(_:)``, IPv6 ones
    /// in brackets.
    ///
    /// A resolver may still map the name to another host: the address of the connection is checked too,
    /// before a request is sent.
    public static func isLoopback(_ host: String) -> Bool {
        var host = host.lowercased()
        if host.hasPrefix("[") {
            return host.hasSuffix("]") && isLoopbackAddress(String(host.dropFirst().dropLast()))
        }
        if isLoopbackAddress(host) { return true }
        if host.hasSuffix(".") { host.removeLast() }
        return host == "localhost" || host.hasSuffix(".localhost")
    }

    /// Returns whether a numeric address is a loopback address: 127.0.0.0/8, ::1, or one of the former mapped
    /// to IPv6 (RFC 4291, section 2.5.5.2).
    public static func isLoopbackAddress(_ address: String) -> Bool {
        (IPAddress(ipv4: address) ?? IPAddress(ipv6: address))?.isLoopback ?? false
    }
}
