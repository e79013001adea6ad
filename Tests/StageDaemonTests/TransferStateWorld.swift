import FoundationEssentials
import StageConditions
import StageControl
import StageModel
import StageSystem
import StageTesting

@testable import StageDaemon

extension SessionRecord {
    /// A session that never had a task.
    init(
        _ id: Int64,
        of user: UInt32 = 1,
        identifier: String = "s",
        _ change: (inout SessionConfiguration) -> Void = { _ in }
    ) {
        self.init(
            id: id,
            user: user,
            identifier: identifier,
            rights: .blank,
            configuration: .blank,
            launchLimiter: .blank,
            last: 0,
            acknowledged: 0
        )
        change(&configuration)
    }
}

extension FullTask {
    /// A download; downloads with the same digest need the same content.
    init(
        _ id: Int64,
        in session: Int64 = 1,
        host: String = "a",
        digest: String? = nil,
        failsWithoutRetry: Bool = false,
        deadline: Date = .distantFuture
    ) {
        var request = TransferRequest(token: "\(id)", kind: .download, url: "https://\(host)/")
        request.sha256 = digest
        request.failsWithoutRetry = failsWithoutRetry
        var record = TaskRecord(
            id: id,
            session: session,
            creator: 1,
            host: host,
            priority: 50,
            constraints: [],
            blocks: [],
            created: Date(timeIntervalSince1970: 0),
            deadline: deadline,
            part: TaskRecord.ownPart(of: id)
        )
        record.failsWithoutRetry = failsWithoutRetry
        self.init(record: record, request: request)
    }
}

/// A ``TransferState`` that receives events in a random order, with simulated states of the journal and of attempts, and the
/// invariants that hold meanwhile.
struct TransferStateWorld {
    /// Work that has started and not completed.
    private enum Pending {
        case creation([FullTask], session: Int64)
        case change(FullTask, by: TransferChange)
        case challenge(Int64)
        case committing([Int64])
        case end(Int64)
        case abort(Int64)
        case launch(PlannedLaunch)
    }

    private var random: SeededGenerator
    private(set) var state: TransferState
    private var now = Date(timeIntervalSince1970: 1_800_000_000)
    private var nextID: Int64 = 1
    /// The unfinished tasks that the journal would contain.
    private var open: [Int64: FullTask] = [:]
    private var pending: [Pending] = []
    /// The attempts that run, according to the state's instructions.
    private var running: Set<Int64> = []
    private var changing: Set<Int64> = []
    private var ends: [Int64: Int] = [:]
    private var launches: [String: Int64] = [:]
    private(set) var faults: [String] = []

    init(seed: UInt64) {
        random = SeededGenerator(seed: seed)
        var configuration = DaemonConfiguration()
        configuration.connections = .random(in: 1...6, using: &random)
        configuration.connectionsPerHost = .random(in: 1...4, using: &random)
        configuration.tasksPerUser = 40
        state = TransferState(configuration: configuration, at: now)
        for id in 1...4 as ClosedRange<Int64> {
            let record = SessionRecord(id, of: UInt32(1 + id % 2), identifier: "\(id)") {
                $0.handler = LaunchHandler(command: ["/bin/true"])
            }
            state.sessions[id] = TransferState.Session(record: record)
        }
    }

    /// Performs a random event, and runs the scheduler.
    mutating func step() {
        switch Int.random(in: 0..<20, using: &random) {
        case 0...2: create()
        case 3...4: change()
        case 5: cancel()
        case 6...9: endAttempt()
        case 10...14: complete()
        case 15: attachOrDetach()
        case 16: launch()
        case 17: setConditions()
        case 18: expire()
        default: now += .random(in: 0...20, using: &random)
        }
        runScheduler()
        check()
    }

    private mutating func create() {
        let session = Int64.random(in: 1...4, using: &random)
        let tasks = (0..<Int.random(in: 1...3, using: &random)).map { offset in
            FullTask(
                nextID + Int64(offset),
                in: session,
                host: ["a", "b"].randomElement(using: &random) ?? "a",
                digest: [nil, "x", "y"].randomElement(using: &random) ?? nil,
                failsWithoutRetry: Int.random(in: 0..<4, using: &random) == 0,
                deadline: now + .random(in: 10...2000, using: &random)
            )
        }
        nextID += 3
        guard (try? state.reserve(tasks.map(\.request), in: session)) != nil else { return }
        pending.append(.creation(tasks, session: session))
    }

    private mutating func change() {
        guard let task = open.values.map(\.record.id).sorted().randomElement(using: &random),
            let full = open[task], !changing.contains(task)
        else { return }
        var change = TransferChange()
        let states: [TransferChange.State] = [.running, .suspended, .paused, .unpaused]
        change.state = states.randomElement(using: &random)
        if Int.random(in: 0..<8, using: &random) == 0 { change.failsWithoutRetry = true }
        if state.scheduler.items[task]?.blocks.contains(.authentication) ?? false {
            change.authorization = "Basic eDp5"
        }
        guard case .write(let changed)? = try? state.begin(change, of: full, at: now) else {
            return
        }
        if changed.record.blocks.contains(.leader) { faults.append("a leader is written down") }
        changing.insert(task)
        pending.append(.change(changed, by: change))
    }

    private mutating func cancel() {
        guard let id = open.keys.sorted().randomElement(using: &random), let task = open[id]
        else { return }
        var change = TransferChange()
        change.state = .cancelled
        guard case .cancel? = try? state.begin(change, of: task, at: now) else { return }
        stop(id)
    }

    /// Ends a task that the scheduler does not have, once its attempt has ended.
    private mutating func stop(_ id: Int64) {
        if state.ending[id] == nil { faults.append("\(id) ends where it is not") }
        pending.append(state.abort(id) ? .abort(id) : .end(id))
    }

    private mutating func expire() {
        for id in state.expired(at: now) where state.unschedule(id) { stop(id) }
    }

    private mutating func endAttempt() {
        guard let id = running.sorted().randomElement(using: &random), let task = open[id] else {
            return
        }
        running.remove(id)
        guard state.endAttempt(of: id) else { return }
        var report = AttemptReport()
        report.isUnreachable = Bool.random(using: &random)
        report.received = .kibibytes(Int64.random(in: 0...400, using: &random))
        state.note(report, of: id)
        if Int.random(in: 0..<3, using: &random) == 0 {
            guard state.succeed(task, at: now) else { return faults.append("\(id) is lost") }
            state.committing.insert(id)
            let served = state.followersToServe(by: id, at: now).filter { state.serve($0) }
            return pending.append(.committing([id] + served))
        }
        let verdicts: [TransferVerdict] = [
            .stopped, .disk(problem: nil), .challenge, .fail(FullTask.damaged),
            .retry(PendingReason(.backoff, until: now + 5)),
            .retry(PendingReason(.server, until: now + 5)),
            .retry(PendingReason(.quota, until: now + 60)),
        ]
        let verdict = verdicts.randomElement(using: &random) ?? .stopped
        switch state.judge(verdict, of: task, report: report, at: now) {
        case .wait: break
        case .waitForSpace(let problem):
            state.waitForSpace(free: .zero, problem: problem, at: now)
        case .waitForQuota:
            if Bool.random(using: &random), let user = state.scheduler.items[id]?.user {
                state.endQuotaWaits(of: user, at: now)
            } else if state.takeFailureAfterQuotaSearch(of: id, at: now) != nil {
                pending.append(.end(id))
            }
        case .record: pending.append(.challenge(id))
        case .fail, .complete: pending.append(.end(id))
        }
    }

    /// Completes a random piece of pending work.
    private mutating func complete() {
        guard !pending.isEmpty else { return }
        let index = Int.random(in: pending.indices, using: &random)
        let next = pending.remove(at: index)
        switch next {
        case .creation(let tasks, let session):
            guard Int.random(in: 0..<8, using: &random) > 0 else {
                return state.endReservation(of: tasks.map(\.request), in: session)
            }
            for task in tasks { open[task.record.id] = task }
            state.created(
                tasks.map { ($0.record, true, $0.request) },
                in: session,
                reason: nil,
                at: now
            )
        case .change(let task, by: let change):
            changing.remove(task.record.id)
            if open[task.record.id] != nil { open[task.record.id] = task }
            if state.changed(task, by: change, at: now) { stop(task.record.id) }
        case .challenge(let id):
            guard let session = open[id]?.record.session else { return }
            state.sessions[session]?.record.last += 1
            state.challengeRecorded(of: id)
        case .committing(let ids): place(ids)
        case .end(let id): end([id])
        case .abort(let id):
            guard !state.attempts.contains(id) else { return pending.append(next) }
            pending.append(.end(id))
        case .launch(let planned):
            let id = planned.session.id
            let step = state.launchRecorded(planned, isOnDisk: Bool.random(using: &random))
            guard step == .start else { return }
            if state.sessions[id]?.isAttached ?? true { faults.append("a client is attached") }
            launches[planned.token] = id
        }
    }

    private mutating func place(_ ids: [Int64]) {
        guard Int.random(in: 0..<4, using: &random) > 0 else {
            for id in ids {
                guard let task = open[id] else { return faults.append("\(id) is placed twice") }
                state.schedule(task.record, request: task.request, at: now)
                state.waitForDisk(id, at: now)
            }
            return
        }
        for id in ids { state.committing.remove(id) }
        end(ids)
    }

    private mutating func end(_ ids: [Int64]) {
        var events: [(session: Int64, event: SessionEvent)] = []
        for id in ids {
            ends[id, default: 0] += 1
            guard let task = open.removeValue(forKey: id) else { continue }
            var event = SessionEvent(.completed, time: now)
            event.sequence = (state.sessions[task.record.session]?.record.last ?? 0) + 1
            state.sessions[task.record.session]?.note(event)
            events.append((task.record.session, event))
        }
        state.ended(ids, events: events, at: now)
    }

    private mutating func attachOrDetach() {
        let id = Int64.random(in: 1...4, using: &random)
        guard let session = state.sessions[id] else { return }
        if session.isAttached {
            _ = state.detach(id, at: now)
        } else {
            let user = session.record.user
            let caller = ClientCredentials(
                identity: .init(user: user, group: 1, groups: [1]),
                process: 1
            )
            _ = try? state.attach(session.record.identifier, launch: nil, for: caller, at: now)
            state.sessions[id]?.acknowledged(session.record.last)
        }
    }

    private mutating func launch() {
        if let (token, id) = launches.first, Bool.random(using: &random) {
            launches[token] = nil
            if state.launchEnded(token, of: id) == nil { faults.append("a launch is lost") }
        }
        let id = Int64.random(in: 1...4, using: &random)
        let planned = state.decideLaunch(of: id, token: "\(random.next())", boot: "b", at: now)
        if let planned { pending.append(.launch(planned)) }
    }

    private mutating func setConditions() {
        var conditions = state.scheduler.conditions
        conditions.connectivity =
            [.full, .full, .none, .portal].randomElement(using: &random) ?? .full
        _ = state.setConditions(conditions, at: now)
        if Bool.random(using: &random) { state.networkChanged(at: now) }
    }

    private mutating func runScheduler() {
        state.checkSpace(free: .mebibytes(1 << 10), at: now)
        for effect in state.runScheduler(at: now) {
            switch effect {
            case .yield(let id):
                if !state.attempts.contains(id) { faults.append("\(id) stops, and does not run") }
            case .stop: faults.append("the scheduler stops nothing at once")
            case .wait(let id):
                if state.pendingReasons(of: id, at: now).isEmpty {
                    faults.append("\(id) does not wait")
                }
            case .fail(let id, _): pending.append(.end(id))
            case .start(let id, _, _):
                if running.contains(id) || halts(id) { faults.append("\(id) runs twice") }
                begin(id)
            }
        }
    }

    private func halts(_ id: Int64) -> Bool {
        pending.contains { if case .abort(id) = $0 { true } else { false } }
    }

    private mutating func begin(_ id: Int64) {
        switch state.begin(id, task: open[id], used: 0, at: now) {
        case .run: running.insert(id)
        case .none, .commit, .fail: faults.append("\(id) does not begin")
        }
    }

    private mutating func check() {
        let scheduled = Set(state.scheduler.items.keys)
        if !scheduled.isDisjoint(with: state.ending.keys) {
            faults.append("a task is in two places")
        }
        if scheduled.union(state.ending.keys) != Set(open.keys) {
            faults.append("a task is lost, or kept: \(scheduled.symmetricDifference(open.keys))")
        }
        if !state.committing.isSubset(of: state.ending.keys) {
            faults.append("placed, and not ending")
        }
        if !Set(state.histories.keys).isSubset(of: open.keys) { faults.append("a history is kept") }
        if !state.withoutRetry.isSubset(of: open.keys) { faults.append("a rule is kept") }
        for id in state.withoutRetry where state.stall(of: id, at: now) != nil {
            faults.append("\(id) waits, and does not fail")
        }
        if ends.values.contains(where: { $0 > 1 }) { faults.append("a task ends twice") }
        // Attempts of cancelled tasks have released their connections.
        let connections = state.attempts.intersection(scheduled).count
        if connections > state.configuration.connections { faults.append("too many run") }
        checkSessions()
        checkContents()
    }

    private mutating func checkSessions() {
        for (id, session) in state.sessions {
            let own = open.values.filter { $0.record.session == id }.count
            if session.unfinished != own { faults.append("session \(id) counts wrongly") }
            let scheduled = state.scheduler.items.filter { $0.value.session == id }
            if state.scheduler.transfers[id] ?? [] != Set(scheduled.keys) {
                faults.append("session \(id) has other transfers")
            }
            if session.challenged.contains(where: {
                state.scheduler.items[$0]?.blocks.contains(.authentication) != true
            }) {
                faults.append("a challenge is kept")
            }
        }
        if !Set(state.scheduler.transfers.keys).isSubset(of: state.sessions.keys) {
            faults.append("transfers of a session that is gone are kept")
        }
        for waiters in state.quotaWaiters.values where !waiters.isSubset(of: open.keys) {
            faults.append("a wait for quota is kept")
        }
        let launching = Set(state.sessions.values.compactMap(\.launch))
        if !launching.isSubset(of: state.launches.keys) {
            faults.append("a handler is not counted")
        }
        for (user, sessions) in Dictionary(grouping: state.sessions.values, by: \.record.user) {
            let count = sessions.reduce(0) { $0 + $1.unfinished + $1.reserved }
            if count > state.configuration.tasksPerUser { faults.append("\(user) has too many") }
            if sessions.count(where: { $0.launch != nil }) > TransferState.mostHandlersPerUser {
                faults.append("\(user) has too many handlers")
            }
        }
    }

    private mutating func checkContents() {
        var fetching: [String: Int] = [:]
        for (id, item) in state.scheduler.items {
            guard let request = open[id]?.request,
                let key = TransferState.contentKey(of: request, user: item.user)
            else { continue }
            let leader = state.sharing.leader(of: id)
            if item.blocks.contains(.leader) {
                if leader == id || leader.map({ open[$0] == nil }) ?? true {
                    faults.append("\(id) waits for content that no task fetches")
                }
            } else {
                if leader != id { faults.append("\(id) fetches what another one does") }
                fetching[key, default: 0] += 1
            }
        }
        if fetching.values.contains(where: { $0 > 1 }) { faults.append("two fetch one content") }
    }

    /// Removes all reasons to wait, and runs everything to its end.
    mutating func finish() {
        state.scheduler.conditions = .unknown
        for _ in 0..<3000 where !open.isEmpty || !pending.isEmpty || !running.isEmpty {
            now += 30
            while !pending.isEmpty,
                pending.contains(where: { if case .abort = $0 { false } else { true } })
            {
                complete()
            }
            for id in running.sorted() {
                running.remove(id)
                guard state.endAttempt(of: id), let task = open[id] else { continue }
                if state.succeed(task, at: now) { pending.append(.end(id)) }
            }
            if !pending.isEmpty { complete() }
            for id in state.scheduler.items.keys {
                state.scheduler.change(id, at: now) {
                    $0.blocks.formIntersection(.leader)
                    $0.notBefore = nil
                }
            }
            for id in state.sessions.keys { state.sessions[id]?.challenged = [] }
            runScheduler()
            check()
        }
        if !open.isEmpty { faults.append("left: \(open.keys.sorted())") }
        if !state.sharing.leaders.isEmpty { faults.append("a content is kept") }
        if !state.attempts.isEmpty { faults.append("an attempt is kept") }
        if state.launches.count != state.sessions.values.count(where: { $0.launch != nil }) {
            faults.append("a launch is kept")
        }
        if state.sessions.values.contains(where: {
            $0.reserved != 0 || $0.reservedWithoutRetry != 0
        }) {
            faults.append("a reservation is kept")
        }
    }
}
