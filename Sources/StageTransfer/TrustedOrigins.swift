/// The origins (RFC 6454) that a transfer may ask with all that the user may: with names, passwords and tokens of
/// the user's, and on this machine.
public struct TrustedOrigins: Sendable {
    private let urls: [TransferURL]

    /// Creates the origins of URLs; what is none has no origin.
    public init(of urls: [String]) {
        self.urls = urls.compactMap { try? TransferURL($0) }.filter { !$0.isFile }
    }

    /// Whether a URL is of one of these origins.
    func contain(_ url: TransferURL) -> Bool {
        urls.contains { $0.hasSameOrigin(as: url) }
    }
}

extension DownloadRequest {
    /// Returns whether a URL is of an origin that is trusted.
    ///
    /// - Throws: ``TransferError/unacceptable(url:_:)`` if it is not, and on this machine by its name.
    func trusts(_ url: TransferURL) throws(TransferError) -> Bool {
        guard let trustedOrigins, !trustedOrigins.contain(url) else { return true }
        guard !url.isLoopback else { throw .unacceptable(url: url.display, .thisMachine) }
        return false
    }
}
