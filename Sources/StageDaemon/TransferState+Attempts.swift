import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import SystemPackage

/// Start and end of attempts.
extension TransferState {
    /// Input of an attempt.
    struct Attempt: Sendable {
        var task: FullTask
        /// The session.
        ///
        /// Its header fields are removed if another user created the task.
        var owner: SessionRecord
        /// Results of the earlier attempts.
        var history: AttemptHistory
        /// Set if the client carries out a staging, rather than a worker, according to the scheduler.
        var isAssignedToClient: Bool
    }

    /// Decision about an attempt that the scheduler has started.
    enum Beginning {
        case run(Attempt)
        /// The content is verified; commit it.
        case commit
        /// Fail the task without an attempt.
        case fail(TransferFailure)
        /// The attempt must not begin, or not now.
        case none
    }

    /// Next step after an attempt that did not complete.
    enum Judgement: Equatable {
        /// No step: the scheduler retries the task.
        case wait
        /// Wait until the disk has space, or can be written if there was an error.
        case waitForSpace(problem: String?)
        /// Try to free quota of the user.
        case waitForQuota
        /// Record a challenge.
        case record(SessionEvent)
        /// Record the failure of the task, which was removed from the scheduler.
        case fail(TransferFailure)
        /// Record the completion of the task, which was removed from the scheduler.
        case complete
    }

    /// Decides whether an attempt that the scheduler has started begins.
    ///
    /// - Parameters:
    ///   - id: The task's identifier.
    ///   - task: The task, just read from the journal.
    ///   - used: The bytes of the task's user in the journal.
    ///   - now: The current time.
    /// - Returns: The decision; unless it is `run`, the attempt has ended.
    mutating func begin(
        _ id: Int64,
        task: FullTask?,
        used: Int64,
        at now: Date
    ) -> Beginning {
        guard let item = scheduler.items[id], attempts.contains(id), !aborted.contains(id) else {
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
            _ = unschedule(id)
            return .fail(task.isLost ? FullTask.damaged : .lostResponse)
        }
        guard task.record.state != .verified else {
            _ = endAttempt(of: id)
            _ = unschedule(id)
            committing.insert(id)
            return .commit
        }
        // Recording the result of the attempt needs space in the journal, too.
        guard used <= configuration.journalPerUser.rawValue else {
            postpone(id, pending: PendingReason(.quota, until: now + Self.quotaWait), at: now)
            return .none
        }
        // The session's header fields are for servers that its user chose, not for those of another group member.
        if task.record.creator != owner.user { owner.configuration.headers = [:] }
        return .run(
            Attempt(
                task: task,
                owner: owner,
                history: histories[id] ?? AttemptHistory(),
                isAssignedToClient: item.host == Scheduler.clientHost
            )
        )
    }

    /// Postpones a task whose attempt was started but cannot begin.
    mutating func postpone(_ id: Int64, pending reason: PendingReason, at now: Date) {
        _ = endAttempt(of: id)
        scheduler.attemptEnded(id, pending: reason, at: now)
        assign(id, at: now)
    }

    /// Marks the attempt of a task as aborted, so that its result is discarded; returns whether an attempt is
    /// running.
    mutating func abort(_ id: Int64) -> Bool {
        guard attempts.contains(id) else { return false }
        aborted.insert(id)
        return true
    }

    /// Marks an attempt as ended; returns whether its result counts.
    mutating func endAttempt(of id: Int64) -> Bool {
        attempts.remove(id)
        scheduler.workerEnded(id)
        return aborted.remove(id) == nil
    }

    /// Removes a completed task from the scheduler, and ends the backoff of the user's tasks that could not reach its host.
    ///
    /// - Returns: Whether the task was in the scheduler.
    mutating func succeed(_ task: FullTask, at now: Date) -> Bool {
        let id = task.record.id
        unreachable.remove(id)
        guard let item = scheduler.items[id] else { return false }
        // With mirrors, the success may come from another host.
        if item.isConnected, !item.hasMirrors {
            for waiting in unreachable.removeAll(of: item.host, user: item.user) {
                endWait(of: waiting, for: [.backoff], at: now)
            }
        }
        return unschedule(id)
    }

    /// Decides what follows an attempt that did not complete.
    mutating func judge(
        _ verdict: TransferVerdict,
        of task: FullTask,
        report: AttemptReport,
        at now: Date
    ) -> Judgement {
        let id = task.record.id
        guard let item = scheduler.items[id] else { return .wait }
        var judgement = Judgement.wait
        switch verdict {
        case .stopped:
            scheduler.attemptEnded(id, pending: nil, at: now)
        case .retry(let reason):
            histories[id]?.noteFailure(report)
            let isUnreachable = reason.kind == .backoff && report.isUnreachable
            noteHost(of: id, item: item, isUnreachable: isUnreachable)
            // The attempt began before the network changed, so its failure is no reason to delay the next one.
            let isOutdated = isUnreachable && report.started.map { $0 < networkChange } ?? false
            scheduler.attemptEnded(id, pending: isOutdated ? nil : reason, at: now)
            noteHostDelay(of: item, after: report, reason: reason, at: now)
            if reason.kind == .quota {
                // Registered before the search for freed quota, so that files removed during the search are noticed.
                quotaWaiters[item.user, default: []].insert(id)
                judgement = .waitForQuota
            } else if !isOutdated, let failure = takeFailure(of: id, insteadOf: reason) {
                return .fail(failure)
            }
        case .disk(let problem):
            scheduler.attemptEnded(id, pending: nil, at: now)
            judgement = .waitForSpace(problem: problem)
        case .challenge:
            scheduler.change(id, at: now) { $0.blocks.insert(.authentication) }
            scheduler.attemptEnded(id, pending: nil, at: now)
            judgement = .record(report.challengeEvent(at: now))
        case .fail(let failure):
            return unschedule(id) ? .fail(failure) : .wait
        }
        if let failure = takeStalled(id, at: now) { return .fail(failure) }
        handOver(involving: id, at: now)
        assign(id, at: now)
        return judgement
    }

    private mutating func noteHost(of id: Int64, item: Scheduler.Item, isUnreachable: Bool) {
        guard item.isConnected else { return }
        if isUnreachable {
            unreachable.add(id, waitingFor: item.host, of: item.user)
        } else {
            unreachable.remove(id)
        }
    }

    /// Delays the user's other transfers from a host, too, if it responded with 429 or 503 and `Retry-After`.
    ///
    /// After redirects, that is the last host: the one that redirected may have many targets. Ignores transfers with
    /// mirrors: any of these may have requested the delay.
    private mutating func noteHostDelay(
        of item: Scheduler.Item,
        after report: AttemptReport,
        reason: PendingReason,
        at now: Date
    ) {
        guard item.isConnected, !item.hasMirrors, reason.kind == .server, let end = reason.until,
            let response = report.response, [429, 503].contains(response.status),
            let origin = URLReference(response.url).origin
        else { return }
        scheduler.addHostDelay(of: origin.description, user: item.user, until: end, at: now)
    }

    /// Notes that a challenge is recorded, so that the session's handler may be started for it.
    mutating func challengeRecorded(of id: Int64) {
        guard let item = scheduler.items[id], item.blocks.contains(.authentication) else { return }
        sessions[item.session]?.challenged.insert(id)
    }

    /// Retries a task whose challenge could not be recorded; the server will send the challenge again.
    mutating func challengeNotRecorded(of id: Int64, after error: DaemonError, at now: Date) {
        // A change by the client may already have unblocked the task.
        guard scheduler.items[id]?.blocks.contains(.authentication) == true else { return }
        scheduler.change(id, at: now) { $0.blocks.remove(.authentication) }
        waitForDisk(id, problem: error.diskProblem, at: now)
        handOver(involving: id, at: now)
    }
}

/// Failed commits.
extension TransferState {
    /// Errors that do not end by themselves.
    private static let lastingErrors: Set<Errno> = [
        .invalidArgument, .permissionDenied, .notPermitted, .ioError,
    ]
    /// Number of failed commits after which such an error fails the task.
    private static let commitAttempts = 5
    /// Maximum delay in seconds before a commit is repeated.
    private static let longestCommitWait = 3600.0

    /// Lets a task that was handed back to the scheduler wait after its content could not be committed or copied.
    ///
    /// - Returns: The failure if the task is to end instead.
    mutating func commitFailed(
        _ id: Int64,
        with error: DaemonError,
        at now: Date
    ) -> TransferFailure? {
        guard scheduler.items[id] != nil else { return nil }
        let failures = histories[id, default: AttemptHistory()].noteFailedCommit()
        let delay = Self.diskWait * Double(1 << min(failures - 1, 8))
        var reason = PendingReason(
            .backoff,
            until: now + min(delay, Self.longestCommitWait),
            problem: "\(error)"
        )
        if case .file(let error) = error {
            if failures >= Self.commitAttempts, Self.lastingErrors.contains(error.errno) {
                return TransferFailure(.storage, reason: "\(error)")
            }
            if error.errno == DiskQuota.quotaExceeded {
                reason = PendingReason(.quota, until: now + Self.quotaWait)
            } else if error.isOutOfSpace {
                reason = PendingReason(.disk, until: now + Self.diskWait)
            } else if error.errno == .readOnlyFileSystem {
                // Ends when a person has repaired the file system.
                reason = PendingReason(.disk, until: now + Self.diskWait, problem: "\(error)")
            }
        }
        scheduler.attemptEnded(id, pending: reason, at: now)
        return takeFailure(of: id, insteadOf: reason)
    }
}

/// Waiting for quota.
extension TransferState {
    /// Maximum number of attempts for content of unknown size that exceeds the quota.
    private static let quotaAttempts = 3

    /// Returns whether a task still waits for quota.
    func waitsForQuota(_ id: Int64) -> Bool {
        guard let item = scheduler.items[id], !attempts.contains(id) else { return false }
        return item.notBefore?.kind == .quota && quotaWaiters[item.user]?.contains(id) ?? false
    }

    /// Returns whether content of unknown size has exceeded the quota too often.
    ///
    /// Removes the task from the scheduler in that case.
    mutating func failsByQuota(_ id: Int64) -> Bool {
        guard histories[id]?.failures ?? 0 > Self.quotaAttempts else { return false }
        return unschedule(id)
    }

    /// Removes a task from those that wait for quota.
    mutating func removeQuotaWaiter(of id: Int64, user: UInt32) {
        guard quotaWaiters[user]?.remove(id) != nil, quotaWaiters[user]?.isEmpty ?? false else {
            return
        }
        quotaWaiters[user] = nil
    }

    /// Resumes a user's tasks that wait for quota, except `exempt`; returns whether there were any.
    @discardableResult
    mutating func endQuotaWaits(
        of user: UInt32,
        apart exempt: Int64? = nil,
        at now: Date
    ) -> Bool {
        guard var tasks = quotaWaiters.removeValue(forKey: user) else { return false }
        if let exempt, tasks.remove(exempt) != nil { quotaWaiters[user] = [exempt] }
        for id in tasks where scheduler.items[id]?.notBefore?.kind == .quota {
            scheduler.change(id, at: now) { $0.notBefore = nil }
            handOver(involving: id, at: now)
        }
        return !tasks.isEmpty
    }
}

/// Ends of tasks.
extension TransferState {
    /// Returns the final event of a failed task; `token` resumes its received content.
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

    /// Returns the final event of a cancelled task; `token` resumes its received content.
    func cancellation(of task: FullTask, token: String?, at now: Date) -> SessionEvent {
        var event = ending(.cancelled, of: task, at: now)
        event.resumeToken = token
        return event
    }

    /// Returns the final event of an upload whose challenge the client has rejected: the challenge is its response.
    func answer(
        of task: FullTask,
        challenge: SessionEvent,
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
        return event.checkingStatus(task.request)
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

    /// Notes that tasks are recorded as ended, with their final events.
    mutating func ended(
        _ tasks: [Int64],
        events: [(session: Int64, event: SessionEvent)],
        at now: Date
    ) {
        for (session, event) in events {
            sessions[session]?.unfinished -= 1
            sessions[session]?.note(event)
        }
        for id in tasks { forget(id, at: now) }
    }
}

extension AttemptReport {
    /// Returns the event of a challenge.
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
