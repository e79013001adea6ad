import FoundationEssentials
import Logging
import StageControl
import StageSystem

/// Stagings: their clients carry them out under the scheduler's eyes, and workers where clients have gone.
extension Broker {
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

    /// Whether the client of a session is there to carry its stagings out.
    func isAttended(_ session: Int64) -> Bool { sessions[session]?.isAttached ?? false }

    /// Checks that a client may have packs staged by a worker, which takes nothing that its process has not.
    ///
    /// Root's client may be confined all the same, as a service is, and have registered applications
    /// staged: they are the system's, and nothing in the order is the client's choice.
    func checkStagings(
        _ tasks: [TransferRequest],
        in session: LiveSession,
        _ caller: Caller
    ) async throws(ControlRefusal) {
        let orders = tasks.compactMap { $0.kind == .staging ? $0.staging : nil }
        guard !orders.isEmpty else { return }
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
        let groups = Set(caller.identity.groups + [caller.identity.group])
        guard groups.isSuperset(of: rights.groups), groups.contains(rights.group) else {
            throw ControlRefusal(
                .forbidden,
                "the session was made by a process with more groups, which a worker would have"
            )
        }
        let isSystem = orders.allSatisfy {
            $0.application != nil && $0.container == nil && $0.environment == nil
        }
        if caller.user == 0, isSystem { return }
        try await checkHandler(caller)
    }

    /// Checks that a transient session does not get more tasks than it may have.
    func checkCount(of tasks: [NewTask], in session: Int64) throws(ControlRefusal) {
        guard let session = sessions[session], session.record.configuration.isTransient,
            session.unfinished + tasks.count > RequestLimits.stagings
        else { return }
        throw ControlRefusal(
            .quota,
            "a transient session may have \(RequestLimits.stagings) tasks"
        )
    }

    /// Takes in how an attempt at a staging ended.
    func judge(_ task: FullTask, _ end: StagingEnd) async {
        let (id, now) = (task.record.id, Date.now)
        guard let failure = end.failure else {
            scheduler.remove(id)
            await conclude([(id, SessionEvent(.completed, time: now))])
            return
        }
        extras[id, default: Extra()].problem = failure.reason
        guard let reason = end.hold else { return await fail(task, failure) }
        let failures = extras[id]?.failures ?? 0
        extras[id]?.failures += 1
        let hold = Hold(reason, until: now + wait(reason, failures), problem: failure.reason)
        scheduler.paused(id, hold, at: now)
        assign(id)
        tellHolds(of: id, at: now)
        turn()
    }

    /// The delay, in seconds, before the next attempt at a staging that has failed `failures` times before.
    private func wait(_ reason: HoldReason, _ failures: Int) -> Double {
        let first = max(15 * configuration.retryBase, 1)
        let usual = min(first * Double(1 << min(failures, 16)), 3600)
        return [.portal, .disk].contains(reason) ? max(usual, 120) : usual
    }

    /// Has a staging that does not run carried out by its client if that is there, else by a worker.
    func assign(_ id: Int64) {
        guard let item = scheduler.items[id], item.phase == .held || item.phase == .queued else {
            return
        }
        let host = isAttended(item.session) ? Scheduler.clientHost : Scheduler.workerHost
        guard item.host != host else { return }
        scheduler.change(id, at: .now) { $0.host = host }
    }

    /// Has the client of a session, which has come, carry out what no worker has in hand.
    func handToClient(_ session: Int64) {
        for (id, item) in scheduler.items where item.session == session { assign(id) }
        turn()
    }

    /// Has workers go on with what the client of a session had in hand.
    func handToWorkers(_ session: Int64) {
        guard sessions[session]?.record.configuration.isTransient ?? false else { return }
        for (id, item) in scheduler.items where item.session == session {
            if let transfer = live[id] {
                // It is assigned anew when the attempt has ended.
                if item.host == Scheduler.clientHost { transfer.switchOff.stop() }
            } else if item.host == Scheduler.clientHost {
                assign(id)
            }
        }
        turn()
    }

    /// Takes in how a client says that its attempt ended.
    func end(
        _ task: FullTask,
        _ change: TransferChange,
        _ caller: Caller
    ) async throws(ControlRefusal) -> TransferTask {
        var rest = change
        rest.stagingEnd = nil
        guard let end = change.stagingEnd, rest == TransferChange() else {
            throw ControlRefusal(.invalid, "'stagingEnd' changes nothing else")
        }
        try RequestLimits.check(end)
        let id = task.record.id
        guard task.request.kind == .staging, scheduler.items[id]?.host == Scheduler.clientHost
        else {
            throw ControlRefusal(.conflict, "task \(id) is no staging that its client carries out")
        }
        await halt(id)
        await judge(task, end)
        return try await self.task(id, caller)
    }

    /// Removes the sessions whose place a transient one takes: those of its user that no client is attached to
    /// and whose identifier is the same up to the last `/`.
    ///
    /// Their workers end first, and keep what they have received.
    func takeOver(for session: LiveSession) async {
        func order(_ session: LiveSession) -> Substring {
            let identifier = session.record.identifier
            return identifier[..<(identifier.lastIndex(of: "/") ?? identifier.startIndex)]
        }
        let own = order(session)
        guard !own.isEmpty else { return }
        let others = sessions.values.filter { other in
            other.record.id != session.record.id && other.record.user == session.record.user
                && other.record.configuration.isTransient && !other.isAttached
                && !other.isEnding && order(other) == own
        }
        // No client comes to any of them any more, and their workers end side by side.
        for other in others { sessions[other.record.id]?.isEnding = true }
        await withDiscardingTaskGroup { group in
            for other in others { group.addTask { await self.removeOrTell(other) } }
        }
    }

    /// Removes a transient session that has nothing left to do and that no client is attached to.
    func removeIfOver(_ id: Int64) async {
        guard let session = sessions[id], session.record.configuration.isTransient,
            !session.isAttached, session.unfinished == 0, !session.isEnding
        else { return }
        await removeOrTell(session)
    }

    private func removeOrTell(_ session: LiveSession) async {
        do throws(ControlRefusal) {
            try await remove(session)
        } catch {
            // It is tried again at the next start.
            logger.warning("A session stays", metadata: ["error": "\(error)"])
        }
    }
}
