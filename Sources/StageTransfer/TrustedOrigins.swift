/// Origins (RFC 6454) that may receive the user's credentials and may be on this machine.
public struct TrustedOrigins: Sendable {
    private let urls: [TransferURL]

    /// Creates the set of the URLs' origins, ignoring invalid URLs and files.
    public init(of urls: [String]) {
        self.urls = urls.compactMap { try? TransferURL($0) }.filter { !$0.isFile }
    }

    /// Returns whether a URL has one of these origins.
    func contain(_ url: TransferURL) -> Bool {
        urls.contains { $0.hasSameOrigin(as: url) }
    }
}

extension DownloadRequest {
    /// Returns whether a URL has a trusted origin.
    ///
    /// - Throws: ``TransferError/unacceptable(url:_:)`` if it has not, and its host name is this machine's.
    func trusts(_ url: TransferURL) throws(TransferError) -> Bool {
        guard let trustedOrigins, !trustedOrigins.contain(url) else { return true }
        guard !url.isLoopback else { throw .unacceptable(url: url.display, .localAddress) }
        return false
    }
}
