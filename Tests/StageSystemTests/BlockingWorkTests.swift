import StageSystem
import Testing

struct BlockingWorkTests {
    private final class Held: Sendable {}

    @Test func capturedValuesAreReleasedBeforeTheCallerContinues() async {
        for _ in 0..<20_000 {
            let isFree = await isFreeAfterWork()
            guard isFree else {
                Issue.record("the thread that ran the work still holds what it captured")
                return
            }
        }
    }

    private func isFreeAfterWork() async -> Bool {
        weak var left: Held?
        do {
            let held = Held()
            left = held
            await withBlockingThread { withExtendedLifetime(held) {} }
        }
        return left == nil
    }

    private enum Fault: Error, Equatable { case cancelled, failed }

    @Test func aCancelledTaskDoesNotWaitForWorkThatGoesOn() async {
        let (started, start) = AsyncStream.makeStream(of: Void.self)
        let mayEnd = ConditionVariable(false)
        let task = Task { () async throws -> Bool in
            try await withAbandonableThread(cancelled: Fault.cancelled) {
                cancellation throws(Fault) -> Bool in
                start.yield()
                // Does not look at the cancellation before the test has its result.
                mayEnd.wait { $0 ? () : nil }
                return cancellation.isRequested
            }
        }
        for await _ in started { break }
        task.cancel()
        let result = await task.result
        mayEnd.change { $0 = true }
        #expect(throws: Fault.cancelled) { _ = try result.get() }
    }

    @Test func workThatIsNotCancelledEndsAsItself() async throws {
        let five = try await withAbandonableThread(cancelled: Fault.cancelled) {
            _ throws(Fault) -> Int in 5
        }
        #expect(five == 5)
        await #expect(throws: Fault.failed) {
            try await withAbandonableThread(cancelled: Fault.cancelled) {
                _ throws(Fault) -> Int in throw .failed
            }
        }
    }

    @Test func workOfACancelledTaskHasNoResult() async {
        let task = Task { () async throws -> Int in
            while !Task.isCancelled { await Task.yield() }
            return try await withAbandonableThread(cancelled: Fault.cancelled) {
                _ throws(Fault) -> Int in 5
            }
        }
        task.cancel()
        let result = await task.result
        #expect(throws: Fault.cancelled) { _ = try result.get() }
    }
}
