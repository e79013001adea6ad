import FoundationEssentials
import HeapModule
import StageControl
import StageModel

/// Scheduling of tasks and sharing of content.
extension TransferState {
    /// Hands a task to the scheduler.
    ///
    /// - Parameters:
    ///   - record: The task.
    ///   - request: The request, if the content may be shared with another task, or the configuration may have changed
    ///     since the task was written.
    ///   - reason: The reason why the task waits for its earliest date, if neither client nor session asked for it.
    ///   - now: The current time.
    mutating func schedule(
        _ record: TaskRecord,
        request: TransferRequest? = nil,
        reason: PendingReason.Kind? = nil,
        at now: Date
    ) {
        guard let session = sessions[record.session] else { return }
        ending[record.id] = nil
        committing.remove(record.id)
        var item = Scheduler.Item(
            user: session.record.user,
            session: record.session,
            host: record.host,
            sessionLimit: session.record.configuration.maximumConnectionsPerHost,
            priority: record.priority,
            constraints: request.flatMap { currentConstraints(of: record, request: $0) }
                ?? record.constraints
        )
        (item.hasMirrors, item.isPromoted) = (record.hasMirrors, record.isPromoted)
        item.blocks = record.blocks.subtracting(.unrecorded)
        if !item.isConnected, !session.predecessors.isEmpty { item.blocks.insert(.predecessor) }
        if let request, join(record.id, request: request, of: session.record.user) {
            item.blocks.insert(.leader)
        }
        if let earliest = record.earliest, earliest > now {
            let isDiscretionary = session.record.configuration.isDiscretionary
            item.notBefore = PendingReason(
                reason ?? (isDiscretionary ? .discretionary : .earliestBegin),
                until: earliest
            )
        }
        if record.blocks.contains(.authentication) {
            sessions[record.session]?.challenged.insert(record.id)
        }
        if record.host == Scheduler.workerHost, session.isAttached {
            item.host = Scheduler.clientHost
        }
        scheduler.add(record.id, as: item, at: now)
        if expiries.count > 2 * scheduler.items.count + 1024 {
            // Remove the expiries of tasks that have ended, and all but one of each other task.
            var known: Set<Int64> = [record.id]
            expiries = Heap(
                expiries.unordered.filter {
                    scheduler.items[$0.task] != nil && known.insert($0.task).inserted
                }
            )
        }
        expiries.insert(Expiry(date: record.deadline, task: record.id))
        noteRetries(of: record, at: now)
        handOver(involving: record.id, at: now)
    }

    /// Removes a task that is about to end from the scheduler.
    ///
    /// - Returns: Whether it was there. Only the caller that removes a task may end it, so a task ends once.
    mutating func unschedule(_ id: Int64) -> Bool {
        guard let item = scheduler.items[id] else { return false }
        ending[id] = item.session
        sessions[item.session]?.challenged.remove(id)
        scheduler.remove(id, hasAttempt: attempts.contains(id))
        // Followers of a leader wait until its end is recorded; a follower leaves its group at once.
        if item.blocks.contains(.leader) { _ = sharing.leave(id) }
        return true
    }

    /// Forgets a task that has ended.
    ///
    /// If it was the leader of its content, a follower becomes the leader.
    mutating func forget(_ id: Int64, at now: Date) {
        if let session = session(of: id) {
            sessions[session]?.challenged.remove(id)
            if let user = sessions[session]?.record.user { removeQuotaWaiter(of: id, user: user) }
        }
        scheduler.remove(id, hasAttempt: attempts.contains(id))
        ending[id] = nil
        unrecorded.remove(id)
        committing.remove(id)
        unreachable.remove(id)
        histories[id] = nil
        heads.remove(id)
        withoutRetry.remove(id)
        leaveContent(id, at: now)
    }

    /// Returns the blocks to store with a task.
    func storedBlocks(of id: Int64) -> Scheduler.Blocks {
        (scheduler.items[id]?.blocks ?? []).subtracting(.unrecorded)
    }

    /// Returns whether a task has not ended.
    func isUnfinished(_ id: Int64) -> Bool { scheduler.items[id] != nil || ending[id] != nil }

    /// Adds the report of an attempt to the task's history, without header fields if the limit of the user's heads is reached.
    mutating func note(_ report: AttemptReport, of id: Int64) {
        guard isUnfinished(id) else { return }
        histories[id, default: AttemptHistory()].note(report)
        let user = session(of: id).flatMap { sessions[$0]?.record.user }
        guard let head = report.response, let user else { return heads.remove(id) }
        if !heads.add(head, of: id, user: user) { histories[id]?.keep(head.reduced) }
    }

    /// Notes the content bytes that an earlier run of the daemon has received of a task.
    mutating func noteReceived(_ received: ByteCount, of id: Int64) {
        guard isUnfinished(id), histories[id] == nil else { return }
        histories[id] = AttemptHistory(received: received)
    }

    /// Returns the session of an unfinished task.
    func session(of id: Int64) -> Int64? { scheduler.items[id]?.session ?? ending[id] }

    /// Returns the reasons why a task does not run, with the failures that caused them.
    ///
    /// A task whose end cannot be recorded waits for the disk.
    func pendingReasons(of id: Int64, at now: Date) -> [PendingReason] {
        if unrecorded.contains(id) {
            return [PendingReason(.disk, until: scheduler.fullUntil, problem: diskProblem)]
        }
        // A staging waits for the disk of its container, not for the daemon's.
        let isHeld = scheduler.fullUntil != nil && scheduler.items[id]?.isConnected == true
        return scheduler.pendingReasons(of: id, at: now).map { reason in
            if isHeld, reason.kind == .disk, reason.problem == nil {
                return PendingReason(.disk, until: reason.until, problem: diskProblem)
            }
            guard [.backoff, .server].contains(reason.kind), reason.problem == nil else {
                return reason
            }
            return PendingReason(reason.kind, until: reason.until, problem: histories[id]?.problem)
        }
    }

    /// Returns the event that reports whether a task waits, and why.
    func change(of id: Int64, at now: Date) -> SessionEvent {
        let reasons = pendingReasons(of: id, at: now)
        var event = SessionEvent(.changed, time: now)
        event.task = id
        event.state = reasons.isEmpty ? .running : .waiting
        event.pendingReasons = reasons
        return event
    }
}

extension TransferState {
    /// Returns the key by which a user's tasks share content; `nil` if a digest does not prove that it is the same.
    ///
    /// Never shared between users: even the time of a download would reveal that another user has the content.
    static func contentKey(of request: TransferRequest, user: UInt32) -> String? {
        // A task that accepts error responses may get one, which is not the content of other tasks. A task that fails instead of
        // waiting must not wait for another task, which may retry for days.
        guard request.kind == .download, let digest = request.sha256?.lowercased(),
            request.acceptsErrorResponses != true, request.failsWithoutRetry != true,
            request.method ?? "GET" == "GET"
        else { return nil }
        return "\(user) \(digest)"
    }

    /// Adds a task to the group of its content; returns whether it waits for another task.
    private mutating func join(_ id: Int64, request: TransferRequest, of user: UInt32) -> Bool {
        guard let key = Self.contentKey(of: request, user: user) else { return false }
        if let leader = sharing.leader(for: key), leader != id, scheduler.items[leader] == nil {
            // A leader that is ending may fail, and serves only its present followers.
            sharing.replaceLeader(for: key, by: id)
            return false
        }
        return sharing.join(id, for: key)
    }

    /// Removes a task from the group of its content; if it was the leader, a follower becomes the leader.
    mutating func leaveContent(_ id: Int64, at now: Date) {
        guard let next = sharing.leave(id) else { return }
        scheduler.change(next, at: now) { $0.blocks.remove(.leader) }
        handOver(from: next, at: now)
    }

    /// Replaces the leader of a task's content if the leader cannot run but the task, or another one, can.
    ///
    /// Called when the task may begin or cease to be able to run.
    mutating func handOver(involving id: Int64, at now: Date) {
        sharing.reconsider(id)
        if let leader = sharing.leader(of: id) { handOver(from: leader, at: now) }
    }

    /// Replaces all leaders that cannot run any more: time, network and power may let their followers run.
    mutating func handOverAll(at now: Date) {
        for id in sharing.leaders where scheduler.waitsIndefinitely(id, at: now) {
            sharing.reconsiderFollowers(of: id)
            handOver(from: id, at: now)
        }
    }

    private mutating func handOver(from id: Int64, at now: Date) {
        guard scheduler.waitsIndefinitely(id, at: now) else { return }
        // Taken out during the change, since the closure reads other parts of the state.
        var sharing = ContentSharing()
        swap(&sharing, &self.sharing)
        let next = sharing.handOver(from: id) { !scheduler.waitsIndefinitely($0, at: now) }
        swap(&sharing, &self.sharing)
        guard let next else { return }
        scheduler.change(id, at: now) { $0.blocks.insert(.leader) }
        scheduler.change(next, at: now) { $0.blocks.remove(.leader) }
    }

    /// Returns the followers that a completed leader can serve with a copy.
    func followersToServe(by id: Int64, at now: Date) -> [Int64] {
        sharing.followers(of: id).filter { waits($0) && !scheduler.waitsIndefinitely($0, at: now) }
    }

    /// Removes a follower from the scheduler to give it a copy; returns `false` if it no longer waits for one.
    mutating func serve(_ id: Int64) -> Bool {
        guard waits(id), unschedule(id) else { return false }
        committing.insert(id)
        return true
    }

    /// Returns whether a task waits for another one's content and has no attempt.
    private func waits(_ id: Int64) -> Bool {
        scheduler.items[id]?.blocks.contains(.leader) ?? false && !attempts.contains(id)
    }
}

extension Scheduler {
    /// Returns whether a task waits for a possibly lasting reason that does not apply to all tasks.
    fileprivate func waitsIndefinitely(_ id: Int64, at now: Date) -> Bool {
        pendingReasons(of: id, at: now).contains { reason in
            switch reason.kind {
            case .pausedByClient, .pausedByUser, .earliestBegin, .metered, .onBattery,
                .powerSaver, .discretionary, .penalty, .quota, .authentication:
                true
            case .offline, .portal, .disk, .slot, .backoff, .server, .clock, .other: false
            }
        }
    }
}

/// Early ends of delays before another attempt.
extension TransferState {
    /// Delays that end when a client attaches or resumes the task.
    static let clientReasons: Set<PendingReason.Kind> = [.backoff]
    /// Delays that 'stagepack resume' ends.
    static let personReasons: Set<PendingReason.Kind> = [.backoff, .server, .portal, .clock, .disk]

    /// Seconds between ends of a session's delays because of clients that attach.
    static let attachInterval = 10.0

    /// Ends the delay of a task, or of the leader of its content, if it has one of the reasons.
    mutating func endWait(of id: Int64, for reasons: Set<PendingReason.Kind>, at now: Date) {
        for task in Set([id, sharing.leader(of: id) ?? id]) {
            guard let item = scheduler.items[task] else { continue }
            if reasons.contains(.server) { scheduler.endHostDelay(of: item.host, user: item.user) }
            guard let wait = item.notBefore, reasons.contains(wait.kind) else { continue }
            scheduler.change(task, at: now) { $0.notBefore = nil }
        }
    }

    /// Ends the delay of a task that a change resumes.
    mutating func endWait(of id: Int64, by change: TransferChange, at now: Date) {
        switch change.state {
        case .running: endWait(of: id, for: Self.clientReasons, at: now)
        case .unpaused: endWait(of: id, for: Self.personReasons, at: now)
        case .suspended, .paused, .cancelled, nil: break
        }
    }

    /// Ends the delays of all tasks for which `isMeant` returns `true`.
    mutating func endWaits(at now: Date, where isMeant: (Scheduler.Item) -> Bool) {
        for (id, item) in scheduler.items where isMeant(item) {
            scheduler.change(id, at: now) { $0.notBefore = nil }
        }
    }

    /// Ends the delays of a session's tasks, since a client has attached and waits for them.
    ///
    /// Within ``attachInterval`` of such an end, delays end only after that time: clients that are restarted in a loop do not
    /// repeat failed requests in that loop. Not called for a launched handler, which is started for events and not for tasks.
    mutating func endWaits(of session: Int64, at now: Date) {
        let isEarly = sessions[session]?.nextEndOfDelays ?? now > now
        sessions[session]?.mustEndDelays = isEarly
        guard !isEarly else { return }
        sessions[session]?.nextEndOfDelays = now + Self.attachInterval
        for id in scheduler.transfers[session] ?? [] {
            endWait(of: id, for: Self.clientReasons, at: now)
        }
    }

    /// Ends the delays of the sessions to which a client has attached too early for that.
    mutating func endDueWaits(at now: Date) {
        for (id, session) in sessions
        where session.mustEndDelays && session.nextEndOfDelays <= now {
            endWaits(of: id, at: now)
        }
    }
}
