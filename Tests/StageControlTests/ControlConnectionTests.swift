import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

@Suite(.directory)
struct ControlConnectionTests {
    /// The kernel treats a timeout of zero as none, so a fraction of a second must not be rounded to zero.
    @Test func aTimeoutBelowASecondIsKept() async throws {
        let path = try TemporaryDirectory.required().path.appending("socket").string
        let daemon = try SilentDaemon(at: path, .afterAccepting)
        defer { daemon.stop() }
        let timeout = Duration.milliseconds(900)
        let connection = try ControlConnection(path: path, timeout: timeout)
        // Ends a request that has no timeout.
        let end = Task {
            try await Task.sleep(for: .seconds(60))
            connection.close()
        }
        defer { end.cancel() }
        await #expect(throws: ControlError.lost(path, after: timeout)) {
            _ = try await withBlockingThread { () throws(ControlError) in
                try connection.answer(to: .status)
            }
        }
        let error = ControlError.lost("/socket", after: timeout)
        #expect("\(error)".hasSuffix("it sent nothing for 0.9 seconds"))
    }
}
