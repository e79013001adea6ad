import StageControl

/// The downloads in progress and answers to challenges that a process remembers between delegates.
///
/// Does no I/O.
struct KnownDownloads {
    /// An answer to a challenge.
    struct Answer {
        /// The progress of sending the answer.
        enum State {
            /// To be sent over the next connection.
            case kept
            /// A thread is sending it.
            case underWay
            /// The daemon has received it.
            case given
        }

        var change: TransferChange
        /// The number of the challenge's event.
        var sequence: Int64?
        var state = State.underWay
    }

    private var downloads: [Int64: TransferTask] = [:]
    private var answers: [Int64: Answer] = [:]
    /// Downloads of earlier sessions whose loss no delegate has received.
    private var lost: [TransferTask] = []
    /// The number of the downloads' session.
    private var session: Int64?
    /// The number of requests in progress that create downloads.
    private var creations = 0
    /// The downloads that have ended since the first of these requests, perhaps before its response.
    private var endedEarly: Set<Int64> = []

    /// The ids of the downloads in progress, as far as known.
    var underWay: Set<Int64> { Set(downloads.keys) }

    /// Returns a download in progress, as it was when it was added.
    func download(_ task: Int64) -> TransferTask? { downloads[task] }

    /// Records that a request creates a download, until ``endCreation()``.
    mutating func beginCreation() { creations += 1 }

    /// Records that a request that created a download is over.
    mutating func endCreation() {
        creations -= 1
        if creations == 0 { endedEarly = [] }
    }

    /// Adds a download in progress of the session with this number, unless it has ended before the response to
    /// the request that created it.
    mutating func add(_ task: TransferTask, in session: Int64?) {
        enter(session)
        guard !endedEarly.contains(task.id) else { return }
        downloads[task.id] = task
    }

    /// Records the number of the session, and returns whether it has changed.
    ///
    /// Tasks of another session may have the same ids: the downloads of the previous session are lost, and so
    /// are its challenges.
    @discardableResult
    private mutating func enter(_ session: Int64?) -> Bool {
        guard let session, session != self.session else { return false }
        let isAnother = self.session != nil
        self.session = session
        guard isAnother else { return false }
        lost += downloads.values.sorted { $0.id < $1.id }
        downloads = [:]
        answers = [:]
        endedEarly = []
        return true
    }

    /// Records that a delegate was informed of the loss of a download.
    mutating func removeLost(_ task: TransferTask) {
        lost.removeAll { $0.request.token == task.request.token }
    }

    /// Records that a download has ended.
    mutating func end(_ task: Int64) {
        if creations > 0 { endedEarly.insert(task) }
        downloads[task] = nil
        answers[task] = nil
    }

    /// Compares the downloads with the daemon's tasks, and returns those that were lost.
    ///
    /// If the session is the same, a missing task has ended, and another process has received its event. If
    /// it is another session, the daemon has lost its records.
    ///
    /// - Parameters:
    ///   - before: The downloads in progress before the request to the daemon.
    ///   - tasks: The daemon's tasks.
    ///   - session: The number of the session.
    /// - Returns: The lost downloads, whose loss no delegate has received.
    mutating func lost(
        of before: Set<Int64>,
        among tasks: [TransferTask],
        in session: Int64?
    ) -> [TransferTask] {
        guard !enter(session) else { return lost }
        for id in before.subtracting(tasks.map(\.id)) { end(id) }
        return lost
    }

    /// Records the answer to a challenge; returns `false` if this or a later challenge was answered before.
    mutating func answer(_ answer: Answer, to task: Int64) -> Bool {
        if let sequence = answer.sequence, let before = answers[task]?.sequence,
            sequence <= before
        {
            return false
        }
        answers[task] = answer
        return true
    }

    /// Returns the progress of the answer to an event's challenge; `nil` if there is none.
    func state(ofAnswerTo task: Int64, sequence: Int64?) -> Answer.State? {
        guard let answer = answers[task], answer.sequence == sequence else { return nil }
        return answer.state
    }

    /// Sets the progress of an answer.
    mutating func set(_ state: Answer.State, ofAnswerTo task: Int64, sequence: Int64?) {
        guard answers[task]?.sequence == sequence else { return }
        answers[task]?.state = state
        // A download that has ended gets no further challenge.
        if state == .given, downloads[task] == nil { answers[task] = nil }
    }

    /// Returns the next answer to send, and marks it as being sent.
    mutating func takeKeptAnswer() -> (task: Int64, answer: Answer)? {
        guard let task = answers.filter({ $0.value.state == .kept }).keys.min(),
            let answer = answers[task]
        else { return nil }
        answers[task]?.state = .underWay
        return (task, answer)
    }
}
