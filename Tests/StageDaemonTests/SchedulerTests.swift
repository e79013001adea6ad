import FoundationEssentials
import StageConditions
import StageControl
import StageTesting
import Testing

@testable import StageDaemon

struct SchedulerTests {
    private let start = Date(timeIntervalSince1970: 1_800_000_000)

    private func item(
        user: UInt32 = 1,
        session: Int64 = 1,
        host: String = "a",
        limit: Int = 6,
        priority: Int = 50,
        constraints: TransferConstraints = []
    ) -> Scheduler.Item {
        Scheduler.Item(
            user: user,
            session: session,
            host: host,
            sessionLimit: limit,
            priority: priority,
            constraints: constraints
        )
    }

    @Test(arguments: 1...200 as ClosedRange<UInt64>)
    func whateverHappensNoLimitIsExceededAndNothingIsLost(seed: UInt64) {
        var world = SchedulerWorld(seed: seed)
        for _ in 0..<400 { world.step() }
        world.finish()
        #expect(world.faults == [])
        #expect(world.hasFinished == world.mayFinish)
    }

    @Test func usersGetConnectionsInRotationRegardlessOfTheirQueues() {
        var scheduler = Scheduler(limits: .init(total: 6, perHost: 6))
        for id in 1...1000 as ClosedRange<Int64> {
            scheduler.add(id, as: item(user: 1, session: 1), at: start)
        }
        scheduler.add(2001, as: item(user: 2, session: 2), at: start)
        scheduler.add(3001, as: item(user: 3, session: 3), at: start)
        #expect(scheduler.decide(at: start).start.sorted() == [1, 2, 3, 4, 2001, 3001])
    }

    @Test func aUserThatComesLateIsServedNext() {
        var scheduler = Scheduler(limits: .init(total: 4, perHost: 6))
        for id in 1...100 as ClosedRange<Int64> { scheduler.add(id, as: item(user: 1), at: start) }
        #expect(scheduler.decide(at: start).start == [1, 2, 3, 4])
        for id in 200...202 as ClosedRange<Int64> {
            scheduler.add(id, as: item(user: 2, session: 2), at: start)
        }
        scheduler.remove(1)
        scheduler.remove(2)
        #expect(scheduler.decide(at: start).start == [200, 201])
        scheduler.remove(3)
        #expect(scheduler.decide(at: start).start == [5])
    }

    @Test func usersWithoutAConnectionWaitForAPartOfAnHourAtMost() {
        var scheduler = Scheduler(limits: .init(total: 2, perHost: 6, slice: 300))
        for id in 1...2 as ClosedRange<Int64> {
            scheduler.add(id, as: item(user: UInt32(id), session: id), at: start)
            #expect(scheduler.decide(at: start).start == [id])
        }
        scheduler.add(3, as: item(user: 3, session: 3), at: start)
        #expect(scheduler.decide(at: start + 299) == .init())
        #expect(scheduler.nextDeadline == start + 300)
        #expect(scheduler.decide(at: start + 300) == .init(stop: [1]))
        scheduler.attemptEnded(1, pending: nil, at: start + 300)
        // The second transfer is stopped in favour of the first one, which is waiting now.
        #expect(scheduler.decide(at: start + 300) == .init(start: [3], stop: [2]))
        scheduler.attemptEnded(2, pending: nil, at: start + 301)
        #expect(scheduler.decide(at: start + 301) == .init(start: [1]))
        #expect(scheduler.nextDeadline == start + 600)
    }

    /// A date that has passed would fire the timer again and again until the disk has space.
    @Test func onAFullDiskNoUserWaitsForTheConnectionOfAnother() {
        var scheduler = Scheduler(limits: .init(total: 1, perHost: 6, slice: 300))
        scheduler.add(1, as: item(), at: start)
        #expect(scheduler.decide(at: start).start == [1])
        scheduler.add(2, as: item(user: 2, session: 2), at: start)
        #expect(scheduler.decide(at: start) == .init())
        #expect(scheduler.nextDeadline == start + 300)
        scheduler.fullUntil = start + 315
        #expect(scheduler.decide(at: start + 299) == .init(stop: [1]))
        #expect(scheduler.nextDeadline == start + 315)
    }

    @Test func aUserWhoHasAllConnectionsGivesOneUpForAnother() {
        var scheduler = Scheduler(limits: .init(total: 4, perHost: 6))
        for id in 1...4 as ClosedRange<Int64> { scheduler.add(id, as: item(user: 1), at: start) }
        #expect(scheduler.decide(at: start).start == [1, 2, 3, 4])
        for id in 5...8 as ClosedRange<Int64> {
            scheduler.add(id, as: item(user: 2, session: 2, host: "b"), at: start)
        }
        #expect(scheduler.decide(at: start) == Scheduler.Decision(start: [], stop: [4]))
        // Only one task runs at a time, and the next one not before it has ended.
        #expect(scheduler.decide(at: start) == Scheduler.Decision())
        scheduler.attemptEnded(4, pending: nil, at: start)
        #expect(scheduler.decide(at: start) == Scheduler.Decision(start: [5], stop: [3]))
        scheduler.attemptEnded(3, pending: nil, at: start)
        #expect(scheduler.decide(at: start) == Scheduler.Decision(start: [6], stop: []))
        #expect(scheduler.decide(at: start) == Scheduler.Decision())
    }

    @Test func aUserWhoHasAllOfAHostGivesOneUpForAnother() {
        var scheduler = Scheduler(limits: .init(total: 16, perHost: 2))
        for id in 1...3 as ClosedRange<Int64> {
            scheduler.add(id, as: item(user: 1, priority: id == 1 ? 10 : 50), at: start)
        }
        #expect(scheduler.decide(at: start).start == [2, 3])
        scheduler.add(9, as: item(user: 2, session: 2), at: start)
        #expect(scheduler.decide(at: start) == Scheduler.Decision(start: [], stop: [3]))
        scheduler.attemptEnded(3, pending: nil, at: start)
        #expect(scheduler.decide(at: start) == Scheduler.Decision(start: [9], stop: []))
    }

    @Test func aUsersTransfersRunByPriorityAndThenInOrder() {
        var scheduler = Scheduler(limits: .init(total: 1, perHost: 1))
        for (id, priority) in [1: 50, 2: 10, 3: 90, 4: 90, 5: 50] as [Int64: Int] {
            scheduler.add(id, as: item(priority: priority), at: start)
        }
        var order: [Int64] = []
        while case let decision = scheduler.decide(at: start), let id = decision.start.first {
            order += decision.start
            scheduler.remove(id)
        }
        // A dictionary has no order: those of one priority come in the order in which they were added.
        #expect(order.map { [1: 50, 2: 10, 3: 90, 4: 90, 5: 50][$0] } == [90, 90, 50, 50, 10])
    }

    @Test func aPriorityThatChangesCountsForWhatIsQueued() {
        var scheduler = Scheduler(limits: .init(total: 1, perHost: 1))
        for id in 1...3 as ClosedRange<Int64> { scheduler.add(id, as: item(), at: start) }
        scheduler.change(3, at: start) { $0.priority = 100 }
        #expect(scheduler.decide(at: start).start == [3])
        scheduler.remove(3)
        #expect(scheduler.decide(at: start).start == [1])
    }

    @Test func changesOfATransferThatWaitsTakeNoMemory() {
        var scheduler = Scheduler(limits: .init(total: 1, perHost: 1))
        scheduler.add(1, as: item(), at: start)
        #expect(scheduler.decide(at: start).start == [1])
        var postponed = item()
        postponed.notBefore = PendingReason(.earliestBegin, until: start + 60)
        scheduler.add(2, as: postponed, at: start)
        for number in 0..<100_000 { scheduler.change(2, at: start) { $0.priority = number % 100 } }
        #expect(scheduler.deadlineCount <= 2 * 2 + 1024 + 1)
        #expect(scheduler.nextDeadline == start + 60)
        scheduler.remove(1)
        #expect(scheduler.decide(at: start + 59).start == [])
        #expect(scheduler.decide(at: start + 60).start == [2])
    }

    @Test func changesOfAQueuedTransferTakeNoMemory() {
        var queue = UserQueue()
        for id in 1...3 as ClosedRange<Int64> { queue.append(id, as: item()) }
        for number in 0..<100_000 {
            // Task 2 stays in its lane; task 3 gets another lane with each priority.
            queue.withdraw(2)
            queue.append(2, as: item())
            queue.withdraw(3)
            queue.append(3, as: item(priority: number))
        }
        #expect(queue.entryCount <= 2 * 3 + 1024 + 1)
        var order: [Int64] = []
        while let id = queue.next(where: { _, _ in true }) { order.append(id) }
        #expect(order == [3, 1, 2])
        #expect(queue.isEmpty)
    }

    @Test func aTransferThatIsPutOffBeforeItRanWaits() {
        var scheduler = Scheduler(limits: .init(total: 1, perHost: 1))
        scheduler.add(1, as: item(), at: start)
        scheduler.attemptEnded(1, pending: PendingReason(.disk, until: start + 15), at: start)
        #expect(scheduler.decide(at: start).start == [])
        #expect(scheduler.decide(at: start + 14).start == [])
        #expect(scheduler.decide(at: start + 15).start == [1])
        #expect(scheduler.decide(at: start + 16).start == [])
    }

    @Test func aTransferToStopIsReturnedOnceAndFreesItsConnectionWhenItHasStopped() {
        var scheduler = Scheduler(limits: .init(total: 1, perHost: 1))
        scheduler.add(1, as: item(), at: start)
        scheduler.add(2, as: item(), at: start)
        #expect(scheduler.decide(at: start) == .init(start: [1]))
        scheduler.change(1, at: start) { $0.blocks.insert(.client) }
        #expect(scheduler.decide(at: start) == .init(stop: [1]))
        #expect(scheduler.decide(at: start) == .init())
        scheduler.change(1, at: start) { $0.blocks.remove(.client) }
        #expect(scheduler.decide(at: start) == .init())
        scheduler.attemptEnded(1, pending: nil, at: start)
        #expect(scheduler.decide(at: start).start.count == 1)
        #expect(scheduler.activeCount == 1)
    }

    @Test func aWaitingTransferNamesTheResourceThatOthersUse() {
        var scheduler = Scheduler(limits: .init(total: 3, perHost: 2, workersPerUser: 1))
        let worker = Scheduler.workerHost
        var follower = item()
        follower.blocks.insert(.leader)
        let items = [
            item(limit: 1), item(limit: 1), item(session: 2), item(session: 3),
            item(session: 4, host: "b"), item(session: 5, host: "c"),
            item(session: 6, host: worker), item(session: 7, host: worker), follower,
        ]
        for (index, item) in items.enumerated() {
            scheduler.add(Int64(index + 1), as: item, at: start)
        }
        #expect(scheduler.decide(at: start).start == [1, 3, 5, 7])
        let reasons = [2, 4, 6, 8, 9].map { scheduler.pendingReasons(of: $0, at: start) }
        let resources: [PendingReason.Resource] = [
            .sessionConnections, .hostConnections, .connections, .workers, .content,
        ]
        #expect(reasons == resources.map { [PendingReason(.slot, resource: $0)] })
    }

    @Test func aTransferThatWaitsForATimeContinuesThen() {
        var scheduler = Scheduler()
        scheduler.add(1, as: item(), at: start)
        #expect(scheduler.decide(at: start).start == [1])
        let hold = PendingReason(.backoff, until: start + 10)
        scheduler.attemptEnded(1, pending: hold, at: start)
        #expect(scheduler.decide(at: start + 9).start == [])
        #expect(scheduler.pendingReasons(of: 1, at: start + 9) == [hold])
        #expect(scheduler.nextDeadline == start + 10)
        #expect(scheduler.decide(at: start + 10).start == [1])
        #expect(scheduler.pendingReasons(of: 1, at: start + 10) == [])
        #expect(scheduler.nextDeadline == nil)
    }

    @Test func aTransferThatStillWaitsAfterItsDelayIsNamed() {
        var scheduler = Scheduler(limits: .init(total: 1))
        scheduler.add(1, as: item(), at: start)
        var later = item()
        later.notBefore = PendingReason(.earliestBegin, until: start + 10)
        scheduler.add(2, as: later, at: start)
        scheduler.add(3, as: later, at: start)
        later.blocks = .user
        scheduler.add(4, as: later, at: start)
        #expect(scheduler.decide(at: start) == .init(start: [1]))
        scheduler.change(3, at: start + 5) { $0.notBefore = nil }
        #expect(scheduler.decide(at: start + 5) == .init(wait: [3]))
        #expect(scheduler.decide(at: start + 10) == .init(wait: [2, 4]))
        let reasons = [PendingReason(.slot, resource: .connections)]
        #expect(scheduler.pendingReasons(of: 2, at: start + 10) == reasons)
        #expect(scheduler.decide(at: start + 11) == .init())
    }

    @Test func transfersFromAHostThatAsksToWaitAreNamedWhenThatBeginsAndEnds() {
        var scheduler = Scheduler(limits: .init(total: 1))
        scheduler.add(1, as: item(host: "b"), at: start)
        scheduler.add(2, as: item(), at: start)
        #expect(scheduler.decide(at: start) == .init(start: [1]))
        scheduler.addHostDelay(of: "a", user: 1, until: start + 60, at: start)
        #expect(scheduler.decide(at: start) == .init(wait: [2]))
        scheduler.addHostDelay(of: "a", user: 1, until: start + 70, at: start)
        #expect(scheduler.decide(at: start + 60) == .init())
        #expect(scheduler.decide(at: start + 70) == .init(wait: [2]))
        scheduler.addHostDelay(of: "a", user: 1, until: start + 90, at: start + 70)
        scheduler.endHostDelay(of: "a", user: 1)
        #expect(scheduler.decide(at: start + 71) == .init(wait: [2]))
        #expect(scheduler.pendingReasons(of: 2, at: start + 71).map(\.kind) == [.slot])
    }

    @Test func aFullDiskHoldsEverythingUntilItIsLookedAtAgain() {
        var scheduler = Scheduler()
        scheduler.add(1, as: item(), at: start)
        scheduler.add(2, as: item(), at: start)
        #expect(scheduler.decide(at: start).start == [1, 2])
        scheduler.attemptEnded(1, pending: nil, at: start)
        scheduler.fullUntil = start + 15
        #expect(scheduler.decide(at: start) == .init(stop: [2]))
        scheduler.attemptEnded(2, pending: nil, at: start)
        #expect(
            scheduler.pendingReasons(of: 1, at: start) == [PendingReason(.disk, until: start + 15)]
        )
        #expect(scheduler.nextDeadline == start + 15)
        #expect(scheduler.decide(at: start + 15).start == [1, 2])
    }

    @Test func aHostThatAsksToWaitGetsNoTransferOfItsUser() {
        var scheduler = Scheduler()
        scheduler.addHostDelay(of: "a", user: 1, until: start + 60, at: start)
        var (mirrored, promoted) = (item(), item())
        mirrored.hasMirrors = true
        promoted.isPromoted = true
        scheduler.add(1, as: item(), at: start)
        scheduler.add(2, as: item(host: "b"), at: start)
        scheduler.add(3, as: item(user: 2, session: 2), at: start)
        scheduler.add(4, as: mirrored, at: start)
        scheduler.add(5, as: promoted, at: start)
        #expect(scheduler.decide(at: start).start.sorted() == [2, 3, 4, 5])
        #expect(
            scheduler.pendingReasons(of: 1, at: start)
                == [PendingReason(.server, until: start + 60)]
        )
        #expect(scheduler.nextDeadline == start + 60)
        #expect(scheduler.decide(at: start + 60).start == [1])
    }

    @Test func aDelayOfAHostIsOnlyExtendedAndLastsTenMinutesAtMost() {
        var delays = HostDelays()
        delays.add("a", of: 1, until: start + 60, at: start)
        delays.add("a", of: 1, until: start + 30, at: start)
        #expect(delays.end(of: "a", user: 1) == start + 60)
        delays.add("a", of: 1, until: start + 86_400, at: start + 10)
        #expect(delays.end(of: "a", user: 1) == start + 610)
        delays.removeEnded(at: start + 609)
        #expect(delays.end(of: "a", user: 1) == start + 610)
        delays.removeEnded(at: start + 610)
        #expect(delays.nextEnd == nil)
    }

    @Test func aFurtherDelayOfAUserReplacesTheirNextOneToEnd() {
        var delays = HostDelays()
        delays.add("a", of: 2, until: start + 10, at: start)
        for number in 0..<HostDelays.maximumCountPerUser {
            delays.add("\(number)", of: 1, until: start + 60 + Double(number), at: start)
        }
        #expect(delays.add("b", of: 1, until: start + 60, at: start) == [])
        #expect(delays.add("b", of: 1, until: start + 90, at: start) == ["b", "0"])
        #expect(delays.end(of: "0", user: 1) == nil)
        #expect(delays.end(of: "1", user: 1) == start + 61)
        #expect(delays.end(of: "b", user: 1) == start + 90)
        #expect(delays.end(of: "a", user: 2) == start + 10)
        #expect(delays.nextEnd == start + 10)
        delays.removeEnded(at: start + 10)
        #expect(delays.nextEnd == start + 61)
    }

    @Test func allReasonsAreReportedTheLongestOnesFirst() {
        var scheduler = Scheduler()
        var held = item(constraints: [.unmetered, .power])
        held.blocks = [.client, .user, .authentication]
        held.notBefore = PendingReason(.earliestBegin, until: start + 60)
        scheduler.conditions.connectivity = .none
        scheduler.conditions.isExpensive = true
        scheduler.conditions.isOnBattery = true
        scheduler.conditions.isSavingPower = true
        scheduler.fullUntil = start + 5
        scheduler.add(1, as: held, at: start)
        let reasons: [PendingReason.Kind] = [
            .pausedByClient, .pausedByUser, .authentication, .offline, .metered,
            .onBattery, .powerSaver, .disk, .earliestBegin,
        ]
        #expect(scheduler.pendingReasons(of: 1, at: start).map(\.kind) == reasons)
    }
}

/// A scheduler that receives random events, and the invariants that must hold.
struct SchedulerWorld {
    private var random: SeededGenerator
    private var scheduler: Scheduler
    private var now = Date(timeIntervalSince1970: 1_800_000_000)
    private var nextID: Int64 = 1
    /// Running and stopping transfers, according to the scheduler's decisions.
    private var running: Set<Int64> = []
    private var stopping: Set<Int64> = []
    private var known: [Int64: Scheduler.Item] = [:]
    private let limits: Scheduler.Limits
    private(set) var faults: [String] = []
    private(set) var hasFinished: Set<Int64> = []
    private(set) var mayFinish: Set<Int64> = []

    init(seed: UInt64) {
        random = SeededGenerator(seed: seed)
        limits = Scheduler.Limits(
            total: .random(in: 1...8, using: &random),
            perHost: .random(in: 1...4, using: &random)
        )
        scheduler = Scheduler(limits: limits)
    }

    /// Performs a random event, and runs the scheduler.
    mutating func step() {
        switch Int.random(in: 0..<12, using: &random) {
        case 0...3: add()
        case 4...5: change()
        case 6...7: pause()
        case 8: remove()
        case 9: changeConditions()
        case 10: now += .random(in: 0...5, using: &random)
        default:
            if Bool.random(using: &random) { scheduler.fullUntil = now + 3 }
        }
        decide()
    }

    private mutating func add() {
        let user = UInt32.random(in: 1...3, using: &random)
        var item = Scheduler.Item(
            user: user,
            session: Int64(user) * 10 + .random(in: 0...1, using: &random),
            host: ["a", "b", "c"].randomElement(using: &random) ?? "a",
            sessionLimit: .random(in: 1...3, using: &random),
            priority: .random(in: 0...2, using: &random),
            constraints: TransferConstraints(rawValue: .random(in: 0...7, using: &random))
        )
        if Int.random(in: 0..<4, using: &random) == 0 { item.blocks = .client }
        if Int.random(in: 0..<4, using: &random) == 0 {
            item.notBefore = PendingReason(.earliestBegin, until: now + 4)
        }
        // Tasks of one session have the same limit, as it comes from the session's configuration.
        let twin = known.values.first { $0.session == item.session }
        item.sessionLimit = twin?.sessionLimit ?? item.sessionLimit
        known[nextID] = item
        mayFinish.insert(nextID)
        scheduler.add(nextID, as: item, at: now)
        nextID += 1
    }

    private mutating func change() {
        guard let id = known.keys.sorted().randomElement(using: &random) else { return }
        let block: Scheduler.Blocks =
            [.client, .user, .authentication, .leader].randomElement(using: &random) ?? .client
        let priority = Int.random(in: 0...2, using: &random)
        scheduler.change(id, at: now) { item in
            item.blocks.formSymmetricDifference(block)
            item.priority = priority
        }
    }

    private mutating func pause() {
        guard let id = running.union(stopping).sorted().randomElement(using: &random) else {
            return
        }
        let hold = Bool.random(using: &random) ? PendingReason(.backoff, until: now + 2) : nil
        running.remove(id)
        stopping.remove(id)
        scheduler.attemptEnded(id, pending: hold, at: now)
    }

    private mutating func remove() {
        guard let id = known.keys.sorted().randomElement(using: &random) else { return }
        running.remove(id)
        stopping.remove(id)
        known[id] = nil
        mayFinish.remove(id)
        scheduler.remove(id)
    }

    private mutating func changeConditions() {
        var conditions = Conditions.unknown
        conditions.isExpensive = [nil, true, false].randomElement(using: &random) ?? nil
        conditions.isOnBattery = [nil, true, false].randomElement(using: &random) ?? nil
        conditions.connectivity =
            [.unknown, .full, .limited, .none, .portal].randomElement(using: &random) ?? .full
        scheduler.conditions = conditions
    }

    private mutating func decide() {
        let decision = scheduler.decide(at: now)
        for id in decision.stop {
            if !running.contains(id) { faults.append("\(id) is told to stop, and does not run") }
            running.remove(id)
            stopping.insert(id)
        }
        for id in decision.start {
            if running.contains(id) || stopping.contains(id) { faults.append("\(id) runs twice") }
            if known[id] == nil { faults.append("\(id) is gone, and starts") }
            running.insert(id)
        }
        if !decision.start.isEmpty, scheduler.fullUntil != nil { faults.append("the disk is full") }
        for id in running { checkMayRun(id) }
        checkLimits()
    }

    private mutating func checkMayRun(_ id: Int64) {
        guard let item = scheduler.items[id] else { return faults.append("\(id) is lost") }
        let isHeld =
            !item.blocks.isEmpty || !item.constraints.unmet(in: scheduler.conditions).isEmpty
            || item.notBefore?.until ?? now > now
        if isHeld { faults.append("\(id) is held, and runs") }
        if !scheduler.pendingReasons(of: id, at: now).isEmpty {
            faults.append("\(id) runs and has reasons to wait")
        }
    }

    private mutating func checkLimits() {
        let active = running.union(stopping)
        if scheduler.activeCount != active.count { faults.append("a count is wrong") }
        if active.count > limits.total { faults.append("more than \(limits.total) run") }
        let items = active.compactMap { known[$0] }
        for (host, items) in Dictionary(grouping: items, by: \.host) {
            if items.count > limits.perHost { faults.append("too many run on \(host)") }
            for (session, items) in Dictionary(grouping: items, by: \.session)
            where items.count > items[0].sessionLimit {
                faults.append("session \(session) has too many on \(host)")
            }
        }
    }

    /// Removes all reasons to wait, and runs the remaining transfers to their ends.
    mutating func finish() {
        scheduler.conditions = .unknown
        for id in known.keys { scheduler.change(id, at: now) { $0.blocks = [] } }
        for _ in 0..<2000 where !known.isEmpty {
            now += 1
            decide()
            for id in stopping { scheduler.attemptEnded(id, pending: nil, at: now) }
            stopping = []
            for id in running.sorted().prefix(2) {
                running.remove(id)
                known[id] = nil
                hasFinished.insert(id)
                scheduler.remove(id)
            }
        }
        if scheduler.activeCount != 0 { faults.append("tasks are left") }
    }
}
