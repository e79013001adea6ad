import FoundationEssentials
import StageControl

/// The ends of waits before another attempt that come earlier than their time.
extension Broker {
    /// Ends the wait of a task, or of the one that fetches its content; of waits for other reasons than these
    /// nothing changes.
    func endWait(of id: Int64, for reasons: Set<HoldReason>) {
        let leader = extras[id]?.leader ?? id
        for task in Set([id, leader]) {
            guard let hold = scheduler.items[task]?.notBefore, reasons.contains(hold.reason) else {
                continue
            }
            scheduler.change(task, at: .now) { $0.notBefore = nil }
        }
    }

    /// Ends the wait of a task that is set going.
    func endWait(of id: Int64, by change: TransferChange) {
        switch change.state {
        case .running: endWait(of: id, for: Self.clientReasons)
        case .unpaused: endWait(of: id, for: Self.personReasons)
        case .suspended, .paused, .cancelled, nil: break
        }
    }

    /// Ends the waits of all tasks for which `isMeant` is true.
    func endWaits(where isMeant: (Scheduler.Item) -> Bool) {
        let now = Date.now
        for (id, item) in scheduler.items where isMeant(item) {
            scheduler.change(id, at: now) { $0.notBefore = nil }
        }
    }

    /// Ends the waits of a session's tasks for another attempt: a client has come that waits for them.
    ///
    /// A handler is none: it is started when events wait for it.
    func endWaits(of session: Int64) {
        for (id, item) in scheduler.items where item.session == session {
            endWait(of: id, for: Self.clientReasons)
        }
        turn()
    }

    /// Takes note of whether a task waits since its host could not be reached.
    func noteHost(of id: Int64, isUnreachable: Bool) {
        guard let item = scheduler.items[id], item.isConnected else { return }
        if isUnreachable {
            unreachable[item.host, default: []].insert(id)
            extras[id, default: Extra()].unreachableHost = item.host
        } else {
            forgetUnreachable(id)
        }
    }

    /// Has the tasks go on that wait since the host of this one, which has succeeded, could not be reached.
    func noteSuccess(of task: FullTask) {
        let id = task.record.id
        forgetUnreachable(id)
        // A mirror says nothing about the first host.
        guard let item = scheduler.items[id], item.isConnected,
            task.request.mirrors?.isEmpty ?? true
        else { return }
        for waiting in unreachable.removeValue(forKey: item.host) ?? [] {
            extras[waiting]?.unreachableHost = nil
            endWait(of: waiting, for: [.backoff])
        }
    }

    /// Takes note that a task does not wait for its host any more.
    func forgetUnreachable(_ id: Int64) {
        guard let host = extras[id]?.unreachableHost else { return }
        extras[id]?.unreachableHost = nil
        unreachable[host]?.remove(id)
        if unreachable[host]?.isEmpty ?? false { unreachable[host] = nil }
    }

    /// Ends the waits for hosts that could not be reached: the network has changed for the better.
    func endWaitsForHosts() {
        let hosts = unreachable
        unreachable = [:]
        for id in hosts.values.joined() {
            extras[id]?.unreachableHost = nil
            endWait(of: id, for: [.backoff])
        }
    }

    /// The waits that a client ends by coming, and by setting a task going.
    static let clientReasons: Set<HoldReason> = [.backoff]
    /// The waits that a person ends with 'stagepack resume'.
    static let personReasons: Set<HoldReason> = [.backoff, .server, .portal, .clock, .disk]
}
