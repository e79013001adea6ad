import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

@Suite(.directory, .timeLimit(.minutes(5)))
struct LockQueueTests {
    private let directory: Directory
    private let queue = LockQueue()

    init() throws { directory = try TemporaryDirectory.required() }

    private func lock() throws -> RetriedLock {
        RetriedLock(try directory.file(updating: "lock"))
    }

    @Test func requestsAreGrantedInTheirOrder() async throws {
        let order = Order()
        var held: RetriedLock? = try lock()
        #expect(try held?.attempt() == true)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 1...5 {
                let lock = try lock()
                group.addTask { [queue] in
                    if number.isMultiple(of: 2) {
                        try await withBlockingThread { () throws(FileError) in
                            let isHeld = try queue.block(for: lock, within: .seconds(200))
                            #expect(isHeld)
                            order.add(number)
                            extendLifetime(lock)
                        }
                    } else {
                        let isHeld = try await queue.wait(for: lock, within: .seconds(200))
                        #expect(isHeld)
                        order.add(number)
                        extendLifetime(lock)
                    }
                }
                try await poll("request \(number) does not wait") { queue.count == number }
            }
            held = nil
            try await group.waitForAll()
        }
        #expect(order.numbers == [1, 2, 3, 4, 5])
        #expect(queue.count == 0)
    }

    /// A request that has ended leaves the queue and releases the lock, although its thread still waits for it.
    @Test func aRequestThatEndsLeavesTheQueue() async throws {
        var held: RetriedLock? = try lock()
        #expect(try held?.attempt() == true)
        for limit in [Duration.milliseconds(1), .zero] {
            let isHeld = try await queue.wait(for: try lock(), within: limit)
            #expect(!isHeld)
        }
        let lock = try lock()
        let isHeld = try await withBlockingThread { [queue] () throws(FileError) in
            try queue.block(for: lock, within: .milliseconds(1))
        }
        #expect(!isHeld && queue.count == 0)
        let cancelled = Task { [queue] in try await queue.wait(for: lock, within: .seconds(200)) }
        try await poll("it does not wait") { queue.count == 1 }
        cancelled.cancel()
        await #expect(throws: CancellationError.self) { try await cancelled.value }
        #expect(queue.count == 0)
        held = nil
        let other = try self.lock()
        try await poll("a request that has ended holds the lock") { try other.attempt() }
    }

    /// The thread waits for the lock in the kernel when the request ends, and the owner still has the file open.
    @Test func aLockThatComesAfterItsRequestHasEndedIsReleased() async throws {
        var held: RetriedLock? = try lock()
        #expect(try held?.attempt() == true)
        let status = try #require(try directory.status("lock"))
        let late = try lock()
        let request = Task { [queue] in try await queue.wait(for: late, within: .seconds(200)) }
        try await poll("no thread waits for the lock") { try status.hasWaitingLockRequest() }
        request.cancel()
        await #expect(throws: CancellationError.self) { try await request.value }
        held = nil
        try await poll("the thread does not get the lock") {
            try !status.hasWaitingLockRequest()
        }
        let other = try lock()
        try await poll("a request that has ended keeps the lock") { try other.attempt() }
        extendLifetime(late)
    }

    @Test func aReleasedLockIsFreeWhileThereAreReferencesToIt() async throws {
        let lock = try lock()
        let isHeld = try await queue.wait(for: lock, within: .seconds(200))
        #expect(isHeld)
        lock.release()
        let other = try self.lock()
        #expect(try other.attempt())
        extendLifetime(lock)
    }

    private final class Order: Sendable {
        private let all = Mutex<[Int]>([])
        var numbers: [Int] { all.withLock(\.self) }
        func add(_ number: Int) { all.withLock { $0.append(number) } }
    }
}
