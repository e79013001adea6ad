import StageDigest
import StageModel
import SystemPackage
import Testing

@testable import StageTransfer

/// The mismatch of digests for wrong content.
private let mismatch = DigestMismatch(expected: Digest(of: [1]), found: Digest(of: [2]))

@Suite struct TransferStateMachineTests {
    typealias Machine = TransferStateMachine

    private static let transient = TransferError.unreachable(url: "u", detail: "d")
    private static let permanent = TransferError.refused(url: "u", status: 404)

    /// A state machine with its shared history and the time, so that a test reads as a sequence of events.
    private struct Story {
        var history = MirrorHistory()
        var now = Duration.zero
        var machine: Machine
        var random = 0.5

        init(
            _ count: Int,
            policy: RetryPolicy = RetryPolicy(),
            history: MirrorHistory? = nil,
            failuresBefore: Int = 0
        ) {
            if let history { self.history = history }
            machine = Machine(
                mirrors: (0..<count).map { ("host\($0)", "url\($0)") },
                policy: policy,
                history: self.history,
                failuresBefore: failuresBefore
            )
        }

        mutating func handle(_ event: Machine.Event) -> Machine.Action {
            machine.handle(event, history: &history, at: Machine.Moment(now: now, random: random))
        }

        mutating func begin() -> Machine.Action { handle(.began(isComplete: false)) }

        mutating func fail(
            pause: Duration? = nil,
            _ progress: Machine.Progress = Machine.Progress()
        ) -> Machine.Action {
            handle(.ended(.transient(transient, pause: pause), progress))
        }

        mutating func waited(_ duration: Duration) -> Machine.Action {
            now += duration
            return handle(.waited)
        }
    }

    @Test func contentThatIsHereAlreadyIsOnlyVerified() {
        var story = Story(1)
        let first = story.handle(.began(isComplete: true))
        #expect(first == .verify)
        let last = story.handle(.verified(nil))
        #expect(last == .succeed)
        #expect(story.machine.attempts == 0)
    }

    @Test func contentThatIsHereAndWrongBlamesNoMirror() {
        var story = Story(1)
        _ = story.handle(.began(isComplete: true))
        let next = story.handle(.verified(mismatch))
        #expect(next == .attempt(mirror: 0, isRanged: false))
        #expect(story.history == MirrorHistory())
    }

    @Test func contentThatWasContinuedAndIsWrongBlamesNoMirror() {
        var story = Story(2)
        _ = story.begin()
        let accepted = Machine.Progress(wasAccepted: true, newBytes: 1)
        _ = story.handle(.ended(.complete, accepted))
        let again = story.handle(.resumedContentIsWrong)
        #expect(again == .attempt(mirror: 0, isRanged: false))
        #expect(story.history == MirrorHistory())
        // Only bytes that this run received count.
        _ = story.handle(.ended(.complete, accepted))
        let other = story.handle(.verified(mismatch))
        #expect(other == .attempt(mirror: 1, isRanged: false))
    }

    @Test func withoutMirrorsThereIsNothingToTry() {
        var story = Story(0)
        let action = story.begin()
        #expect(action == .fail(.unacceptable(url: "", .noMirror)))
    }

    @Test func mirrorsAreTriedInOrderBeforeAnythingWaits() {
        var story = Story(3)
        var actions = [story.begin()]
        for _ in 0..<3 { actions.append(story.fail()) }
        #expect(
            actions == [
                .attempt(mirror: 0, isRanged: true), .attempt(mirror: 1, isRanged: true),
                .attempt(mirror: 2, isRanged: true), .wait(.seconds(1), .backoff),
            ]
        )
        let next = story.waited(.seconds(1))
        #expect(next == .attempt(mirror: 0, isRanged: true))
    }

    @Test func waitsDoubleUpToTheCapAndThenEnd() {
        let policy = RetryPolicy(maximumAttempts: 5, base: .seconds(2), cap: .seconds(10))
        var story = Story(1, policy: policy)
        story.random = 1
        var waits: [Machine.Action] = []
        _ = story.begin()
        for _ in 0..<5 {
            waits.append(story.fail())
            if case .wait(let duration, _) = waits.last { _ = story.waited(duration) }
        }
        #expect(
            waits == [
                .wait(.seconds(2), .backoff), .wait(.seconds(4), .backoff),
                .wait(.seconds(8), .backoff), .wait(.seconds(10), .backoff),
                .fail(Self.transient),
            ]
        )
    }

    @Test func durableBytesResetTheCount() {
        let policy = RetryPolicy(maximumAttempts: 3, base: .seconds(2))
        var story = Story(1, policy: policy)
        story.random = 1
        _ = story.begin()
        for _ in 0..<20 {
            let action = story.fail(
                Machine.Progress(wasAccepted: true, newBytes: 9 << 20, isDurable: true)
            )
            #expect(action == .wait(.seconds(2), .backoff))
            _ = story.waited(.seconds(2))
        }
        let second = story.fail(Machine.Progress(wasAccepted: true, newBytes: 100))
        #expect(second == .wait(.seconds(2), .backoff) || second == .wait(.seconds(4), .backoff))
    }

    /// The delay is half of 2 seconds doubled with each failure, at most an hour.
    @Test(arguments: [(0, 1), (1, 2), (3, 8), (10, 1024), (11, 1800), (.max, 1800), (-1, 1)])
    func delaysKeepGrowingAfterEarlierFailures(count: Int, seconds: Int) {
        var story = Story(1, failuresBefore: count)
        _ = story.begin()
        let action = story.fail()
        #expect(action == .wait(.seconds(seconds), .backoff))
    }

    @Test func failuresBeforeAreNoAttempts() {
        var story = Story(1, policy: RetryPolicy(maximumAttempts: 3), failuresBefore: 5)
        _ = story.begin()
        for seconds in [32, 64] {
            let action = story.fail()
            #expect(action == .wait(.seconds(seconds), .backoff))
            _ = story.waited(.seconds(seconds))
        }
        let end = story.fail()
        #expect(end == .fail(Self.transient))
    }

    @Test func durableBytesMakeUpForFailuresBefore() {
        var story = Story(1, failuresBefore: 5)
        _ = story.begin()
        let action = story.fail(Machine.Progress(newBytes: 1, isDurable: true))
        #expect(action == .wait(.seconds(1), .backoff))
    }

    @Test func aMirrorThatDeliveredIsAskedOnceMore() {
        var story = Story(2)
        _ = story.begin()
        let some = Machine.Progress(wasAccepted: true, newBytes: 100)
        let first = story.fail(some)
        #expect(first == .wait(.seconds(1), .backoff))
        let again = story.waited(.seconds(1))
        #expect(again == .attempt(mirror: 0, isRanged: true))
        let other = story.fail(some)
        #expect(other == .attempt(mirror: 1, isRanged: true))
    }

    @Test func aServerIsLeftAloneAsLongAsItAsks() {
        var story = Story(1)
        _ = story.begin()
        let action = story.fail(pause: .seconds(30))
        #expect(action == .wait(.seconds(31), .server))
        let next = story.waited(.seconds(31))
        #expect(next == .attempt(mirror: 0, isRanged: true))
    }

    @Test func aHostIsLeftAloneByOtherTransfersAsLongAsItAsks() {
        var story = Story(1)
        _ = story.begin()
        let refusal = TransferError.refused(url: "u", status: 503, retryAfter: .seconds(30))
        _ = story.handle(.ended(.transient(refusal, pause: .seconds(30)), Machine.Progress()))
        var other = Story(1, history: story.history)
        let wait = other.begin()
        #expect(wait == .wait(.seconds(31), .server))
        // Another transfer was refused again: the server may mean this one, too.
        other.history.recordDelay(of: "host0", lasting: .seconds(60))
        let next = other.waited(.seconds(31))
        #expect(next == .attempt(mirror: 0, isRanged: true))
        var mirrored = Story(2, history: story.history)
        let first = mirrored.begin()
        #expect(first == .attempt(mirror: 1, isRanged: true))
        let second = mirrored.fail()
        #expect(second == .wait(.seconds(31), .server))
    }

    @Test(arguments: [
        RetryPolicy(maximumAttempts: 1), RetryPolicy(retryTimeLimit: .seconds(29)),
        RetryPolicy(maximumRetryAfter: .seconds(29)),
    ])
    func anImpatientTransferAsksItself(policy: RetryPolicy) {
        var history = MirrorHistory()
        history.recordDelay(of: "host0", lasting: .seconds(30))
        var story = Story(1, policy: policy, history: history)
        let first = story.begin()
        #expect(first == .attempt(mirror: 0, isRanged: true))
    }

    @Test func aDelayOfAHostEnds() {
        var history = MirrorHistory()
        history.recordDelay(of: "host0", lasting: .seconds(3600))
        for (seconds, delay) in [(0, 600), (599, 1), (600, 0), (700, 0)] {
            history.advance(to: .seconds(seconds))
            #expect(history.remainingDelay(of: "host0") == .seconds(delay))
        }
        var alone = MirrorHistory(sharesDelays: false)
        alone.recordDelay(of: "host0", lasting: .seconds(30))
        #expect(alone.remainingDelay(of: "host0") == .zero)
    }

    @Test func othersAreAskedMeanwhile() {
        var story = Story(2)
        _ = story.begin()
        let other = story.fail(pause: .seconds(3600))
        #expect(other == .attempt(mirror: 1, isRanged: true))
        let wait = story.fail()
        #expect(wait == .wait(.seconds(1), .backoff))
        let next = story.waited(.seconds(1))
        #expect(next == .attempt(mirror: 1, isRanged: true))
    }

    @Test func aWaitBeyondTheBudgetEndsAtOnce() {
        var story = Story(1, policy: RetryPolicy(retryTimeLimit: .seconds(10)))
        _ = story.begin()
        let action = story.fail(pause: .seconds(60))
        #expect(action == .fail(Self.transient))
    }

    @Test func aMirrorThatRefusesIsNotAskedAgain() {
        var story = Story(2)
        _ = story.begin()
        let other = story.handle(.ended(.permanent(Self.permanent), Machine.Progress()))
        #expect(other == .attempt(mirror: 1, isRanged: true))
        let wait = story.fail()
        #expect(wait == .wait(.seconds(1), .backoff))
        let next = story.waited(.seconds(1))
        #expect(next == .attempt(mirror: 1, isRanged: true))
        let end = story.handle(.ended(.permanent(Self.permanent), Machine.Progress()))
        #expect(end == .fail(Self.permanent))
    }

    @Test func aPortalIsReportedBeforeOtherFailures() {
        let portal = TransferError.captivePortal(url: "u", answeredBy: "p")
        var story = Story(2)
        _ = story.begin()
        _ = story.handle(.ended(.permanent(portal), Machine.Progress()))
        let end = story.handle(.ended(.permanent(Self.permanent), Machine.Progress()))
        #expect(end == .fail(portal))
    }

    @Test func contentIsWrongTwiceAtMostAndFromAnotherMirrorFirst() {
        var story = Story(2)
        _ = story.begin()
        let accepted = Machine.Progress(wasAccepted: true, newBytes: 1)
        let verify = story.handle(.ended(.complete, accepted))
        #expect(verify == .verify)
        let other = story.handle(.verified(mismatch))
        #expect(other == .attempt(mirror: 1, isRanged: false))
        _ = story.handle(.ended(.complete, accepted))
        let end = story.handle(.verified(mismatch))
        #expect(end == .fail(.wrongDigest(url: "url1", mismatch)))
    }

    @Test func twoMirrorsWithWrongContentHideNoOther() {
        var story = Story(3)
        _ = story.begin()
        let accepted = Machine.Progress(wasAccepted: true, newBytes: 1)
        var actions: [Machine.Action] = []
        for _ in 0..<2 {
            _ = story.handle(.ended(.complete, accepted))
            actions.append(story.handle(.verified(mismatch)))
        }
        #expect(
            actions == [
                .attempt(mirror: 1, isRanged: false), .attempt(mirror: 2, isRanged: false),
            ]
        )
        // The last mirror is unreachable, so another one is tried again, and then not any more.
        let again = story.fail()
        #expect(again == .attempt(mirror: 0, isRanged: false))
        _ = story.handle(.ended(.complete, accepted))
        let last = story.handle(.verified(mismatch))
        #expect(last == .attempt(mirror: 2, isRanged: false))
        _ = story.handle(.ended(.complete, accepted))
        let end = story.handle(.verified(mismatch))
        #expect(end == .fail(.wrongDigest(url: "url2", mismatch)))
    }

    @Test func aMirrorThatRefusesTheContentDoesNotCountAsOneWithoutRanges() {
        var story = Story(2)
        _ = story.begin()
        let whole = story.handle(.ended(.distrustRanges("status 403"), Machine.Progress()))
        #expect(whole == .attempt(mirror: 0, isRanged: false))
        let other = story.handle(.ended(.permanent(Self.permanent), Machine.Progress()))
        #expect(other == .attempt(mirror: 1, isRanged: true))
        #expect(story.history.allowsRanges(from: "host0"))
    }

    @Test(arguments: [Machine.Outcome.restart, .distrustRanges("206 of another total")])
    func unusableReceivedBytesAreDiscarded(outcome: Machine.Outcome) {
        var story = Story(2)
        _ = story.begin()
        let again = story.handle(.ended(outcome, Machine.Progress()))
        #expect(again == .attempt(mirror: 0, isRanged: false))
        let accepted = Machine.Progress(wasAccepted: true, newBytes: 1)
        _ = story.fail(accepted)
        let next = story.waited(.seconds(1))
        #expect(next == .attempt(mirror: 0, isRanged: outcome == .restart))
    }

    @Test func wrongRangesAreHeldAgainstAHostForAnHour() {
        var history = MirrorHistory()
        history.advance(to: .seconds(10))
        history.recordUnsafeRanges(of: "host0")
        for (seconds, isAllowed) in [(3609, false), (3610, true)] {
            history.advance(to: .seconds(seconds))
            #expect(history.allowsRanges(from: "host0") == isAllowed)
        }
    }

    @Test func rangesAreDoubtedAtEachThirdFailure() {
        let unanswered = Machine.Progress(isRangeUnanswered: true)
        var story = Story(1)
        story.random = 0
        _ = story.begin()
        var actions: [Machine.Action] = []
        for _ in 0..<5 {
            actions.append(story.fail(unanswered))
            if case .wait = actions.last { actions.append(story.waited(.zero)) }
        }
        let (wait, ranged) = (
            Machine.Action.wait(.zero, .backoff), Machine.Action.attempt(mirror: 0, isRanged: true)
        )
        let probe = Machine.Action.probe(mirror: 0)
        #expect(actions == [wait, ranged, wait, ranged, probe, wait, ranged, wait, ranged])
        // An outage may have ended meanwhile, or may come and go.
        for _ in 0..<3 {
            let again = story.fail(unanswered)
            #expect(again == probe)
            let answered = story.handle(.ended(.probeSucceeded, Machine.Progress()))
            #expect(answered == ranged)
        }
        let last = story.fail(unanswered)
        #expect(last == .attempt(mirror: 0, isRanged: false))
        #expect(story.history.allowsRanges(from: "host0"))
    }

    /// The third probe fails, or the range after it is accepted.
    @Test func aFailureOfAnotherKindIsNoDoubtOfRanges() {
        let unanswered = Machine.Progress(isRangeUnanswered: true)
        let wait = Machine.Action.wait(.zero, .backoff)
        for other in [Machine.Progress(), Machine.Progress(wasAccepted: true, newBytes: 1)] {
            var story = Story(1, failuresBefore: 2)
            story.random = 0
            _ = story.begin()
            for _ in 0..<2 {
                _ = story.fail(unanswered)
                _ = story.handle(.ended(.probeSucceeded, Machine.Progress()))
            }
            let probe = story.fail(unanswered)
            #expect(probe == .probe(mirror: 0))
            if other.wasAccepted { _ = story.handle(.ended(.probeSucceeded, Machine.Progress())) }
            let broken = story.fail(other)
            #expect(broken == wait)
            _ = story.waited(.zero)
            let next = story.fail(unanswered)
            #expect(next == wait)
        }
    }

    /// The range completes wrong content, so the mirror is asked again after the other.
    @Test func aRangeThatIsAnsweredEndsTheDoubtOfRanges() {
        let unanswered = Machine.Progress(isRangeUnanswered: true)
        let accepted = Machine.Progress(wasAccepted: true, newBytes: 1)
        var story = Story(2, failuresBefore: 2)
        _ = story.begin()
        let probe = story.fail(unanswered)
        #expect(probe == .probe(mirror: 0))
        _ = story.handle(.ended(.probeSucceeded, Machine.Progress()))
        _ = story.handle(.ended(.complete, accepted))
        let other = story.handle(.verified(mismatch))
        #expect(other == .attempt(mirror: 1, isRanged: false))
        _ = story.fail(accepted)
        _ = story.waited(.zero)
        let first = story.handle(.ended(.permanent(Self.permanent), Machine.Progress()))
        #expect(first == .attempt(mirror: 0, isRanged: true))
        let next = story.fail(unanswered)
        #expect(next != .probe(mirror: 0))
    }

    /// Each attempt of the daemon ends at its first wait.
    @Test func failuresBeforeCountForTheDoubtOfRanges() {
        for (count, isDoubted) in [(1, false), (2, true), (3, false), (5, true)] {
            var story = Story(1, failuresBefore: count)
            _ = story.begin()
            let action = story.fail(Machine.Progress(isRangeUnanswered: true))
            #expect((action == .probe(mirror: 0)) == isDoubted)
        }
    }

    @Test func anOverloadedServerIsNotAskedMore() {
        let unanswered = Machine.Progress(isRangeUnanswered: true)
        for (status, pause) in [(503, Duration.seconds(1)), (429, nil)] {
            var story = Story(1, failuresBefore: 2)
            _ = story.begin()
            let error = TransferError.refused(url: "u", status: status)
            let action = story.handle(.ended(.transient(error, pause: pause), unanswered))
            #expect(action != .probe(mirror: 0))
        }
    }

    @Test func aHostThatFailedIsTriedLastByTheNext() {
        var story = Story(2)
        _ = story.begin()
        _ = story.fail()
        var next = Story(2, history: story.history)
        let first = next.begin()
        #expect(first == .attempt(mirror: 1, isRanged: true))
        _ = next.fail()
        _ = next.handle(.ended(.complete, Machine.Progress(wasAccepted: true, newBytes: 1)))
        _ = next.handle(.verified(nil))
        var third = Story(2, history: next.history)
        let healed = third.begin()
        #expect(healed == .attempt(mirror: 0, isRanged: true))
    }

    @Test func aLocalFailureEndsEverything() {
        var story = Story(3)
        _ = story.begin()
        let end = story.handle(.ended(.local(.outOfSpace("/x")), Machine.Progress()))
        #expect(end == .fail(.outOfSpace("/x")))
    }
}

@Suite struct TransferSlotsTests {
    @Test func limitsHoldForEachHostAndInAll() {
        var allocator = ConnectionAllocator(perHost: 2, total: 3)
        let taken = [
            allocator.acquire(1, host: "a", priority: 0),
            allocator.acquire(2, host: "a", priority: 0),
            allocator.acquire(3, host: "a", priority: 0),
            allocator.acquire(4, host: "b", priority: 0),
            allocator.acquire(5, host: "c", priority: 0),
            allocator.acquire(6, host: "c", priority: 1),
        ]
        #expect(taken == [true, true, false, true, false, false])
        let first = allocator.release(host: "b")
        #expect(first == [6])
        let second = allocator.release(host: "a")
        #expect(second == [3])
        let isWithdrawn = allocator.cancel(5)
        #expect(isWithdrawn)
        let none = allocator.release(host: "a")
        #expect(none == [])
    }

    /// A host accepts two connections of this client, and refuses others.
    @Test(arguments: [429, 503])
    func aHostThatRefusesConnectionsGetsFewer(status: Int) {
        var allocator = ConnectionAllocator(perHost: 4, total: 16)
        for tag in 1...4 { _ = allocator.acquire(tag, host: "a", priority: 0) }
        for _ in 0..<2 {
            allocator.adjust(to: status, of: "a")
            _ = allocator.release(host: "a")
        }
        let third = allocator.acquire(5, host: "a", priority: 0)
        let other = allocator.acquire(6, host: "b", priority: 0)
        #expect(!third && other)
        // An exchange with a response, and one that fails without a response.
        for (tag, status) in [(7, 200), (8, nil)] {
            _ = allocator.acquire(tag, host: "a", priority: 0)
            allocator.adjust(to: status, of: "a")
            let next = allocator.release(host: "a")
            #expect(next == [tag == 7 ? 5 : 7])
        }
        // The limit rises after eight responses.
        for _ in 0..<6 { allocator.adjust(to: 206, of: "a") }
        let raised = allocator.acquire(9, host: "a", priority: 0)
        #expect(!raised)
        allocator.adjust(to: 206, of: "a")
        let next = allocator.release(host: "a")
        #expect(next == [8, 9])
    }

    @Test func aHostThatRefusesConnectionsOfAUserGetsAsManyOfOthers() {
        var allocator = ConnectionAllocator(perHost: 4, total: 16)
        for tag in 1...2 { _ = allocator.acquire(tag, host: "a", user: 1, priority: 0) }
        allocator.adjust(to: 429, of: "a", user: 1)
        _ = allocator.release(host: "a", user: 1)
        let taken = [
            allocator.acquire(3, host: "a", user: 1, priority: 0),
            allocator.acquire(4, host: "a", user: 2, priority: 0),
            allocator.acquire(5, host: "a", user: 2, priority: 0),
            // The last transfer of a user counts against the limit of all users, too.
            allocator.acquire(6, host: "a", user: 3, priority: 0),
            allocator.acquire(7, host: "a", user: 3, priority: 0),
        ]
        #expect(taken == [false, true, true, true, false])
        let ofOthers = allocator.release(host: "a", user: 2)
        #expect(ofOthers == [7])
        let ofTheSame = allocator.release(host: "a", user: 1)
        #expect(ofTheSame == [3])
    }

    @Test func aRefusalOfTheOnlyRequestChangesNoLimit() {
        var allocator = ConnectionAllocator(perHost: 2, total: 16)
        _ = allocator.acquire(1, host: "a", priority: 0)
        allocator.adjust(to: 503, of: "a")
        let second = allocator.acquire(2, host: "a", priority: 0)
        #expect(second)
        // The limit of a host is forgotten with its last connection.
        allocator.adjust(to: 503, of: "a")
        let third = allocator.acquire(3, host: "a", priority: 0)
        #expect(!third)
        _ = allocator.cancel(3)
        for _ in 0..<2 { _ = allocator.release(host: "a") }
        let both = [4, 5].map { allocator.acquire($0, host: "a", priority: 0) }
        #expect(both == [true, true])
    }
}

@Suite struct AbandonedLookupsTests {
    @Test func lookupsThatAreLeftBehindAreLimited() {
        var lookups = AbandonedLookups()
        let start = SuspendingClock.now
        let users = UInt32(AbandonedLookups.limit / AbandonedLookups.limitPerUser)
        for user in 0..<users {
            for _ in 0..<AbandonedLookups.limitPerUser {
                #expect(lookups.hasRoom(for: user))
                lookups.add(of: user, at: start)
            }
            #expect(!lookups.hasRoom(for: user))
            #expect(lookups.hasRoom(for: nil) == (user + 1 < users))
        }
        let hasEndedEarly = lookups.removeEnded(at: start + .seconds(1))
        #expect(!hasEndedEarly)
        let hasEnded = lookups.removeEnded(at: start + AbandonedLookups.longestLookup)
        #expect(hasEnded)
        #expect(lookups.hasRoom(for: 0))
    }

    @Test func aUserWithTooManyLookupsWaitsAlone() {
        var allocator = ConnectionAllocator(perHost: 2, total: 3)
        let start = SuspendingClock.now
        for _ in 0..<AbandonedLookups.limitPerUser { allocator.lookups.add(of: 1, at: start) }
        let taken = [
            allocator.acquire(1, host: "a", user: 1, priority: 0),
            allocator.acquire(2, host: "a", user: 2, priority: 0),
            allocator.acquire(3, host: "b", priority: 0),
        ]
        #expect(taken == [false, true, true])
        let afterRelease = allocator.release(host: "a")
        #expect(afterRelease == [])
        let afterLookups = allocator.endLookups(at: start + AbandonedLookups.longestLookup)
        #expect(afterLookups == [1])
    }
}

@Suite struct BandwidthBudgetTests {
    @Test func bytesBeyondTheBudgetDelayTheNextOnes() {
        let start = SuspendingClock.now
        let budget = BandwidthBudget(bytesPerSecond: 800, now: start)
        #expect(budget.isOpen(at: start))
        budget.take(500)
        // The budget held 100 bytes; the 400 bytes taken beyond it take half a second at 800 bytes a second.
        #expect(!budget.isOpen(at: start + .milliseconds(490)))
        #expect(budget.isOpen(at: start + .milliseconds(510)))
        // Unused bandwidth accumulates for at most an eighth of a second.
        #expect(budget.isOpen(at: start + .seconds(100)))
        budget.take(101)
        #expect(!budget.isOpen(at: start + .seconds(100)))
    }
}
