import Glibc
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The process that guards a hook, when the run hangs or fails.
@Suite(.apart, .server, .directory)
struct HookGuardTests {
    /// Runs a hook whose pack does not arrive, and calls `body` once the run has begun to download it.
    private func hook(
        deadline: Double,
        _ more: String...,
        body: @escaping @Sendable (Program.Running) throws -> Void
    ) async throws -> (ending: Program.Ending, time: Duration) {
        var world = try World()
        let pack = try SamplePack.large(.aurora, version: 1, mebibytes: 8)
        try world.publish(pack)
        world.server.answer(pack.path, with: Answer.content(pack.archive).stalled(after: 2 << 20))
        let downloads = world.container.appending("downloads")
        let start = ContinuousClock.now
        let arguments = ["prefetch", "--hook", "--deadline", "\(deadline)"]
        let ending = try await world.program.run(arguments + more + world.source) { running in
            try await poll { partSize(below: downloads) > 1 << 20 }
            try body(running)
        }
        return (ending, ContinuousClock.now - start)
    }

    @Test func aRunThatStandsStillIsKilled() async throws {
        // The run must not end before it is stopped.
        let (ending, time) = try await hook(deadline: 15) { running in
            for child in try running.children() { kill(child, SIGSTOP) }
        }
        let line =
            "stagepack: installing essential packs, within 15 seconds\n"
            + "stagepack: hook: the run did not stop at its deadline and was killed; the next periodic run retries\n"
        #expect(ending == Program.Ending(status: 0, output: line, error: ""))
        #expect(time > .seconds(19))
        #expect(time < .seconds(60))
    }

    @Test(arguments: [SIGKILL, SIGILL]) func aRunThatDiesIsReported(
        _ signal: Int32
    ) async throws {
        let (ending, _) = try await hook(deadline: 60, "--strict") { running in
            for child in try running.children() { kill(child, signal) }
        }
        #expect(ending.status == 71)
        #expect(
            ending.output.hasPrefix(
                HookTests.start + "stagepack: hook: the run was ended by signal \(signal), as "
            )
        )
        #expect(ending.output.hasSuffix("; the next periodic run retries\n"))
        #expect(ending.output.split(separator: "\n").count == 2)
    }

    @Test(arguments: [SIGINT, SIGTERM]) func aSignalReachesTheRun(_ signal: Int32) async throws {
        let (ending, time) = try await hook(deadline: 60) { $0.send(signal) }
        let line =
            HookTests.start
            + "stagepack: packs: 0 staged, 1 missing: pack 'aurora': interrupted; the next periodic run retries\n"
        #expect(ending == Program.Ending(status: 0, output: line, error: ""))
        #expect(time < .seconds(50))
    }

    @Test func theRunEndsWithItsGuard() async throws {
        let (ending, _) = try await hook(deadline: 60) { $0.send(SIGKILL) }
        // The test would wait for the end of pipes that the run holds open.
        #expect(ending.status == Program.killed)
    }

    @Test func anInvalidCommandLineDoesNotFailAHook() async throws {
        let world = try World()
        let ending = try await world.program.run(["prefetch", "--hook", "--no-such-option"])
        #expect(ending.status == 0)
        #expect(ending.error.contains("Unknown option '--no-such-option'"))
        let strict = try await world.program.run([
            "prefetch", "--hook", "--strict", "--no-such-option",
        ])
        #expect(strict.status == 64)
    }
}
