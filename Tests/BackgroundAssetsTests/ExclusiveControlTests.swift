import Foundation
import StageExtension
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import BackgroundAssets

/// Exclusive control of a group, in a shared directory of the test.
@Suite(.directory) struct ExclusiveControlTests {
    private func manager() throws -> BADownloadManager {
        let root = try TemporaryDirectory.required().path
        let request = ExtensionRequest(
            .install,
            application: ApplicationID(unchecked: "com.example.aurora"),
            applicationVersion: "1",
            applicationGroup: ApplicationGroupID(unchecked: World.group),
            manifest: root.appending("manifest.json"),
            container: root,
            scratch: root.appending("scratch")
        )
        return BADownloadManager(environment: [:]) { request }
    }

    @Test func oneAtATimeIsInControl() async throws {
        let (one, other) = (try manager(), try manager())
        let never = Date(timeIntervalSinceReferenceDate: .infinity)
        try await other.withExclusiveControl(before: never) {}
        let value = try await one.withExclusiveControl {
            let error = await #expect(throws: BAError.self) {
                try await other.withExclusiveControl(before: .now) {
                    Issue.record("two are in control")
                }
            }
            // A program must not mistake this error for a download that is scheduled already.
            #expect(error?.errorCode == BAError.exclusiveControlNotAcquired && error?.code == nil)
            other.withExclusiveControl(beforeDate: .now) { isHeld, refusal in
                #expect(!isHeld && refusal as? BAError == error)
            }
            return 7
        }
        #expect(value == 7)
        #expect(try await other.withExclusiveControl(before: .distantFuture) { 8 } == 8)
        other.withExclusiveControl { isHeld, error in #expect(isHeld && error == nil) }
    }

    @Test func aTaskThatWaitsIsTheNextOrIsCancelled() async throws {
        let (one, other) = (try manager(), try manager())
        let next = try await one.withExclusiveControl {
            let cancelled = Task { try await other.withExclusiveControl { 1 } }
            cancelled.cancel()
            await #expect(throws: CancellationError.self) { try await cancelled.value }
            return Task { try await other.withExclusiveControl { 2 } }
        }
        #expect(try await next.value == 2)
    }

    /// Periodic attempts would never hit the moment between two calls of the other process.
    @Test(.timeLimit(.minutes(5)))
    func aProcessThatTakesControlAgainAndAgainLeavesOthersTheirTurn() async throws {
        let (one, other) = (try manager(), try manager())
        let (starts, start) = AsyncStream.makeStream(of: Void.self)
        let greedy = Task {
            while !Task.isCancelled {
                try await one.withExclusiveControl {
                    start.yield()
                    try await Task.sleep(for: .milliseconds(30))
                }
            }
        }
        defer { greedy.cancel() }
        for await _ in starts { break }
        #expect(try await other.withExclusiveControl { 2 } == 2)
        await withBlockingThread {
            other.withExclusiveControl { isHeld, error in #expect(isHeld && error == nil) }
        }
    }

    /// The thread that waits for the lock, and the time limit of the call, may have a reference to the lock for longer.
    @Test func controlThatACallHasWaitedForEndsWithTheCall() async throws {
        let (one, other) = (try manager(), try manager())
        let root = try TemporaryDirectory.required()
        for _ in 0..<100 {
            let next = try await one.withExclusiveControl {
                let next = Task { try await other.withExclusiveControl { 1 } }
                try await poll("the other call does not wait") {
                    try root.status(".BADownloadManager.lock")?.hasWaitingLockRequest() ?? false
                }
                return next
            }
            #expect(try await next.value == 1)
            #expect(try await one.withExclusiveControl(before: .now) { 2 } == 2)
        }
    }

    @Test func anErrorEndsTheControl() async throws {
        let (one, other) = (try manager(), try manager())
        await #expect(throws: CancellationError.self) {
            try await one.withExclusiveControl { throw CancellationError() }
        }
        #expect(try await other.withExclusiveControl(before: .now) { 8 } == 8)
    }
}
