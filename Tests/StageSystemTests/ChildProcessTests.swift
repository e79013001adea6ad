import Glibc
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Child processes that one thread waits for while another one kills them.
@Suite(.directory)
struct ChildProcessTests {
    @Test func aProcessThatAThreadWaitsForCanBeKilled() async throws {
        let program = try TemporaryDirectory.required().path.appending("program")
        try ProgramFile.write("#!/bin/sh\nexec sleep 1000\n", to: program)
        let (ours, theirs) = try MessageSocket.pair()
        let child = try ChildProcess(
            executable: program,
            arguments: ["program"],
            channel: theirs
        )
        let hasBegun = Mutex(false)
        let wait = Task {
            await withBlockingThread {
                hasBegun.withLock { $0 = true }
                return child.waitForEnd()
            }
        }
        try await poll { hasBegun.withLock { $0 } }
        #expect(child.waitForEnd(within: .milliseconds(10)) == nil)
        child.kill()
        #expect(await wait.value == .signalled(Int(SIGKILL)))
        #expect(child.waitForEnd() == .signalled(Int(SIGKILL)))
        withExtendedLifetime(ours) {}
    }
}
