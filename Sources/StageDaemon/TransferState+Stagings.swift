import FoundationEssentials
import StageControl

/// Stagings: the attached client carries them out; without one, a worker does.
extension TransferState {
    /// Checks that a client may have packs staged by a worker, which must not gain rights that the client's process
    /// lacks.
    ///
    /// - Returns: Whether the process must also pass the checks for handlers.
    func checkStagings(
        _ tasks: [TransferRequest],
        in session: Session,
        for client: ClientCredentials,
        hasWorkers: Bool
    ) throws(ControlRefusal) -> Bool {
        let jobs = tasks.compactMap { $0.kind == .staging ? $0.staging : nil }
        guard !jobs.isEmpty else { return false }
        guard hasWorkers else {
            throw ControlRefusal(
                .unavailable,
                message: "no program that stages packs is installed beside the daemon"
            )
        }
        guard session.record.user == client.user else {
            throw ControlRefusal(
                .forbidden,
                message: "only the user who owns a session may have packs staged in it"
            )
        }
        guard session.record.configuration.isTransient else {
            throw ControlRefusal(.invalid, message: "a staging requires a transient session")
        }
        let rights = session.record.rights
        guard client.groups.isSuperset(of: rights.groups), client.groups.contains(rights.group)
        else {
            throw ControlRefusal(
                .forbidden,
                message:
                    "the session was created by a process with more groups than this one, which a worker would have"
            )
        }
        // A confined service of root may have registered applications staged, since their registration belongs to the
        // system and the client chooses nothing else.
        let isSystem = jobs.allSatisfy {
            $0.application != nil && $0.container == nil && $0.environment == nil
        }
        return client.user != 0 || !isSystem
    }

    /// Replaces the update conditions of a request by those of the daemon's configuration.
    ///
    /// A staging without conditions keeps none: a person waits for it.
    func withConfiguredConditions(_ request: TransferRequest) -> TransferRequest {
        guard let conditions = configuration.updateConditions, request.staging?.conditions != nil
        else { return request }
        var request = request
        request.staging?.conditions = conditions
        return request
    }

    /// Returns the constraints of a staging under the current configuration; `nil` for any other task, and for a staging
    /// without conditions.
    ///
    /// A staging that a person has promoted stays without constraints.
    func currentConstraints(
        of record: TaskRecord,
        request: TransferRequest
    ) -> TransferConstraints? {
        guard let session = sessions[record.session]?.record, !record.isPromoted,
            request.staging?.conditions != nil
        else { return nil }
        return TransferConstraints(
            session: session.configuration,
            request: withConfiguredConditions(request)
        )
    }

    /// Returns the constraints to record for a staging under the current configuration; `nil` if they are unchanged.
    func changedConstraints(of task: FullTask) -> TransferConstraints? {
        let constraints = currentConstraints(of: task.record, request: task.request)
        return constraints == task.record.constraints ? nil : constraints
    }

    /// Decides what follows an attempt of a staging.
    mutating func judge(_ end: StagingEnd, of task: FullTask, at now: Date) -> Judgement {
        let id = task.record.id
        guard scheduler.items[id] != nil else { return .wait }
        guard let failure = end.failure else { return unschedule(id) ? .complete : .wait }
        histories[id, default: AttemptHistory()].problem = failure.reason
        guard let reason = end.pendingReason else { return unschedule(id) ? .fail(failure) : .wait }
        let failures = histories[id]?.failures ?? 0
        histories[id]?.failures += 1
        let until = now + wait(for: reason, afterFailures: failures)
        // A staging waits for a disk only if that is full.
        let problem = reason == .disk ? nil : failure.reason
        scheduler.attemptEnded(
            id,
            pending: PendingReason(reason, until: until, problem: problem),
            at: now
        )
        assign(id, at: now)
        return .wait
    }

    /// Returns the delay in seconds before the next attempt of a staging that has failed `failures` times.
    private func wait(for reason: PendingReason.Kind, afterFailures failures: Int) -> Double {
        let first = max(15 * configuration.retryBase, 1)
        let usual = min(first * Double(1 << min(failures, 16)), 3600)
        return [.portal, .disk].contains(reason) ? max(usual, 120) : usual
    }

    /// Assigns a staging that is not running to the session's client if one is attached, else to a worker.
    mutating func assign(_ id: Int64, at now: Date) {
        guard let item = scheduler.items[id], !item.isConnected,
            item.phase == .pending || item.phase == .queued
        else { return }
        let isAttended = sessions[item.session]?.isAttached ?? false
        let host = isAttended ? Scheduler.clientHost : Scheduler.workerHost
        guard item.host != host else { return }
        scheduler.change(id, at: now) { $0.host = host }
    }

    /// Reassigns the stagings of a client that has detached to workers.
    ///
    /// - Returns: Effects that stop the client's attempts, whose tasks are reassigned when the attempts end.
    mutating func handToWorkers(_ session: Int64, at now: Date) -> [Effect] {
        guard sessions[session]?.record.configuration.isTransient ?? false else { return [] }
        var effects: [Effect] = []
        for id in scheduler.transfers[session] ?? [] where isAssignedToClient(id) {
            if attempts.contains(id) { effects.append(.stop(id)) } else { assign(id, at: now) }
        }
        return effects
    }

    /// Returns whether the client carries out a staging.
    func isAssignedToClient(_ id: Int64) -> Bool {
        scheduler.items[id]?.host == Scheduler.clientHost
    }

    /// Returns the other transient sessions for the same staging job.
    private func sessions(ofSameJobAs session: Session) -> [Session] {
        guard let own = session.record.jobKey else { return [] }
        return sessions.values.filter { other in
            other.record.id != session.record.id && other.record.user == session.record.user
                && other.record.configuration.isTransient && other.record.jobKey == own
        }
    }

    /// Returns the sessions that a transient session replaces: those for the same job without a client.
    private func sessions(replacedBy session: Session) -> [Int64] {
        // If two sessions replace each other, the one that is already being removed must not remove the other.
        guard sessions[session.record.id]?.isEnding == false else { return [] }
        return sessions(ofSameJobAs: session).filter { !$0.isAttached && !$0.isEnding }
            .map(\.record.id)
    }

    /// Returns whether a person has paused a staging that the stagings of a transient session replace.
    func replacesPaused(_ session: Session) -> Bool {
        sessions(replacedBy: session).contains { id in
            (scheduler.transfers[id] ?? []).contains { task in
                scheduler.items[task]?.blocks.contains(.user) ?? false
            }
        }
    }

    /// Starts the removal of the sessions that a transient session replaces, and returns them.
    ///
    /// The new stagings of the session wait until the attempts of the replaced ones have ended
    /// (``endReplacement(of:at:)``), and those of sessions for the same job that were being removed before: no two
    /// processes stage the same packs.
    mutating func beginReplacement(by session: Session) -> [Int64] {
        let ids = sessions(replacedBy: session)
        // Their clients have gone and will not return.
        for id in ids { sessions[id]?.isEnding = true }
        let ending = sessions(ofSameJobAs: session).filter(\.isEnding).map(\.record.id)
        sessions[session.record.id]?.predecessors.formUnion(ending)
        return ids
    }

    /// Returns the sessions whose unfinished stagings the journal deletes when it has those of a session.
    func predecessors(of session: Int64) -> [Int64] {
        Array(sessions[session]?.predecessors ?? [])
    }

    /// Notes that the unfinished stagings of sessions were deleted because those of `session` replace them; `counts` has
    /// their numbers by session.
    ///
    /// - Returns: The sessions whose removal has failed meanwhile and begins again.
    mutating func replaced(_ counts: [Int64: Int], by session: Int64) -> [Int64] {
        for (id, count) in counts { sessions[id]?.unfinished -= count }
        let kept = counts.keys.filter { sessions[$0]?.isEnding == false }.sorted()
        for id in kept {
            sessions[id]?.isEnding = true
            sessions[session]?.predecessors.insert(id)
        }
        return kept
    }

    /// Returns whether stagings of another session replace those of a session.
    func isReplaced(_ id: Int64) -> Bool {
        sessions[id]?.isEnding == true && sessions.values.contains { $0.predecessors.contains(id) }
    }

    /// Lets the stagings begin that waited for the end of a replaced session's attempts.
    mutating func endReplacement(of id: Int64, at now: Date) {
        for (other, session) in sessions where session.predecessors.contains(id) {
            sessions[other]?.predecessors.remove(id)
            guard session.predecessors.count == 1 else { continue }
            for task in scheduler.transfers[other] ?? [] {
                scheduler.change(task, at: now) { $0.blocks.remove(.predecessor) }
            }
        }
    }

    /// Returns the task, paused if a person has paused the staging that it replaces and no person waits for it: a timer
    /// does not resume what a person has paused.
    func keepingPause(_ task: NewTask, isPaused: Bool) -> NewTask {
        guard isPaused, task.request.staging?.isPeriodic ?? false else { return task }
        var task = task
        task.blocks.insert(.user)
        return task
    }

    /// Returns whether a transient session has no unfinished task and no attached client, and so is to be removed.
    ///
    /// While tasks are being created in it, it stays, and ``Session/wasOverDuringCreation`` is set.
    mutating func isOver(_ id: Int64) -> Bool {
        guard let session = sessions[id], session.record.configuration.isTransient,
            !session.isAttached, session.unfinished == 0, !session.isEnding
        else { return false }
        guard session.reserved == 0 else {
            sessions[id]?.wasOverDuringCreation = true
            return false
        }
        return true
    }
}
