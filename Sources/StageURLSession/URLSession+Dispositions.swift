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

    /// What a delegate decides about an answer.
    public enum ResponseDisposition: Int, Sendable {
        /// The task is cancelled.
        case cancel = 0
        /// The bytes are handed over.
        case allow = 1
        /// The task goes on as a download task.
        case becomeDownload = 2
        /// Taken for ``allow``: there are no stream tasks.
        case becomeStream = 3
    }
}
