import Glibc
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
