import FoundationEssentials
import StageControl
import StageModel
import StageTesting
import Testing

@testable import StageDaemon

/// Downloads that start again at their first byte, or can never be complete.
@Suite(.directory, .daemon, .server)
struct LostBytesTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current

    init() throws { daemon = try .required() }

    private func download() async throws -> Int64 {
        let request = TransferRequest(token: "a", kind: .download, url: server.url("/a"))
        return try #require(try await daemon.client.createTasks([request], in: "s").first)
    }

    /// The server sends no entity tag, so each attempt begins at the first byte; some get further than the previous one.
    @Test func bytesThatWereLostAreNoProgress() async throws {
        try daemon.configure(#"{"retryBase": 0.02}"#)
        try await daemon.start()
        try await daemon.makeSession()
        let content = Answer.content(noise(4 << 20)).tagged(nil)
        let cuts = [content.cut(after: 2 << 20), content.cut(after: 3 << 20)]
        server.answer("/a", with: (0..<500).map { cuts[$0 % 2] })
        let id = try await download()
        // After one failure the delay is below a fiftieth of a second.
        try await poll("the delays do not grow") {
            try await daemon.client.task(id).pendingReasons.contains { hold in
                hold.kind == .backoff && hold.until.map { $0 > Date.now + 1 } ?? false
            }
        }
        // The test ends long before the server repeats its last response.
        #expect(server.requests.count < 50)
    }

    @Test func lostBytesDoNotResetTheNumberOfFailures() {
        var history = AttemptHistory()
        var failures: [Int] = []
        for received in [4, 5, 4, 5, 4, 6, 5] as [Int64] {
            var report = AttemptReport()
            report.received = .mebibytes(received)
            history.note(report)
            history.noteFailure(report)
            failures.append(history.failures)
        }
        #expect(failures == [1, 1, 2, 3, 4, 1, 2])
        #expect(history.highestReceived == .mebibytes(6))
    }

    @Test func contentThatIsLargerThanTheDiskIsNotWaitedFor() async throws {
        try await daemon.start()
        try await daemon.makeSession()
        let answer = Answer.content([1, 2, 3]).field("Content-Length", "4611686018427387904")
        server.answer("/a", with: answer)
        _ = try await download()
        let events = try await daemon.outcomes()
        let failure = try #require(events.first?.failure)
        #expect(failure.kind == .storage)
        #expect(failure.reason.contains("4611686018427387904 bytes"), "\(failure)")
    }
}
