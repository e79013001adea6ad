import FoundationEssentials
import StageControl
import StageModel

/// Tasks that fail instead of waiting (`failsWithoutRetry` of their requests).
extension TransferState {
    /// Reasons to wait that fail such a task.
    ///
    /// For the others the task waits: its client or a person has chosen them, or they end with other tasks.
    static let stalls: Set<PendingReason.Kind> = [
        .offline, .portal, .metered, .onBattery, .powerSaver, .disk, .backoff, .server, .quota,
        .clock,
    ]

    /// Checks that a user may have more tasks that fail instead of waiting; those that are being created count.
    func checkTasksWithoutRetry(adding count: Int, of user: UInt32) throws(ControlRefusal) {
        guard count > 0 else { return }
        let reserved = sessions.values.reduce(0) { sum, session in
            sum + (session.record.user == user ? session.reservedWithoutRetry : 0)
        }
        let known = reserved + withoutRetry.count { scheduler.items[$0]?.user == user }
        guard known + count <= RequestLimits.tasksWithoutRetry else {
            throw ControlRefusal(
                .quota,
                message:
                    "a user may have \(RequestLimits.tasksWithoutRetry.quantity(of: "unfinished task")) with 'failsWithoutRetry', and would have \(known + count)"
            )
        }
    }

    /// Counts a task that will fail instead of waiting against the limit of such tasks, before the journal has recorded the
    /// change; returns the number of counted tasks, which the caller subtracts afterwards.
    mutating func reserveWithoutRetry(for change: TransferChange, of task: FullTask) -> Int {
        guard change.failsWithoutRetry == true, !withoutRetry.contains(task.record.id) else {
            return 0
        }
        sessions[task.record.session]?.reservedWithoutRetry += 1
        return 1
    }

    /// Notes whether a task fails instead of waiting; if it does, it shares no content, because the download of another task may
    /// wait.
    mutating func noteRetries(of record: TaskRecord, at now: Date) {
        let id = record.id
        guard record.failsWithoutRetry else {
            withoutRetry.remove(id)
            return
        }
        withoutRetry.insert(id)
        // A delay may have begun before.
        scheduler.delayed.insert(id)
        if let user = scheduler.items[id]?.user { removeQuotaWaiter(of: id, user: user) }
        if scheduler.items[id]?.blocks.contains(.leader) == true {
            scheduler.change(id, at: now) { $0.blocks.remove(.leader) }
        }
        leaveContent(id, at: now)
    }

    /// Removes the tasks from the scheduler that fail now instead of waiting.
    mutating func takeStalled(at now: Date) -> [Effect] {
        let delayed = scheduler.delayed
        scheduler.delayed = []
        // A user may have a thousand such tasks: all of them are examined only while many may have to wait.
        let stalled = hasObstacle ? withoutRetry : withoutRetry.intersection(delayed)
        var effects: [Effect] = []
        for id in stalled.sorted() {
            if let failure = takeStalled(id, at: now) { effects.append(.fail(id, failure)) }
        }
        return effects
    }

    /// Removes a task from the scheduler if it fails now instead of waiting; returns its failure.
    mutating func takeStalled(_ id: Int64, at now: Date) -> TransferFailure? {
        guard let reason = stall(of: id, at: now) else { return nil }
        return takeFailure(of: id, insteadOf: reason)
    }

    /// Removes a task from the scheduler if it fails instead of waiting for a reason; returns its failure.
    mutating func takeFailure(
        of id: Int64,
        insteadOf reason: PendingReason
    ) -> TransferFailure? {
        guard withoutRetry.contains(id), Self.stalls.contains(reason.kind) else { return nil }
        let failure = failure(of: id, insteadOf: reason)
        return unschedule(id) ? failure : nil
    }

    /// Removes a task from the scheduler if it fails because a search has freed no quota; returns its failure.
    mutating func takeFailureAfterQuotaSearch(of id: Int64, at now: Date) -> TransferFailure? {
        guard withoutRetry.contains(id), let item = scheduler.items[id] else { return nil }
        removeQuotaWaiter(of: id, user: item.user)
        return takeStalled(id, at: now)
    }

    /// Set if many tasks may have to wait for the same reason.
    private var hasObstacle: Bool {
        let constraints: TransferConstraints = [.unmetered, .power]
        return scheduler.fullUntil != nil || !scheduler.hostDelays.isEmpty
            || !constraints.unmet(in: scheduler.conditions).isEmpty
    }

    /// Returns the reason why a task that fails instead of waiting has to wait now.
    func stall(of id: Int64, at now: Date) -> PendingReason? {
        guard withoutRetry.contains(id), let item = scheduler.items[id],
            item.phase == .pending || item.phase == .queued
        else { return nil }
        if let delay = item.notBefore, delay.until.map({ $0 > now }) ?? false {
            // The task waits for its date, or for the search for files that were moved away.
            let isSearching = delay.kind == .quota && waitsForQuota(id)
            return Self.stalls.contains(delay.kind) && !isSearching ? delay : nil
        }
        guard item.blocks.isEmpty else { return nil }
        // The next decision of the scheduler ends a delay of the host whose date has passed.
        return scheduler.pendingReasons(of: id, at: now).first { reason in
            Self.stalls.contains(reason.kind) && reason.until.map { $0 > now } ?? true
        }
    }

    /// Returns the failure of a task that does not wait for a reason, which has no problem if that is the one of the last attempt
    /// or of the disk.
    private func failure(of id: Int64, insteadOf reason: PendingReason) -> TransferFailure {
        let text = Self.text(for: reason.kind)
        switch reason.kind {
        case .backoff, .server:
            // With its own problem, the delay has another cause than the server.
            if let problem = reason.problem { return TransferFailure(.storage, reason: problem) }
            let problem = histories[id]?.problem ?? text
            guard let status = histories[id]?.response?.status, status >= 400 else {
                return TransferFailure(.unreachable, reason: problem)
            }
            return TransferFailure(.refused, reason: problem, status: status)
        case .disk, .quota:
            let problem = scheduler.fullUntil == nil ? nil : diskProblem
            return TransferFailure(.storage, reason: reason.problem ?? problem ?? text)
        case .clock: return TransferFailure(.untrusted, reason: reason.problem ?? text)
        default: return TransferFailure(.unreachable, reason: reason.problem ?? text)
        }
    }

    private static func text(for kind: PendingReason.Kind) -> String {
        switch kind {
        case .offline: "there is no network"
        case .portal: "the network requires a login"
        case .metered: "the network is metered"
        case .onBattery: "the machine runs on battery power"
        case .powerSaver: "the machine saves power"
        case .disk: "the disk is full"
        case .server: "the server has requested a delay"
        case .quota: "this user's limit of bytes is reached"
        case .clock: "the clock of this machine is wrong"
        default: "the task cannot continue now"
        }
    }
}
