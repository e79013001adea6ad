import FoundationEssentials
import HeapModule
import StageControl
import StageModel

/// The places of tasks, and the content that they share.
extension TransferState {
    /// Hands a task to the scheduler.
    ///
    /// - Parameters:
    ///   - record: The task.
    ///   - request: Its request, if the content may be that of another task.
    ///   - reason: The reason why it is not to begin yet, where that is not the client's or session's wish.
    ///   - now: The time.
    mutating func admit(
        _ record: TaskRecord,
        _ request: TransferRequest? = nil,
        reason: HoldReason? = nil,
        at now: Date
    ) {
        guard let session = sessions[record.session] else { return }
        ending[record.id] = nil
        placing.remove(record.id)
        var item = Scheduler.Item(
            user: session.record.user,
            session: record.session,
            host: record.host,
            sessionLimit: session.record.configuration.maximumConnectionsPerHost,
            priority: record.priority,
            needs: record.needs
        )
        // Each daemon decides anew which task leads.
        item.blocks = record.blocks.subtracting(.leader)
        if let request, join(record.id, request, of: session.record.user) {
            item.blocks.insert(.leader)
        }
        if let earliest = record.earliest, earliest > now {
            let isDiscretionary = session.record.configuration.isDiscretionary
            item.notBefore = Hold(
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
        scheduler.add(record.id, item, at: now)
        if expiries.count > 2 * scheduler.items.count + 1024 {
            // Most are of tasks that have ended.
            expiries = Heap(expiries.unordered.filter { scheduler.items[$0.task] != nil })
        }
        expiries.insert(Expiry(date: record.deadline, task: record.id))
        if let request { handOver(request, of: session.record.user, at: now) }
    }

    /// Takes a task out of the scheduler that is about to end.
    ///
    /// - Returns: Whether it was there: a task ends once.
    mutating func takeOut(_ id: Int64) -> Bool {
        guard let item = scheduler.items[id] else { return false }
        ending[id] = item.session
        sessions[item.session]?.challenged.remove(id)
        scheduler.remove(id)
        // Followers of a leader wait until its end is on disk; a follower leaves at once.
        if item.blocks.contains(.leader) { _ = sharing.leave(id) }
        return true
    }

    /// Forgets a task that has ended; a follower of it fetches the content.
    mutating func forget(_ id: Int64, at now: Date) {
        if let session = scheduler.items[id]?.session ?? ending[id] {
            sessions[session]?.challenged.remove(id)
            if let user = sessions[session]?.record.user { removeQuotaHold(of: id, user) }
        }
        scheduler.remove(id)
        ending[id] = nil
        placing.remove(id)
        unreachable.remove(id)
        histories[id] = nil
        guard let next = sharing.leave(id) else { return }
        scheduler.change(next, at: now) { $0.blocks.remove(.leader) }
        handOver(from: next, at: now)
    }

    /// Whether a task has not ended.
    func isUnfinished(_ id: Int64) -> Bool { scheduler.items[id] != nil || ending[id] != nil }

    /// The reasons why a task does not run, each with the failure that it comes of.
    func holds(of id: Int64, at now: Date) -> [Hold] {
        scheduler.holds(of: id, at: now).map { hold in
            guard [.backoff, .server].contains(hold.reason), hold.problem == nil else {
                return hold
            }
            return Hold(hold.reason, until: hold.until, problem: histories[id]?.problem)
        }
    }

    /// The event that tells whether a task waits, and why.
    func change(of id: Int64, at now: Date) -> SessionEvent {
        let holds = holds(of: id, at: now)
        var event = SessionEvent(.changed, time: now)
        event.task = id
        event.state = holds.isEmpty ? .running : .waiting
        event.holds = holds
        return event
    }
}

extension TransferState {
    /// The key of content that several tasks of one user may want at once; `nil` where nothing proves that it is the
    /// same.
    ///
    /// Of one user: to another one not even the time it takes may tell that content is here.
    static func contentKey(_ request: TransferRequest, user: UInt32) -> String? {
        // A refusal that is taken as content is for its own task alone.
        guard request.kind == .download, let digest = request.sha256?.lowercased(),
            request.acceptsErrorResponses != true, request.method ?? "GET" == "GET"
        else { return nil }
        return "\(user) \(digest)"
    }

    /// Makes a task the one that fetches its content, or one that waits for it; returns whether it waits.
    private mutating func join(_ id: Int64, _ request: TransferRequest, of user: UInt32) -> Bool {
        guard let key = Self.contentKey(request, user: user) else { return false }
        if let leader = sharing.leader(for: key), leader != id, scheduler.items[leader] == nil {
            // A leader that ends may fail, and serves only the followers that it has already.
            sharing.replaceLeader(for: key, by: id)
            return false
        }
        return sharing.join(id, for: key)
    }

    /// Has another task fetch content where the one that was to do it is held and another is not.
    mutating func handOver(_ request: TransferRequest, of user: UInt32, at now: Date) {
        guard let key = Self.contentKey(request, user: user), let leader = sharing.leader(for: key)
        else { return }
        handOver(from: leader, at: now)
    }

    /// Has others fetch the content that tasks fetch which are held by now.
    mutating func handOverAll(at now: Date) {
        for id in sharing.leaders { handOver(from: id, at: now) }
    }

    private mutating func handOver(from id: Int64, at now: Date) {
        guard isHeld(id, at: now),
            let next = sharing.followers(of: id).first(where: { !isHeld($0, at: now) })
        else { return }
        sharing.handOver(from: id, to: next)
        scheduler.change(id, at: now) { $0.blocks.insert(.leader) }
        scheduler.change(next, at: now) { $0.blocks.remove(.leader) }
    }

    /// Whether a task is held for a reason that may last, and does not hold all others too.
    private func isHeld(_ id: Int64, at now: Date) -> Bool {
        scheduler.holds(of: id, at: now).contains { hold in
            switch hold.reason {
            case .pausedByClient, .pausedByUser, .earliestBegin, .metered, .constrained, .onBattery,
                .powerSaver, .discretionary, .penalty, .quota, .authentication:
                true
            case .offline, .portal, .disk, .slot, .backoff, .server, .clock: false
            }
        }
    }

    /// The tasks that do nothing but wait for the content that a task has received.
    func followersToServe(by id: Int64, at now: Date) -> [Int64] {
        sharing.followers(of: id).filter { waits($0) && !isHeld($0, at: now) }
    }

    /// Takes out a follower that is given a copy of the content; returns whether it still waits for that.
    mutating func serve(_ id: Int64) -> Bool {
        guard waits(id), takeOut(id) else { return false }
        placing.insert(id)
        return true
    }

    /// Whether a task does nothing but wait for the content that another one fetches.
    private func waits(_ id: Int64) -> Bool {
        scheduler.items[id]?.blocks.contains(.leader) ?? false && !attempts.contains(id)
    }
}

/// The ends of waits before another attempt that come earlier than their time.
extension TransferState {
    /// The waits that a client ends by coming, and by setting a task going.
    static let clientReasons: Set<HoldReason> = [.backoff]
    /// The waits that a person ends with 'stagepack resume'.
    static let personReasons: Set<HoldReason> = [.backoff, .server, .portal, .clock, .disk]

    /// Ends the wait of a task, or of the one that fetches its content; of waits for other reasons than these
    /// nothing changes.
    mutating func endWait(of id: Int64, for reasons: Set<HoldReason>, at now: Date) {
        for task in Set([id, sharing.leader(of: id) ?? id]) {
            guard let hold = scheduler.items[task]?.notBefore, reasons.contains(hold.reason) else {
                continue
            }
            scheduler.change(task, at: now) { $0.notBefore = nil }
        }
    }

    /// Ends the wait of a task that is set going.
    mutating func endWait(of id: Int64, by change: TransferChange, at now: Date) {
        switch change.state {
        case .running: endWait(of: id, for: Self.clientReasons, at: now)
        case .unpaused: endWait(of: id, for: Self.personReasons, at: now)
        case .suspended, .paused, .cancelled, nil: break
        }
    }

    /// Ends the waits of all tasks for which `isMeant` is true.
    mutating func endWaits(at now: Date, where isMeant: (Scheduler.Item) -> Bool) {
        for (id, item) in scheduler.items where isMeant(item) {
            scheduler.change(id, at: now) { $0.notBefore = nil }
        }
    }

    /// Ends the waits of a session's tasks for another attempt: a client has come that waits for them.
    ///
    /// A handler is none: it is started when events wait for it.
    mutating func endWaits(of session: Int64, at now: Date) {
        for (id, item) in scheduler.items where item.session == session {
            endWait(of: id, for: Self.clientReasons, at: now)
        }
    }
}
