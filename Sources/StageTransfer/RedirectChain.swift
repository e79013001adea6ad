/// Current request of an attempt after the redirects so far.
struct RedirectChain {
    private(set) var url: TransferURL
    /// Method of the current request.
    private(set) var method: String
    /// Number of redirects so far.
    private(set) var steps = 0
    /// `true` until a redirect leaves the origin of the first URL.
    private(set) var isAtOrigin = true
    /// `true` if an unencrypted response led to another host.
    private(set) var hasInsecureHostChange = false
    private let start: TransferURL
    private let rules: RedirectRules

    /// Creates a chain that begins at a URL; without `isAtOrigin` its requests carry no credentials.
    init(
        start: TransferURL,
        rules: RedirectRules,
        method: String = "GET",
        isAtOrigin: Bool = true
    ) {
        url = start
        self.start = start
        self.rules = rules
        self.method = method
        self.isAtOrigin = isAtOrigin
    }

    /// Follows a redirect, given the decision about a response and its status; other decisions change nothing.
    ///
    /// Until a redirect leaves the origin, user name and password of the first URL are kept; those of a `Location` are
    /// never used.
    mutating func follow(
        _ decision: ResponseRules.Decision?,
        status: Int
    ) throws(TransferError) {
        guard case .redirect(let location) = decision else { return }
        steps += 1
        let target = try rules.target(of: location, from: url, step: steps)
        if url.scheme == "http", target.host != url.host { hasInsecureHostChange = true }
        if !target.hasSameOrigin(as: url) { isAtOrigin = false }
        url = isAtOrigin ? target.withUser(of: start) : target
        method = RedirectRules.method(after: status, of: method)
    }
}
