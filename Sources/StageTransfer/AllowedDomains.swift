import StageModel

/// The hosts that content may come from.
public struct AllowedDomains: Equatable, Sendable {
    /// Host names, each exact or, with `*.` before it, standing for every name below it.
    public let patterns: [String]

    /// Creates the list from host names such as `example.com` and `*.cdn.example.com`.
    public init(_ patterns: [String]) {
        self.patterns = patterns.map { URLOrigin.canonicalHost($0) ?? $0.lowercased() }
    }

    /// Whether content may come from `host`.
    public func contains(_ host: String) -> Bool {
        let host = host.lowercased().droppingRootDot
        return patterns.contains { pattern in
            pattern.hasPrefix("*.") ? host.hasSuffix(pattern.dropFirst()) : host == pattern
        }
    }
}

extension String {
    /// The name without the dot that stands for the root of all names.
    fileprivate var droppingRootDot: String { hasSuffix(".") ? String(dropLast()) : self }
}

/// Where a request may be sent on to.
struct RedirectRules {
    /// How many redirects one attempt may take.
    static let limit = 10

    /// The hosts that it may be sent on to; `nil` stands for all.
    var allowed: AllowedDomains?
    /// Whether each URL must be one that is believed for its transport alone (``ManifestTrust``).
    var needsTrust = false
    /// Whether it may be sent on from https to http.
    var allowsPlain = false

    /// Checks the step from one URL to the one that its answer names.
    ///
    /// - Throws: ``TransferError/unacceptable(url:_:)`` if the target is no http or https URL, gives up
    ///   encryption, or is on a host that is not allowed or not believed.
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
            !needsTrust || ManifestTrust.isAcceptable(target.display)
        else {
            throw .unacceptable(url: url.display, .redirect(to: location.withoutUser))
        }
        try Self.check(target, allowed)
        return target
    }

    /// The method that a redirect goes on with (RFC 9110, section 15.4).
    static func method(after status: Int, of method: String) -> String {
        switch (status, method) {
        case (303, let method) where method != "HEAD": "GET"
        case (301, "POST"), (302, "POST"): "GET"
        default: method
        }
    }

    /// Checks that a URL is on a host that is allowed.
    static func check(_ url: TransferURL, _ allowed: AllowedDomains?) throws(TransferError) {
        guard let allowed, !url.isFile, !allowed.contains(url.host) else { return }
        throw .unacceptable(url: url.display, .domain(url.host))
    }
}
