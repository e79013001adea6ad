import FoundationEssentials
import StageControl

/// Stagings: their clients carry them out under the scheduler's eyes, and workers where clients have gone.
extension TransferState {
    /// Checks that a client may have packs staged by a worker, which takes nothing that its process has not.
    ///
    /// - Returns: Whether the process is to be checked as one that has handlers started.
    func checkStagings(
        _ tasks: [TransferRequest],
        in session: Session,
        _ caller: Caller,
        hasWorkers: Bool
    ) throws(ControlRefusal) -> Bool {
        let orders = tasks.compactMap { $0.kind == .staging ? $0.staging : nil }
        guard !orders.isEmpty else { return false }
        guard hasWorkers else {
            throw ControlRefusal(.unavailable, "the daemon has no program that stages packs")
        }
        guard session.record.user == caller.user else {
            throw ControlRefusal(.forbidden, "only the user of a session has packs staged in it")
        }
        guard session.record.configuration.isTransient else {
            throw ControlRefusal(.invalid, "a staging takes a session that is transient")
        }
        let rights = session.record.rights
        guard caller.groups.isSuperset(of: rights.groups), caller.groups.contains(rights.group)
        else {
            throw ControlRefusal(
                .forbidden,
                "the session was made by a process with more groups, which a worker would have"
            )
        }
        // Root's client may be confined, as a service is, and have registered applications staged: they are the
        // system's, and nothing in the order is the client's choice.
        let isSystem = orders.allSatisfy {
            $0.application != nil && $0.container == nil && $0.environment == nil
        }
        return caller.user != 0 || !isSystem
    }

    /// A request with the update conditions of the configuration in the place of its own.
    ///
    /// A staging without conditions waits for none: a person waits for it.
    func withConfiguredConditions(_ request: TransferRequest) -> TransferRequest {
        guard let conditions = configuration.updateConditions, request.staging?.conditions != nil
        else { return request }
        var request = request
        request.staging?.conditions = conditions
        return request
    }

    /// Decides what becomes of a staging after an attempt.
    mutating func judge(_ end: StagingEnd, of task: FullTask, at now: Date) -> Judgement {
        let id = task.record.id
        guard scheduler.items[id] != nil else { return .wait }
        guard let failure = end.failure else { return takeOut(id) ? .complete : .wait }
        histories[id, default: AttemptHistory()].problem = failure.reason
        guard let reason = end.hold else { return takeOut(id) ? .fail(failure) : .wait }
        let failures = histories[id]?.failures ?? 0
        histories[id]?.failures += 1
        let until = now + wait(reason, afterFailures: failures)
        scheduler.paused(id, Hold(reason, until: until, problem: failure.reason), at: now)
        assign(id, at: now)
        return .wait
    }

    /// The delay, in seconds, before the next attempt at a staging that has failed `failures` times before.
    private func wait(_ reason: HoldReason, afterFailures failures: Int) -> Double {
        let first = max(15 * configuration.retryBase, 1)
        let usual = min(first * Double(1 << min(failures, 16)), 3600)
        return [.portal, .disk].contains(reason) ? max(usual, 120) : usual
    }

    /// Has a staging that does not run carried out by its client if that is there, else by a worker.
    mutating func assign(_ id: Int64, at now: Date) {
        guard let item = scheduler.items[id], !item.isConnected,
            item.phase == .held || item.phase == .queued
        else { return }
        let isAttended = sessions[item.session]?.isAttached ?? false
        let host = isAttended ? Scheduler.clientHost : Scheduler.workerHost
        guard item.host != host else { return }
        scheduler.change(id, at: now) { $0.host = host }
    }

    /// Has workers go on with what the client of a session had in hand.
    ///
    /// - Returns: The attempts that end; their tasks are assigned anew then.
    mutating func handToWorkers(_ session: Int64, at now: Date) -> [Effect] {
        guard sessions[session]?.record.configuration.isTransient ?? false else { return [] }
        var effects: [Effect] = []
        for (id, item) in scheduler.items where item.session == session {
            if attempts.contains(id) {
                if item.host == Scheduler.clientHost { effects.append(.stop(id)) }
            } else if item.host == Scheduler.clientHost {
                assign(id, at: now)
            }
        }
        return effects
    }

    /// Whether the client of a staging carries it out.
    func isOfClient(_ id: Int64) -> Bool { scheduler.items[id]?.host == Scheduler.clientHost }

    /// Begins the removal of the sessions whose place a transient one takes: those of its user that no client is
    /// attached to and whose identifier is the same up to the last `/`.
    mutating func beginTakeOver(for session: Session) -> [Int64] {
        func order(_ session: Session) -> Substring {
            let identifier = session.record.identifier
            return identifier[..<(identifier.lastIndex(of: "/") ?? identifier.startIndex)]
        }
        let own = order(session)
        guard !own.isEmpty else { return [] }
        let others = sessions.values.filter { other in
            other.record.id != session.record.id && other.record.user == session.record.user
                && other.record.configuration.isTransient && !other.isAttached
                && !other.isEnding && order(other) == own
        }
        // No client comes to any of them any more.
        for other in others { sessions[other.record.id]?.isEnding = true }
        return others.map(\.record.id)
    }

    /// Whether a transient session has nothing left to do and no client is attached to it.
    func isOver(_ id: Int64) -> Bool {
        guard let session = sessions[id] else { return false }
        return session.record.configuration.isTransient && !session.isAttached
            && session.unfinished == 0 && session.reserved == 0 && !session.isEnding
    }
}
