import FoundationEssentials
import StageControl
import StageModel
import StageTransfer

extension Broker {
    /// In-memory state of an unfinished task that is neither scheduled on nor persisted.
    struct Extra {
        var failures = 0
        var problem: String?
        /// The bytes of the content that earlier attempts received.
        var received = ByteCount.zero
        /// The bytes of the file that the last attempt sent.
        var sent = ByteCount.zero
        var total: ByteCount?
        var attempts = 0
        /// The head of the last attempt's answer.
        var response: TransferResponse?
        /// The metrics of the last attempt.
        var attempt: AttemptMetrics?
        /// The number of redirects that the last attempt followed.
        var redirects = 0
        /// When the first attempt began.
        var started: Date?
        /// The number of answers in a row whose status led to another attempt.
        var transientAnswers = 0
        /// The key of content that other tasks may want too, if this one fetches it.
        var key: String?
        /// The tasks that want the same content.
        var followers: [Int64] = []
        /// The task that fetches its content, where that is another one.
        var leader: Int64?
        /// The host that the last attempt could not reach.
        var unreachableHost: String?

        /// Counts the answer of an attempt that is repeated, if its status is the reason.
        ///
        /// A connection that breaks within the content is no refusal.
        mutating func noteAnswer(_ answer: ResponseSummary?) {
            let isTransient = answer.map { ResponseSummary.transientStatuses.contains($0.status) }
            transientAnswers = isTransient ?? false ? transientAnswers + 1 : 0
        }

        /// Adds what an attempt has done.
        mutating func note(_ state: LiveTransfer.State) {
            received = state.received
            sent = state.sent
            attempts += state.attempts
            problem = state.problem
            total = state.total
            attempt = state.attempt(ended: .now)
            started = started ?? state.started
            redirects = state.response?.redirects ?? 0
            response = state.response.map { TransferResponse(bounding: $0) }
        }
    }

    /// Ends a task's attempt, if one runs, and keeps what it has done.
    func stop(_ id: Int64) async {
        let transfer = live[id]
        await halt(id)
        if let transfer { extras[id, default: Extra()].note(transfer.current) }
    }

    /// Whether the next attempt takes an answer whose status usually leads to another attempt.
    ///
    /// A server that is overloaded for a minute ends no transfer; an application is not left waiting for a week for
    /// an answer that is always the same.
    func mustTakeAnswer(of id: Int64) -> Bool {
        (extras[id]?.transientAnswers ?? 0) >= Self.mostTransientAnswers
    }

    /// The number of answers in a row that lead to another attempt: with the usual waits, those of about a minute.
    private static let mostTransientAnswers = 5
}

extension TransferResponse {
    /// The most bytes of header fields that are kept for a task that waits, and told with progress.
    private static let mostKept = 4 << 10

    /// The head of an answer for lists and progress, which others than the session's owner may see: without cookies,
    /// and without fields where they are many.
    init(bounding summary: ResponseSummary) {
        self = TransferResponse(summary).withoutCookies
        let bytes = headers.joined().reduce(0) { $0 + $1.utf8.count }
        if bytes > Self.mostKept { headers = [] }
    }

    /// The head without the fields that set cookies.
    var withoutCookies: TransferResponse {
        var head = self
        head.headers.removeAll { $0.first?.lowercased() == "set-cookie" }
        return head
    }
}
