import StageControl

/// Downloads under way and answers to challenges that a process knows of, from one delegate to the next.
///
/// Does no I/O.
struct KnownDownloads {
    /// An answer to a challenge.
    struct Answer {
        /// The progress of the answer.
        enum State {
            /// The daemon is to be told over the next connection.
            case kept
            /// A thread tells the daemon.
            case underWay
            /// The daemon has it.
            case given
        }

        var change: TransferChange
        /// The number of the challenge's event.
        var sequence: Int64?
        var state = State.underWay
    }

    private var downloads: [Int64: TransferTask] = [:]
    private var answers: [Int64: Answer] = [:]
    /// Downloads of sessions that are no more, of which no delegate was told.
    private var lost: [TransferTask] = []
    /// The number of the session that the downloads are in.
    private var session: Int64?

    /// The numbers of the downloads that go on as far as the process knows.
    var underWay: Set<Int64> { Set(downloads.keys) }

    /// The download of this number that goes on as far as the process knows, as it was when it was taken in.
    func download(_ task: Int64) -> TransferTask? { downloads[task] }

    /// Takes in a download that goes on in a session of this number.
    mutating func add(_ task: TransferTask, in session: Int64?) {
        enter(session)
        downloads[task.id] = task
    }

    /// Takes in the number of the session, and returns whether it is another one.
    ///
    /// Tasks of another session may have the same numbers: what was known of the one before is lost, and its answers
    /// are to challenges that are no more.
    @discardableResult
    private mutating func enter(_ session: Int64?) -> Bool {
        guard let session, session != self.session else { return false }
        let isAnother = self.session != nil
        self.session = session
        guard isAnother else { return false }
        lost += downloads.values.sorted { $0.id < $1.id }
        downloads = [:]
        answers = [:]
        return true
    }

    /// Takes in that a delegate is told of the loss of a download.
    mutating func removeLost(_ task: TransferTask) {
        lost.removeAll { $0.request.token == task.request.token }
    }

    /// Takes in that a download has ended.
    mutating func end(_ task: Int64) {
        downloads[task] = nil
        answers[task] = nil
    }

    /// Takes in which tasks the daemon has in a session, and returns the downloads that it has lost.
    ///
    /// A task that is not there any more has ended if the session is still the same: another process has heard of
    /// that. Another session is there where the daemon has lost its records.
    ///
    /// - Parameters:
    ///   - before: The downloads that went on before the daemon was asked.
    ///   - tasks: The tasks of the daemon.
    ///   - session: The number of the session.
    /// - Returns: The downloads that were lost, of which no delegate was told.
    mutating func lost(
        of before: Set<Int64>,
        among tasks: [TransferTask],
        in session: Int64?
    ) -> [TransferTask] {
        guard !enter(session) else { return lost }
        for id in before.subtracting(tasks.map(\.id)) { end(id) }
        return lost
    }

    /// Takes in the answer to a challenge; returns `false` if there was one before, or one to a later challenge.
    mutating func answer(_ answer: Answer, to task: Int64) -> Bool {
        if let sequence = answer.sequence, let before = answers[task]?.sequence,
            sequence <= before
        {
            return false
        }
        answers[task] = answer
        return true
    }

    /// The progress of the answer to the challenge of an event; `nil` if there is none.
    func state(ofAnswerTo task: Int64, sequence: Int64?) -> Answer.State? {
        guard let answer = answers[task], answer.sequence == sequence else { return nil }
        return answer.state
    }

    /// Takes in the progress of an answer.
    mutating func set(_ state: Answer.State, ofAnswerTo task: Int64, sequence: Int64?) {
        guard answers[task]?.sequence == sequence else { return }
        answers[task]?.state = state
        // Of a download that has ended no challenge comes again.
        if state == .given, downloads[task] == nil { answers[task] = nil }
    }

    /// The answer that the daemon is to be told of next, which is under way from now on.
    mutating func takeKeptAnswer() -> (task: Int64, answer: Answer)? {
        guard let task = answers.filter({ $0.value.state == .kept }).keys.min(),
            let answer = answers[task]
        else { return nil }
        answers[task]?.state = .underWay
        return (task, answer)
    }
}
