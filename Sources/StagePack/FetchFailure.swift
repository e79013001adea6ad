/// The reason why a fetcher could not fetch a pack.
public struct FetchFailure: Error, Equatable, Sendable {
    /// The obstacles that there are, for an application that tells its users in words of its own.
    @nonexhaustive
    public enum Kind: Equatable, Sendable, CaseIterable {
        /// There was no connection, no answer, or no end of it.
        case unreachable
        /// The network wants its user to log in first (a captive portal).
        case loginRequired
        /// A server answered that it does not give what was asked for.
        case refused
        /// The manifest could not be had, and none is stored.
        case manifestUnavailable
        /// The manifest is not valid, or not one for this version of the application.
        case manifestInvalid
        /// The manifest is not what the keys that the application trusts have signed, or that has expired.
        case manifestUntrusted
        /// The manifest has no such pack.
        case unknownPack
        /// The content is not the one that the manifest names, or cannot be a pack.
        case contentInvalid
        /// There is no room on the file system, or in the quota of the container.
        case outOfSpace
        /// The container cannot be read or written.
        case containerUnusable
        /// The pack is pinned to the version that is staged.
        case pinned
        /// The fetch was interrupted, its time was up, or it may not use the network: the next one goes on
        /// where it ended.
        case interrupted
        /// An obstacle of another kind: the reason names it.
        case other
    }

    /// The obstacle.
    public var kind: Kind
    /// The reason, as a sentence fragment a person can read.
    public var reason: String
    /// When trying again makes sense.
    public var retry: RetryAdvice

    /// Creates a failure from its parts.
    public init(_ kind: Kind = .other, reason: String, retry: RetryAdvice) {
        self.kind = kind
        self.reason = reason
        self.retry = retry
    }
}
