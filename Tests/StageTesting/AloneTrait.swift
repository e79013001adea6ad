import Synchronization
package import Testing

/// Runs tests one after the other.
///
/// This is for tests that measure time, or that use a resource that others need, such as all processes of a user: in parallel with
/// others, they would measure the load of the machine, or disturb them. `make test` runs these tests after all others
/// (`Scripts/tests-with` finds them by this trait). A plain `swift test` runs one of them at a time.
package struct AloneTrait: TestTrait, SuiteTrait, TestScoping {
    /// The tests of a suite inherit the trait.
    package let isRecursive = true

    /// Waits for running tests with this trait, and runs the test.
    package func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @concurrent @Sendable () async throws -> Void
    ) async throws {
        guard testCase != nil else { return try await function() }
        await Turns.shared.begin()
        defer { Turns.shared.end() }
        try await function()
    }
}

extension Trait where Self == AloneTrait {
    /// Runs no other test with this trait at the same time.
    package static var alone: Self { Self() }
}

/// A queue of tests, of which one runs at a time.
private final class Turns: Sendable {
    static let shared = Turns()

    private struct State {
        var isTaken = false
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    private let state = Mutex(State())

    func begin() async {
        await withCheckedContinuation { continuation in
            let isFree = state.withLock { state in
                if state.isTaken { state.waiting.append(continuation) }
                defer { state.isTaken = true }
                return !state.isTaken
            }
            if isFree { continuation.resume() }
        }
    }

    func end() {
        let next = state.withLock { state -> CheckedContinuation<Void, Never>? in
            guard state.waiting.isEmpty else { return state.waiting.removeFirst() }
            state.isTaken = false
            return nil
        }
        next?.resume()
    }
}
