public import FoundationNetworking

extension URLSession {
    /// Disposition of an authentication challenge.
    ///
    /// This is Foundation's type, so that one method of a delegate serves the sessions of all modules.
    public typealias AuthChallengeDisposition =
        FoundationNetworking.URLSession.AuthChallengeDisposition

    /// Disposition of a delayed request, which is Foundation's type.
    ///
    /// The daemon starts delayed requests without asking the delegate.
    public typealias DelayedRequestDisposition =
        FoundationNetworking.URLSession.DelayedRequestDisposition

    /// Decision of a delegate about a response.
    @nonexhaustive(warn)
    public enum ResponseDisposition: Int, Sendable {
        /// Cancel the task.
        case cancel = 0
        /// Deliver the bytes.
        case allow = 1
        /// Continue the task as a download task.
        case becomeDownload = 2
        /// Treated as ``allow``: there are no stream tasks.
        case becomeStream = 3
    }
}
