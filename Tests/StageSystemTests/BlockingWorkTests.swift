import Glibc
import StageSystem
import StageTesting
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

    @Test func withoutAThreadTheWorkRunsOnTheCallingOne() async {
        await #expect(processExitsWith: .success) {
            // Starts the threads of tasks before the limit is set.
            await withDiscardingTaskGroup { group in
                for _ in 0..<8 { group.addTask { usleep(20_000) } }
            }
            // The limit does not apply to root's threads.
            if geteuid() == 0 { try #require(setuid(61_235) == 0) }
            let processes = __rlimit_resource_t(__RLIMIT_NPROC.rawValue)
            var limit = rlimit()
            try #require(unsafe getrlimit(processes, &limit) == 0)
            limit.rlim_cur = 1
            try #require(unsafe setrlimit(processes, &limit) == 0)
            try #require(await withBlockingThread { 7 } == 7)
            try #require(await withBlockingThread { 8 } == 8)
        }
    }

    private struct Progress {
        var started = 0
        var mayEnd = false
    }

    /// Each user has eight threads.
    @Test func workOfAUserLeavesThreadsForOtherUsers() async throws {
        let progress = ConditionVariable(Progress())
        let user: UInt32 = 61_236
        try await withThrowingDiscardingTaskGroup { group in
            for _ in 0..<300 {
                group.addTask {
                    await withBlockingThread(of: user) {
                        progress.change { $0.started += 1 }
                        progress.wait { $0.mayEnd ? () : nil }
                    }
                }
            }
            // The group waits for its tasks on each exit.
            defer { progress.change { $0.mayEnd = true } }
            try await poll("the work does not start") { progress.withValue { $0.started } == 8 }
            try await pollUntilUnchanged { progress.withValue { $0.started } }
            let count = progress.withValue { $0.started }
            #expect(count == 8)
            guard count == 8 else { return }
            let answers = await [withBlockingThread(of: user + 1) { 1 }, withBlockingThread { 2 }]
            #expect(answers == [1, 2])
        }
        let count = progress.withValue { $0.started }
        #expect(count == 300)
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
}
