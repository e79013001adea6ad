import StageModel

/// Hosts that content may be downloaded from.
public struct AllowedDomains: Equatable, Sendable {
    /// Host names in lower case: each one exact or, with a leading `*.`, matching every name below it.
    public let patterns: [String]

    /// Creates the list from host names such as `example.com` and `*.cdn.example.com`.
    public init(_ patterns: [String]) {
        self.patterns = patterns.map { URLOrigin.canonicalHost($0) ?? $0.lowercased() }
    }

    /// Returns whether content may be downloaded from `host`.
    public func contains(_ host: String) -> Bool {
        let host = host.lowercased().droppingRootDot
        return patterns.contains { pattern in
            pattern.hasPrefix("*.") ? host.hasSuffix(pattern.dropFirst()) : host == pattern
        }
    }
}

extension String {
    /// The host name without the trailing dot of the DNS root.
    fileprivate var droppingRootDot: String { hasSuffix(".") ? String(dropLast()) : self }
}

/// Rules for the URLs that the redirects of one attempt may lead to.
struct RedirectRules {
    /// Maximum number of redirects of one attempt.
    static let limit = 10

    /// Hosts that redirects may lead to; `nil` for all.
    var allowed: AllowedDomains?
    /// `true` if every URL must be trustworthy by its transport alone (`ManifestTrust`).
    var requiresTrustedTransport = false
    /// `true` if redirects may lead from https to http.
    var allowsPlain = false

    /// Resolves the `Location` of a redirect and checks the result against the rules.
    ///
    /// - Throws: ``TransferError/unacceptable(url:_:)`` if the target is not an http or https URL, drops
    ///   encryption, is on a host that is not allowed, or must be trusted and is not.
    func target(
        of location: String,
        from url: TransferURL,
        step: Int
    ) throws(TransferError) -> TransferURL {
        guard step <= Self.limit else {
            throw .unacceptable(url: url.display, .redirects(limit: Self.limit))
        }
        guard let target = url.resolving(location), !target.isFile,
            allowsPlain || url.scheme == "http" || target.scheme == "https",
            !requiresTrustedTransport || ManifestTrust.isAcceptable(target.display)
        else {
            throw .unacceptable(url: url.display, .redirect(to: location.withoutUser))
        }
        try Self.check(target, against: allowed)
        return target
    }

    /// Returns the method of the request that follows a redirect (RFC 9110, section 15.4).
    static func method(after status: Int, of method: String) -> String {
        switch (status, method) {
        case (303, let method) where method != "HEAD": "GET"
        case (301, "POST"), (302, "POST"): "GET"
        default: method
        }
    }

    /// Checks that the host of a URL is allowed.
    static func check(
        _ url: TransferURL,
        against allowed: AllowedDomains?
    ) throws(TransferError) {
        guard let allowed, !url.isFile, !allowed.contains(url.host) else { return }
        throw .unacceptable(url: url.display, .domain(url.host))
    }
}
