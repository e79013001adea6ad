import StageSystem
import StageTesting
import Synchronization
import Testing

@testable import StageURLSession

/// The order in which tasks are sent to the daemon, and the waiters for their sending.
struct TaskOutboxTests {
    private final class Item: Sendable {}

    private let items = (0..<4).map { _ in Item() }
    private let called = Lines()

    /// The names of waiters in the order in which they were called.
    private final class Lines: Sendable {
        private let names = Mutex<[String]>([])

        func add(_ name: String) { names.withLock { $0.append(name) } }

        /// Returns the names since the last time.
        func take() -> [String] {
            names.withLock { names in
                defer { names = [] }
                return names
            }
        }
    }

    private func positions(_ taken: [Item]) -> [Int] {
        taken.map { item in items.firstIndex { $0 === item } ?? -1 }
    }

    private func call(_ outbox: inout TaskOutbox<Item>) -> [String] {
        var bodies = outbox.takeDueWaiters(hasCalled: false)
        while !bodies.isEmpty {
            for body in bodies { body() }
            bodies = outbox.takeDueWaiters(hasCalled: true)
        }
        return called.take()
    }

    /// The daemon may refuse a part of a change only.
    @Test func aWaiterWaitsForTheRestOfARefusedChange() {
        var outbox = TaskOutbox<Item>()
        _ = outbox.add(items[0], to: .requests)
        outbox.wait(acceptsFailure: true) { [called] in called.add("flushed") }
        let refused = outbox.take(.requests, atMost: 9)
        outbox.addRest(of: items[0])
        #expect(outbox.finish(refused) { _ in .requests } == [])
        #expect(call(&outbox) == [])
        let rest = outbox.take(.requests, atMost: 9)
        #expect(positions(rest) == [0])
        #expect(outbox.finish(rest) { _ in .requests } == [])
        #expect(call(&outbox) == ["flushed"])
        #expect(outbox.isEmpty)
    }

    @Test func aTaskIsTakenOnceAndIsInOneThreadsHands() {
        var outbox = TaskOutbox<Item>()
        #expect(outbox.isEmpty)
        let additions: [(Int, TaskOutbox<Item>.Lane)] = [
            (0, .requests), (0, .requests), (1, .requests), (2, .uploads),
        ]
        let starts = additions.map { outbox.add(items[$0], to: $1) }
        #expect(starts == [true, false, false, true])
        let taken = outbox.take(.requests, atMost: 1)
        #expect(positions(taken) == [0])
        let isStarted = outbox.add(items[0], to: .requests)
        #expect(!isStarted, "it is in work")
        let lanes = outbox.finish(taken) { _ in .requests }
        #expect(lanes == [], "a thread works on its lane")
        let rest = outbox.take(.requests, atMost: 9)
        #expect(positions(rest) == [1, 0], "and is told of once more")
        let uploads = [outbox.take(.uploads, atMost: 1), outbox.take(.uploads, atMost: 1)]
        #expect(uploads.map(positions) == [[2], []])
    }

    @Test func unsentItemsAreSentInOrderAfterAPause() {
        var outbox = TaskOutbox<Item>()
        for item in items { _ = outbox.add(item, to: .requests) }
        let taken = outbox.take(.requests, atMost: 2)
        outbox.giveBack(taken, asLast: false)
        outbox.pause()
        let paused = outbox.take(.requests, atMost: 9)
        #expect(paused.isEmpty)
        let lanes = outbox.resume()
        #expect(lanes == [.requests])
        let all = outbox.take(.requests, atMost: 9)
        #expect(positions(all) == [0, 1, 2, 3])
    }

    @Test func anUploadThatFailedWaitsBehindTheOthers() {
        var outbox = TaskOutbox<Item>()
        _ = outbox.add(items[0], to: .uploads)
        let taken = outbox.take(.uploads, atMost: 1)
        outbox.giveBack(taken, asLast: true)
        #expect(outbox.hasFailedTasksOnly(.uploads))
        _ = outbox.add(items[1], to: .uploads)
        #expect(!outbox.hasFailedTasksOnly(.uploads))
        let both = outbox.take(.uploads, atMost: 2)
        #expect(positions(both) == [0, 1])
        #expect(!outbox.hasFailedTasksOnly(.uploads), "none can be taken")
    }

    @Test func aWaitEndsWithTheTasksThatWereAddedBeforeIt() {
        var outbox = TaskOutbox<Item>()
        for item in items[..<2] { _ = outbox.add(item, to: .requests) }
        let called = called
        outbox.wait(acceptsFailure: false) { called.add("first two") }
        _ = outbox.add(items[2], to: .uploads)
        outbox.wait(acceptsFailure: false) { called.add("all") }
        let one = outbox.take(.requests, atMost: 1)
        // Earlier waiters do not wait for a change that is made while its task is being sent.
        let position = outbox.takePosition()
        _ = outbox.add(items[0], to: .requests)
        outbox.wait(since: position, acceptsFailure: false) { called.add("the change") }
        _ = outbox.finish(one) { _ in .requests }
        #expect(call(&outbox) == [])
        let other = outbox.take(.requests, atMost: 1)
        _ = outbox.finish(other) { _ in .requests }
        #expect(call(&outbox) == ["first two"])
        let change = outbox.take(.requests, atMost: 1)
        _ = outbox.finish(change) { _ in .requests }
        #expect(call(&outbox) == ["the change"], "it does not wait for the upload")
        outbox.remove(items[2])
        #expect(call(&outbox) == ["all"])
        #expect(outbox.isEmpty)
    }

    @Test func aChangeOfATaskThatWaitsIsWaitedForToo() {
        var outbox = TaskOutbox<Item>()
        let called = called
        _ = outbox.add(items[0], to: .requests)
        let position = outbox.takePosition()
        _ = outbox.add(items[0], to: .requests)
        outbox.wait(since: position, acceptsFailure: false) { called.add("resumed") }
        let taken = outbox.take(.requests, atMost: 1)
        let next = outbox.takePosition()
        _ = outbox.add(items[0], to: .requests)
        outbox.wait(since: next, acceptsFailure: false) { called.add("changed") }
        outbox.giveBack(taken, asLast: false)
        #expect(call(&outbox) == [])
        let again = outbox.take(.requests, atMost: 1)
        _ = outbox.finish(again) { _ in .requests }
        #expect(call(&outbox) == ["resumed", "changed"])
    }

    @Test func aFailureEndsOnlyWaitsThatAcceptIt() {
        var outbox = TaskOutbox<Item>()
        _ = outbox.add(items[0], to: .requests)
        let called = called
        outbox.wait(acceptsFailure: false) { called.add("acknowledgement") }
        outbox.wait(acceptsFailure: true) { called.add("flush") }
        let taken = outbox.take(.requests, atMost: 1)
        outbox.giveBack(taken, asLast: false)
        outbox.fail()
        #expect(call(&outbox) == ["flush"])
        let again = outbox.take(.requests, atMost: 1)
        _ = outbox.finish(again) { _ in .requests }
        #expect(call(&outbox) == ["acknowledgement"])
    }

    @Test func aFailedTaskEndsNoWaitForAnotherTask() {
        var outbox = TaskOutbox<Item>()
        let called = called
        _ = outbox.add(items[0], to: .uploads)
        outbox.wait(acceptsFailure: true) { called.add("the upload") }
        _ = outbox.add(items[1], to: .requests)
        outbox.wait(acceptsFailure: true) { called.add("both") }
        outbox.wait(acceptsFailure: false) { called.add("told") }
        let upload = outbox.take(.uploads, atMost: 1)
        outbox.giveBack(upload, asLast: true)
        outbox.fail(upload)
        #expect(call(&outbox) == ["the upload"])
        let other = outbox.take(.requests, atMost: 1)
        _ = outbox.finish(other) { _ in .requests }
        #expect(call(&outbox) == ["both"])
        outbox.remove(items[0])
        #expect(call(&outbox) == ["told"])
        #expect(!outbox.hasFailedTasksOnly(.uploads))
    }

    @Test func theQueueReleasesEachCallAfterMakingIt() async throws {
        let delegateCalls = DelegateCallQueue(nil)
        let (gate, isOver) = (Gate(), Flag())
        weak var made: Item?
        do {
            let item = Item()
            made = item
            delegateCalls.add { _ = item }
        }
        delegateCalls.add { gate.wait() }
        for _ in 0..<200 { delegateCalls.add {} }
        delegateCalls.add { isOver.set() }
        try await poll { made == nil }
        gate.open()
        try await poll { isOver.isSet }
    }

    @Test func waitersAreCalledByOneThreadAtATime() {
        var outbox = TaskOutbox<Item>()
        let called = called
        outbox.wait(acceptsFailure: false) { called.add("first") }
        let first = outbox.takeDueWaiters(hasCalled: false)
        #expect(first.count == 1)
        outbox.wait(acceptsFailure: false) { called.add("second") }
        let meanwhile = outbox.takeDueWaiters(hasCalled: false)
        #expect(meanwhile.isEmpty, "it would overtake the first")
        let second = outbox.takeDueWaiters(hasCalled: true)
        #expect(second.count == 1)
    }
}
