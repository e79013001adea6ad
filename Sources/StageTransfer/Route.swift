/// Where an attempt has got to by redirects.
struct Route {
    private(set) var url: TransferURL
    /// The method to ask with.
    private(set) var method: String
    /// How many redirects there were.
    private(set) var steps = 0
    /// Whether no redirect has left the origin of the first URL yet.
    private(set) var isAtOrigin = true
    /// Whether an unencrypted answer led to another host.
    private(set) var wasLedAway = false
    private let rules: RedirectRules

    /// Creates a route from its first URL; one that is not of the request's origin gets no credentials.
    init(
        start: TransferURL,
        rules: RedirectRules,
        method: String = "GET",
        isAtOrigin: Bool = true
    ) {
        url = start
        self.rules = rules
        self.method = method
        self.isAtOrigin = isAtOrigin
    }

    /// Goes where a decision says that was made of an answer with this status.
    mutating func follow(
        _ decision: ResponseRules.Decision?,
        status: Int
    ) throws(TransferError) {
        guard case .redirect(let location) = decision else { return }
        steps += 1
        let target = try rules.target(of: location, from: url, step: steps)
        if url.scheme == "http", target.host != url.host { wasLedAway = true }
        if !target.hasSameOrigin(as: url) { isAtOrigin = false }
        url = target
        method = RedirectRules.method(after: status, of: method)
    }
}
