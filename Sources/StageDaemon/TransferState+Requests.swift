import FoundationEssentials
import StageControl
import StageModel
import StageTransfer

/// Creation of tasks.
extension TransferState {
    /// Checks that a user may create more tasks in a session; `byteLimit` is the user's disk quota.
    func checkQuota(
        of tasks: [TransferRequest],
        in id: Int64,
        byteLimit: ByteCount?
    ) throws(ControlRefusal) {
        guard let session = sessions[id], !session.isEnding else {
            throw ControlRefusal.sessionEnds
        }
        let own = sessions.values.filter { $0.record.user == session.record.user }
        let count = own.reduce(0) { sum, session in
            sum + session.unfinished + session.reserved
                + Int(session.record.last - session.record.acknowledged)
        }
        guard count + tasks.count <= configuration.tasksPerUser else {
            throw ControlRefusal(
                .quota,
                message:
                    "a user may have \(configuration.tasksPerUser.quantity(of: "task")), and would have \(count + tasks.count)"
            )
        }
        let unfinished = session.unfinished + session.reserved
        if session.record.configuration.isTransient,
            unfinished + tasks.count > RequestLimits.stagings
        {
            throw ControlRefusal(
                .quota,
                message:
                    "a transient session may have at most \(RequestLimits.stagings) unfinished tasks"
            )
        }
        try checkTasksWithoutRetry(adding: tasks.countWithoutRetry, of: session.record.user)
        // A single task above the quota could never run; others wait until there is quota.
        guard let limit = byteLimit,
            tasks.contains(where: { $0.size.map { $0 > limit } ?? false })
        else { return }
        throw ControlRefusal(
            .quota,
            message: "a task is larger than what the daemon keeps for one user, \(limit)"
        )
    }

    /// Creates the tasks of a request.
    ///
    /// - Parameters:
    ///   - message: The request.
    ///   - session: The session.
    ///   - fractions: Random numbers from 0 to 1, one for each task, which spread discretionary tasks.
    ///   - now: The current time.
    /// - Returns: The tasks, and the reason for which they wait if the launch delay postpones them.
    /// - Throws: ``ControlRefusal`` if a request is invalid.
    func newTasks(
        _ message: NewTasks,
        in session: SessionRecord,
        fractions: [Double],
        at now: Date
    ) throws(ControlRefusal) -> (tasks: [NewTask], reason: PendingReason.Kind?) {
        // Tasks of a launched handler wait as long as the next launch.
        var (penalty, reason): (Date?, PendingReason.Kind?) = (nil, nil)
        if let token = message.launch, token == session.launchLimiter.activeToken {
            penalty = session.launchLimiter.earliestBegin(at: now)
        }
        var tasks: [NewTask] = []
        for (request, fraction) in zip(message.tasks, fractions) {
            let configured = withConfiguredConditions(request)
            var task = try NewTask(configured, in: session.configuration, at: now)
            // The task keeps the conditions of the request: those of the configuration may change or be removed.
            task.request.staging?.conditions = request.staging?.conditions
            // As for a task that is promoted later, no delay applies to a promoted one.
            if request.isPromoted != true {
                if let penalty, penalty > task.earliest ?? .distantPast {
                    task.earliest = penalty
                    reason = .penalty
                }
                if session.configuration.isDiscretionary {
                    let slot = now + fraction * max(configuration.discretionaryWindow, 0)
                    task.earliest = max(task.earliest ?? slot, slot)
                }
            }
            tasks.append(task)
        }
        return (tasks, reason)
    }

    /// Reserves quota for tasks that are about to be written to the journal, so that concurrent requests cannot
    /// exceed it together.
    mutating func reserve(
        _ tasks: [TransferRequest],
        in session: Int64
    ) throws(ControlRefusal) {
        try checkQuota(of: tasks, in: session, byteLimit: nil)
        sessions[session]?.reserved += tasks.count
        sessions[session]?.reservedWithoutRetry += tasks.countWithoutRetry
    }

    /// Ends the reservation of tasks that were not created.
    mutating func endReservation(of tasks: [TransferRequest], in session: Int64) {
        sessions[session]?.reserved -= tasks.count
        sessions[session]?.reservedWithoutRetry -= tasks.countWithoutRetry
    }

    /// Schedules tasks that were written to the journal, and ends their reservation.
    ///
    /// - Parameters:
    ///   - tasks: The requested tasks, including those that already existed.
    ///   - session: The session.
    ///   - reason: The reason for which tasks of a launched handler wait.
    ///   - now: The current time.
    mutating func created(
        _ tasks: [(record: TaskRecord, isNew: Bool, request: TransferRequest)],
        in session: Int64,
        reason: PendingReason.Kind?,
        at now: Date
    ) {
        endReservation(of: tasks.map { $0.request }, in: session)
        guard sessions[session] != nil else { return }
        for task in tasks where task.isNew {
            sessions[session]?.unfinished += 1
            schedule(task.record, request: task.request, reason: reason, at: now)
            // A client now wants this content, so a backoff of another task for it ends.
            endWait(of: task.record.id, for: Self.clientReasons, at: now)
        }
    }
}

extension [TransferRequest] {
    /// Number of tasks that fail instead of waiting.
    fileprivate var countWithoutRetry: Int { count(where: { $0.failsWithoutRetry == true }) }
}

/// Changes of one task.
extension TransferState {
    /// First step of a change.
    enum ChangeStep {
        /// Do nothing: the task to cancel has already ended.
        case none
        /// Cancel the task, which was removed from the scheduler.
        case cancel
        /// End the client's attempt of a staging.
        case endStaging(StagingEnd)
        /// Write the changed task to the journal.
        case write(FullTask)
    }

    /// Decides how to change a task.
    ///
    /// - Throws: ``ControlRefusal`` if the task's state does not permit the change.
    mutating func begin(
        _ change: TransferChange,
        of task: FullTask,
        at now: Date
    ) throws(ControlRefusal) -> ChangeStep {
        var task = task
        let id = task.record.id
        // Verified content that waits to be moved to its destination is scheduled, too.
        guard let item = scheduler.items[id], task.record.state != .ended else {
            if change.state == .cancelled { return .none }
            throw ControlRefusal(.conflict, message: "task \(id) has ended")
        }
        if let end = change.stagingEnd {
            var rest = change
            rest.stagingEnd = nil
            guard rest == TransferChange() else {
                throw ControlRefusal(
                    .invalid,
                    message: "'stagingEnd' cannot be combined with other changes"
                )
            }
            try RequestLimits.check(end)
            guard task.request.kind == .staging, isAssignedToClient(id) else {
                throw ControlRefusal(
                    .conflict,
                    message: "task \(id) is not a staging that its client carries out"
                )
            }
            return .endStaging(end)
        }
        if change.state == .cancelled {
            _ = unschedule(id)
            return .cancel
        }
        let waits = item.blocks.contains(.authentication)
        guard waits || change.rejectsChallenge != true && change.authorization == nil else {
            throw ControlRefusal(.conflict, message: "task \(id) has no pending challenge")
        }
        if change.failsWithoutRetry == true, !withoutRetry.contains(id) {
            try checkTasksWithoutRetry(adding: 1, of: item.user)
        }
        task.record.blocks = storedBlocks(of: id)
        try task.apply(change, at: now)
        // A damaged task is not checked: it fails at its next attempt.
        if !task.isLost, let session = sessions[task.record.session] {
            try RequestLimits.check(task.request, in: session.record.configuration)
        }
        return .write(task)
    }

    /// Applies a change that was written to the journal.
    ///
    /// - Returns: `true` if the client has rejected the task's challenge and the task must end; it was then removed
    ///   from the scheduler.
    mutating func changed(_ task: FullTask, by change: TransferChange, at now: Date) -> Bool {
        let (id, record) = (task.record.id, task.record)
        guard scheduler.items[id] != nil else { return false }
        scheduler.change(id, at: now) { item in
            // Apply the change only, since other state may have changed during the write.
            item.blocks.apply(change, in: task.request)
            item.priority = record.priority
            item.constraints = record.constraints
            item.isPromoted = record.isPromoted
            if change.promotes == true {
                item.notBefore = nil
            } else if change.earliestBegin != nil {
                item.notBefore = record.earliest.map { PendingReason(.earliestBegin, until: $0) }
            }
        }
        let mayRun = scheduler.items[id]?.blocks.contains(.authentication) != true
        if mayRun || change.rejectsChallenge == true {
            sessions[record.session]?.challenged.remove(id)
        }
        endWait(of: id, by: change, at: now)
        noteRetries(of: record, at: now)
        handOver(involving: id, at: now)
        guard change.rejectsChallenge == true, task.request.ignoresChallenges != true else {
            return false
        }
        return unschedule(id)
    }

    /// Returns a task as clients see it; `attempt` is the report of its running attempt.
    func describe(_ task: FullTask, attempt: AttemptReport?, at now: Date) -> TransferTask {
        let record = task.record
        let session = sessions[record.session]?.record
        var answer = TransferTask(
            id: record.id,
            session: session?.identifier ?? "",
            user: session?.user ?? 0,
            request: withConfiguredConditions(task.request),
            state: .running,
            created: record.created
        )
        // Header fields may contain credentials.
        answer.request.headers = task.request.headers?.mapValues { _ in
            TransferTask.hiddenValue
        }
        // The request of an older journal does not tell it.
        if record.isPromoted { answer.request.isPromoted = true }
        // Presigned URLs are credentials.
        answer.request.parts = nil
        answer.request.url = URLReference(task.request.url).withoutUser.text
        answer.request.mirrors = task.request.mirrors?.map { URLReference($0).withoutUser.text }
        let history = histories[record.id]
        answer.bytesReceived = attempt?.received ?? history?.received ?? .zero
        answer.bytesSent = attempt?.sent ?? history?.sent ?? task.upload?.offset ?? .zero
        answer.bytesExpected = task.request.size ?? attempt?.total ?? history?.total
        answer.response = attempt?.response ?? history?.response
        answer.attempts = (history?.attempts ?? 0) + (attempt?.attempts ?? 0)
        answer.lastProblem = attempt?.problem ?? history?.problem
        if let outcome = task.outcome, record.state == .ended {
            answer.describe(outcome)
        } else if let item = scheduler.items[record.id] {
            answer.pendingReasons = pendingReasons(of: record.id, at: now)
            answer.state =
                item.blocks.contains(.client)
                ? .suspended : answer.pendingReasons.isEmpty ? .running : .waiting
        } else if unrecorded.contains(record.id) {
            answer.pendingReasons = pendingReasons(of: record.id, at: now)
            answer.state = .waiting
        }
        return answer
    }
}

extension TransferTask {
    /// Adds the result of a task that has ended.
    fileprivate mutating func describe(_ outcome: SessionEvent) {
        state = State(outcome.kind)
        bytesReceived = outcome.bytesReceived ?? bytesReceived
        bytesSent = outcome.bytesSent ?? bytesSent
        bytesExpected = outcome.bytesExpected ?? bytesExpected
        response = outcome.response?.withoutCookies ?? response
        lastProblem = outcome.failure?.reason ?? lastProblem
    }
}

extension TransferTask.State {
    /// Creates the final state that belongs to an event.
    init(_ kind: SessionEvent.Kind) {
        self =
            switch kind {
            case .completed: .completed
            case .cancelled: .cancelled
            default: .failed
            }
    }
}

extension Scheduler.Blocks {
    /// Applies a change of a task; `request` already includes the change.
    fileprivate mutating func apply(_ change: TransferChange, in request: TransferRequest) {
        switch change.state {
        case .running: remove(.client)
        case .suspended: insert(.client)
        case .paused: insert(.user)
        case .unpaused: remove(.user)
        case .cancelled, nil: break
        }
        // A download whose challenge is rejected repeats its request, and the response becomes its content.
        let repeats = change.rejectsChallenge == true && request.takesRejectedChallenge
        if change.authorization != nil || repeats { remove(.authentication) }
    }
}

extension FullTask {
    /// Applies a client's change to the record and the request.
    fileprivate mutating func apply(
        _ change: TransferChange,
        at now: Date
    ) throws(ControlRefusal) {
        if let priority = change.priority {
            request.priority = priority
            let scaled = try NewTask.priority(priority)
            // A promotion cannot be undone.
            if !record.isPromoted { record.priority = scaled }
        }
        if let earliest = change.earliestBegin {
            request.earliestBegin = earliest
            record.earliest = earliest
        }
        if change.promotes == true {
            request.isPromoted = true
            record.constraints = []
            record.earliest = nil
            record.priority = NewTask.promotedPriority
        }
        if let failsWithoutRetry = change.failsWithoutRetry {
            request.failsWithoutRetry = failsWithoutRetry
            record.failsWithoutRetry = failsWithoutRetry
        }
        request.description = change.description ?? request.description
        request.expectedToReceive = change.expectedToReceive ?? request.expectedToReceive
        request.expectedToSend = change.expectedToSend ?? request.expectedToSend
        if let authorization = change.authorization {
            try RequestLimits.check(header: "Authorization", value: authorization)
            var headers = request.headers ?? [:]
            headers = headers.filter { $0.key.lowercased() != "authorization" }
            headers["Authorization"] = authorization
            request.headers = headers
            request.hasChallengeCredential = true
        } else if change.rejectsChallenge == true, request.takesRejectedChallenge {
            request.ignoresChallenges = true
        }
        record.blocks.apply(change, in: request)
    }
}
