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
}
