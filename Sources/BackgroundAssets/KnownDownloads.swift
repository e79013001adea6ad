import StageControl

/// Downloads under way and answers to challenges that a process knows of, from one delegate to the next.
///
/// Does no I/O.
struct KnownDownloads {
    /// An answer to a challenge.
    struct Answer {
        /// How far the answer has got.
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

    private struct Download {
        var task: TransferTask
        /// The number of the session that the task was seen in.
        var session: Int64?
    }

    private var downloads: [Int64: Download] = [:]
    private var answers: [Int64: Answer] = [:]

    /// The numbers of the downloads that go on as far as the process knows.
    var underWay: Set<Int64> { Set(downloads.keys) }

    /// Takes in a download that goes on in a session of this number.
    mutating func add(_ task: TransferTask, in session: Int64?) {
        downloads[task.id] = Download(task: task, session: session)
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
    /// - Returns: The lost downloads, in the order of their numbers.
    mutating func lost(
        of before: Set<Int64>,
        among tasks: [TransferTask],
        in session: Int64?
    ) -> [TransferTask] {
        var lost: [TransferTask] = []
        for id in before.subtracting(tasks.map(\.id)).sorted() {
            guard let download = downloads[id] else { continue }
            if session != nil, download.session != nil, download.session != session {
                lost.append(download.task)
            } else {
                end(id)
            }
        }
        return lost
    }

    /// Takes in the answer to a challenge; returns `false` if there was one before.
    mutating func answer(_ answer: Answer, to task: Int64) -> Bool {
        guard answer.sequence == nil || answers[task]?.sequence != answer.sequence else {
            return false
        }
        answers[task] = answer
        return true
    }

    /// How far the answer to the challenge of an event has got; `nil` if there is none.
    func state(ofAnswerTo task: Int64, sequence: Int64?) -> Answer.State? {
        guard let answer = answers[task], answer.sequence == sequence else { return nil }
        return answer.state
    }

    /// Takes in how far an answer has got.
    mutating func set(_ state: Answer.State, ofAnswerTo task: Int64, sequence: Int64?) {
        guard answers[task]?.sequence == sequence else { return }
        answers[task]?.state = state
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
