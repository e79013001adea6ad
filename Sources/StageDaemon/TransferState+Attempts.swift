import FoundationEssentials
import StageControl
import StageModel

/// The beginnings and ends of attempts.
extension TransferState {
    /// The input of an attempt.
    struct Attempt: Sendable {
        var task: FullTask
        /// The session, without what is not for this task.
        var owner: SessionRecord
        /// The number of attempts in a row that brought no bytes.
        var failures: Int
        /// Whether the client of a staging carries it out: what the scheduler has counted it as.
        var isOfClient: Bool
    }

    /// The decision about an attempt that the scheduler has started.
    enum Beginning {
        case run(Attempt)
        /// The task has content that was verified and needs its place.
        case place
        /// The task has failed before its attempt.
        case fail(TransferFailure)
        /// Nothing, or not now.
        case none
    }

    /// The next step after an attempt that did not complete.
    enum Judgement: Equatable {
        /// Nothing: the scheduler has the task.
        case wait
        /// Look for space: there is none.
        case waitForSpace
        /// Look for bytes that the user does not have any more.
        case waitForQuota
        /// Record the event of a challenge, with what holds the task since.
        case record(SessionEvent)
        /// Record the task's end in a failure; it is out of the scheduler.
        case fail(TransferFailure)
        /// Record the task's end; it is out of the scheduler.
        case complete
    }

    /// Decides whether an attempt that was started begins.
    ///
    /// - Parameters:
    ///   - id: The number of the task.
    ///   - task: The task as the journal has it now.
    ///   - used: The bytes that the task's user has in the journal.
    ///   - now: The time.
    /// - Returns: The decision; the attempt is over unless it runs.
    mutating func begin(
        _ id: Int64,
        _ task: FullTask?,
        used: Int64,
        at now: Date
    ) -> Beginning {
        guard let item = scheduler.items[id], attempts.contains(id), !halted.contains(id) else {
            _ = endAttempt(of: id)
            return .none
        }
        guard let task, var owner = sessions[task.record.session]?.record else {
            _ = endAttempt(of: id)
            forget(id, at: now)
            return .none
        }
        guard !task.isLost, !task.record.hasProvisionalEnd else {
            _ = endAttempt(of: id)
            _ = takeOut(id)
            return .fail(task.isLost ? FullTask.loss : .lostAnswer)
        }
        guard task.record.state != .verified else {
            _ = endAttempt(of: id)
            _ = takeOut(id)
            placing.insert(id)
            return .place
        }
        // The result of an attempt is written down, too.
        guard used <= configuration.journalPerUser.rawValue else {
            postpone(id, Hold(.quota, until: now + Self.quotaWait), at: now)
            return .none
        }
        // They are for servers that the session's user chose, not for those of a group's member.
        if task.record.creator != owner.user { owner.configuration.headers = [:] }
        return .run(
            Attempt(
                task: task,
                owner: owner,
                failures: histories[id]?.failures ?? 0,
                isOfClient: item.host == Scheduler.clientHost
            )
        )
    }

    /// Puts a task off whose attempt was started and cannot begin.
    mutating func postpone(_ id: Int64, _ hold: Hold, at now: Date) {
        _ = endAttempt(of: id)
        scheduler.paused(id, hold, at: now)
        assign(id, at: now)
    }

    /// Has an attempt end without a result; returns whether the task has one.
    mutating func halt(_ id: Int64) -> Bool {
        guard attempts.contains(id) else { return false }
        halted.insert(id)
        return true
    }

    /// Notes that an attempt is over; returns whether its result counts.
    mutating func endAttempt(of id: Int64) -> Bool {
        attempts.remove(id)
        return halted.remove(id) == nil
    }

    /// Notes what an attempt has done.
    mutating func note(_ report: AttemptReport, of id: Int64) {
        guard isUnfinished(id) else { return }
        histories[id, default: AttemptHistory()].note(report)
    }

    /// Takes out a task whose attempt has completed, and ends the waits of others for its host.
    ///
    /// - Returns: Whether it was in the scheduler.
    mutating func succeed(_ task: FullTask, at now: Date) -> Bool {
        let id = task.record.id
        unreachable.remove(id)
        guard let item = scheduler.items[id] else { return false }
        // A mirror says nothing about the first host.
        if item.isConnected, task.request.mirrors?.isEmpty ?? true {
            for waiting in unreachable.removeAll(of: item.host) {
                endWait(of: waiting, for: [.backoff], at: now)
            }
        }
        return takeOut(id)
    }

    /// Decides what becomes of a task after an attempt.
    mutating func judge(
        _ verdict: TransferVerdict,
        of task: FullTask,
        _ report: AttemptReport,
        at now: Date
    ) -> Judgement {
        let id = task.record.id
        guard let item = scheduler.items[id] else { return .wait }
        var judgement = Judgement.wait
        switch verdict {
        case .stopped:
            scheduler.paused(id, nil, at: now)
        case .again(let hold):
            histories[id]?.noteFailure(report)
            noteHost(of: id, item, isUnreachable: hold.reason == .backoff && report.isUnreachable)
            scheduler.paused(id, hold, at: now)
            if hold.reason == .quota {
                // Before it is looked for bytes that are gone: what goes meanwhile counts.
                quotaHolds[item.user, default: []].insert(id)
                judgement = .waitForQuota
            }
        case .diskFull:
            scheduler.paused(id, nil, at: now)
            judgement = .waitForSpace
        case .challenge:
            scheduler.change(id, at: now) { $0.blocks.insert(.authentication) }
            scheduler.paused(id, nil, at: now)
            judgement = .record(report.challengeEvent(at: now))
        case .fail(let failure):
            return takeOut(id) ? .fail(failure) : .wait
        }
        handOver(task.request, of: item.user, at: now)
        assign(id, at: now)
        return judgement
    }

    /// The blocks of a task that a later daemon keeps: which task fetches a content is decided anew.
    func storedBlocks(of id: Int64) -> Scheduler.Blocks {
        (scheduler.items[id]?.blocks ?? []).subtracting(.leader)
    }

    private mutating func noteHost(of id: Int64, _ item: Scheduler.Item, isUnreachable: Bool) {
        guard item.isConnected else { return }
        if isUnreachable {
            unreachable.add(id, waitingFor: item.host)
        } else {
            unreachable.remove(id)
        }
    }

    /// Notes that the journal has the event of a challenge, which a handler is started for.
    mutating func challengeRecorded(of id: Int64) {
        guard let item = scheduler.items[id], item.blocks.contains(.authentication) else { return }
        sessions[item.session]?.challenged.insert(id)
    }

    /// Has a task go on whose challenge could not be recorded: asked again, the server asks again.
    mutating func challengeNotRecorded(of id: Int64, at now: Date) {
        // A change that came first may have set it going.
        guard scheduler.items[id]?.blocks.contains(.authentication) == true else { return }
        scheduler.change(id, at: now) { $0.blocks.remove(.authentication) }
        waitForDisk(id, at: now)
    }
}

/// Waits for the bytes of one user.
extension TransferState {
    /// The most attempts at content of unknown size that exceeds its user's limit.
    private static let quotaAttempts = 3

    /// Whether a task still waits for bytes of its user to go.
    func waitsForQuota(_ id: Int64) -> Bool {
        guard let item = scheduler.items[id], !attempts.contains(id) else { return false }
        return item.notBefore?.reason == .quota && quotaHolds[item.user]?.contains(id) ?? false
    }

    /// Whether content of unknown size has exceeded the limit too often; then the task is taken out.
    mutating func failsByQuota(_ id: Int64) -> Bool {
        guard histories[id]?.failures ?? 0 > Self.quotaAttempts else { return false }
        return takeOut(id)
    }

    /// Forgets that a task waits for bytes of its user to go.
    mutating func removeQuotaHold(of id: Int64, _ user: UInt32) {
        guard quotaHolds[user]?.remove(id) != nil, quotaHolds[user]?.isEmpty ?? false else {
            return
        }
        quotaHolds[user] = nil
    }

    /// Ends the waits of a user's tasks, who has fewer bytes now, apart from one; returns whether there were any.
    @discardableResult
    mutating func endQuotaHolds(
        of user: UInt32,
        apart exempt: Int64? = nil,
        at now: Date
    ) -> Bool {
        guard var tasks = quotaHolds.removeValue(forKey: user) else { return false }
        if let exempt, tasks.remove(exempt) != nil { quotaHolds[user] = [exempt] }
        for id in tasks where scheduler.items[id]?.notBefore?.reason == .quota {
            scheduler.change(id, at: now) { $0.notBefore = nil }
        }
        return !tasks.isEmpty
    }
}

/// The ends of tasks.
extension TransferState {
    /// The event of a task's failure; `token` resumes what it has received.
    func failure(
        _ failure: TransferFailure,
        of task: FullTask,
        token: String?,
        at now: Date
    ) -> SessionEvent {
        var event = ending(.failed, of: task, at: now)
        event.failure = failure
        event.failure?.resumeToken = token
        event.metrics = (histories[task.record.id] ?? AttemptHistory()).metrics(ended: now)
        return event
    }

    /// The event of a task that its client has cancelled; `token` resumes what it has received.
    func cancellation(of task: FullTask, token: String?, at now: Date) -> SessionEvent {
        var event = ending(.cancelled, of: task, at: now)
        event.resumeToken = token
        return event
    }

    /// The event of an upload whose challenge the client has rejected, and is the answer therefore.
    func answer(
        of task: FullTask,
        _ challenge: SessionEvent,
        at now: Date
    ) -> SessionEvent {
        var event = SessionEvent(.completed, time: now)
        event.bytesSent = histories[task.record.id]?.sent
        event.bytesExpected = task.request.size
        event.response = challenge.response
        event.body = challenge.body
        var metrics = TransferMetrics(ended: now)
        metrics.attempts = histories[task.record.id]?.attempts ?? 0
        event.metrics = metrics
        return event.judged(task.request)
    }

    private func ending(
        _ kind: SessionEvent.Kind,
        of task: FullTask,
        at now: Date
    ) -> SessionEvent {
        if let history = histories[task.record.id] {
            return history.ending(kind, of: task.request, at: now)
        }
        var event = SessionEvent(kind, time: now)
        event.bytesExpected = task.request.size
        return event
    }

    /// Notes that the ends of tasks are on disk, with the events that say so.
    mutating func ended(
        _ tasks: [Int64],
        _ events: [(session: Int64, event: SessionEvent)],
        at now: Date
    ) {
        for (session, event) in events {
            sessions[session]?.unfinished -= 1
            sessions[session]?.saw(event)
        }
        for id in tasks { forget(id, at: now) }
    }
}

extension AttemptReport {
    /// The event of a challenge.
    fileprivate func challengeEvent(at now: Date) -> SessionEvent {
        var event = SessionEvent(.challenged, time: now)
        event.response = challenge
        event.body = challengeBody
        event.challenge =
            challenge?.headers
            .first {
                ["www-authenticate", "proxy-authenticate"].contains($0.first?.lowercased())
            }?.last
        return event
    }
}
