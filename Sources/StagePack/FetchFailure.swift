/// The failure of a fetcher to fetch a pack, a file or a manifest.
public struct FetchFailure: Error, Equatable, Sendable {
    /// Kinds of failures, for applications that show their own messages.
    @nonexhaustive
    public enum Kind: Equatable, Sendable, CaseIterable {
        /// There was no connection, the server was overloaded, or the response was missing or incomplete.
        case unreachable
        /// The network requires a login first (captive portal).
        case loginRequired
        /// A server refused the request.
        case refused
        /// The manifest could not be downloaded, and none is stored, or the stored one does not contain the pack.
        case manifestUnavailable
        /// The manifest is invalid, or not for this version of the application.
        case manifestInvalid
        /// The manifest is not signed by keys that the application trusts, or its signed metadata has expired.
        case manifestUntrusted
        /// The manifest does not contain the pack.
        case unknownPack
        /// The content differs from the manifest, or is not a valid pack.
        case contentInvalid
        /// There is not enough space on the file system or in the quota of the container.
        case outOfSpace
        /// The container cannot be read or written.
        case containerUnusable
        /// The pack is pinned to the version that is staged.
        case pinned
        /// The fetch was interrupted, timed out, or is not allowed to use the network; the next
        /// call resumes the download.
        case interrupted
        /// Another failure; see ``FetchFailure/reason``.
        case other
    }

    /// The kind of failure.
    public var kind: Kind
    /// The reason, as a readable sentence fragment.
    public var reason: String
    /// The time for a retry.
    public var retryAdvice: RetryAdvice

    /// Creates a failure from its parts.
    public init(_ kind: Kind = .other, reason: String, retryAdvice: RetryAdvice) {
        self.kind = kind
        self.reason = reason
        self.retryAdvice = retryAdvice
    }
}
