import Foundation
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Uploads that resume at the server's offset, after the connection broke or the daemon was killed.
@Suite(.directory, .daemon)
struct ResumedUploadTests {
    private let daemon: DaemonProcess
    private let server: UploadServer
    private static let size = 48 << 20 + 1

    init() throws {
        daemon = try .required()
        server = try UploadServer()
    }

    private func start(_ uploadProtocol: String?, retryBase: Double = 0.05) async throws {
        try daemon.configure(#"{"retryBase": \#(retryBase)}"#)
        try await daemon.start()
        try await daemon.makeSession { $0.uploadProtocol = uploadProtocol }
    }

    private func upload(
        _ content: [UInt8],
        _ change: (inout TransferRequest) -> Void = { _ in }
    ) async throws -> Int64 {
        let directory = try TemporaryDirectory.required()
        try directory.write(content, to: "file", durably: false)
        var request = TransferRequest(token: "u", kind: .upload, url: server.url("/in"))
        request.file = directory.path.appending("file").string
        change(&request)
        return try #require(try await daemon.client.createTasks([request], in: "s").first)
    }

    /// Waits until a task is in its retry delay, and the server has some bytes of its body.
    private func waitForCut(of id: Int64) async throws -> TransferTask {
        try await poll("the task is not put off") {
            try await daemon.client.task(id).pendingReasons.map(\.kind) == [.backoff]
        }
        return try await daemon.client.task(id)
    }

    /// Reads or changes the journal.
    private func journal(_ statement: String) async throws -> String {
        let script = """
            import sqlite3, sys
            with sqlite3.connect(sys.argv[1]) as journal: print(journal.execute(sys.argv[2]).fetchall())
            """
        let journal = daemon.state.appending("journal.sqlite").string
        let command = ["/usr/bin/python3", "-c", script, journal, statement]
        return try await Peer(daemon).run(as: geteuid(), getegid(), command)
    }

    private func expectFinished(
        _ content: [UInt8],
        at location: SourceLocation = #_sourceLocation
    ) {
        let isEqual = server.finished == [content]
        #expect(isEqual, sourceLocation: location)
        let rate = Double(server.received) / Double(content.count)
        #expect(rate <= 1.05, sourceLocation: location)
    }

    @Test(arguments: ["resumable", "tus"], ["POST", "PUT"])
    func anUploadThatIsCutContinues(uploadProtocol: String, method: String) async throws {
        try await start(uploadProtocol)
        let content = noise(Self.size)
        // In this test, a part of a tus upload has one mebibyte.
        let step = uploadProtocol == "tus" ? 500_000 : Self.size / 6
        server.cut(after: step, 0, step, 1, step, step)
        let id = try await upload(content) { $0.method = method }
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(events.first?.response?.status == (uploadProtocol == "tus" ? 204 : 201))
        #expect(events.first?.bytesSent == ByteCount(Self.size))
        expectFinished(content)
        #expect(try daemon.names(in: "snapshots") == [])
    }

    /// All parts of an upload together are one attempt.
    @Test func partsAreNoAttempts() async throws {
        try await start("tus")
        let id = try await upload(noise(Self.size))
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(server.methods.filter { $0 == "PATCH" }.count == 49)
        #expect(events.first?.metrics?.attempts == 1)
        #expect(try await daemon.client.task(id).attempts <= 1)
    }

    @Test(arguments: ["resumable", "tus"], [SIGKILL, SIGTERM])
    func theNextDaemonContinues(uploadProtocol: String, signal: Int32) async throws {
        try await start(uploadProtocol, retryBase: 3600)
        let content = noise(Self.size)
        server.cut(after: uploadProtocol == "tus" ? 500_000 : Self.size / 2)
        let id = try await upload(content)
        #expect(try await waitForCut(of: id).bytesSent > .zero)
        try await daemon.kill(signal)
        try await daemon.start()
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(events.first?.bytesSent == ByteCount(Self.size))
        let expected =
            uploadProtocol == "tus"
            ? ["POST", "PATCH", "HEAD", "PATCH"] : ["POST", "HEAD", "PATCH"]
        #expect(server.methods.starts(with: expected))
        expectFinished(content)
    }

    /// The daemon is killed while it sends, several times, and not while it waits.
    @Test(arguments: ["resumable", "tus"])
    func aDaemonThatIsKilledWhileItSendsLosesLittle(uploadProtocol: String) async throws {
        try await start(uploadProtocol)
        let content = noise(Self.size)
        server.slowDown()
        let id = try await upload(content)
        for part in 1...4 {
            try await poll("the upload gets no further") {
                server.received > part * Self.size / 6
            }
            try await daemon.kill()
            try await daemon.start()
        }
        server.slowDown(false)
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        expectFinished(content)
        #expect(server.methods.filter { $0 == "POST" }.count == 1)
    }

    @Test(arguments: ["resumable", "tus"])
    func theNextDaemonAsksForALostAnswer(uploadProtocol: String) async throws {
        try await start(uploadProtocol, retryBase: 3600)
        let content = noise(1 << 20)
        server.loseAnswers(1)
        let id = try await upload(content)
        _ = try await waitForCut(of: id)
        try await daemon.kill()
        try await daemon.start()
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(events.first?.response?.status == (uploadProtocol == "tus" ? 200 : 204))
        expectFinished(content)
    }

    /// A server that has lost the state of an upload may have processed it before.
    @Test func anUploadThatMayBeCompleteIsNotRepeatedByTheNextDaemon() async throws {
        try await start("resumable", retryBase: 3600)
        server.loseAnswers(1)
        let id = try await upload(noise(1 << 20))
        _ = try await waitForCut(of: id)
        try await daemon.kill()
        server.replace { $0.method == "HEAD" ? "HTTP/1.1 404 Gone\r\n\r\n" : nil }
        try await daemon.start()
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 failed of \(id)"])
        #expect(events.first?.failure?.reason.contains("may have acted on") == true)
        #expect(server.methods == ["POST", "HEAD"])
    }

    /// A server may abort an upload when its connection ends, so an upload that was sent completely waits for its response.
    @Test(arguments: ["resumable", "tus"])
    func anUploadThatWasSentCompletelyWaitsForItsResponse(uploadProtocol: String) async throws {
        try await start(uploadProtocol)
        let content = noise(1 << 20)
        server.holdAnswers()
        defer { server.holdAnswers(false) }
        let id = try await upload(content)
        try await poll("the server has no body") { server.finished.count == 1 }
        try await daemon.change(id, to: .suspended)
        try await Task.sleep(for: .milliseconds(300))
        server.holdAnswers(false)
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(events.first?.response?.status == (uploadProtocol == "tus" ? 204 : 201))
        #expect(server.methods == ["POST"] + (uploadProtocol == "tus" ? ["PATCH"] : []))
    }

    /// A client may change the protocol of its session at any time.
    @Test(arguments: ["plain", "tus"])
    func anotherProtocolSendsNothingTwice(uploadProtocol: String) async throws {
        try await start("resumable", retryBase: 3600)
        server.loseAnswers(1)
        let content = noise(1 << 20)
        let id = try await upload(content)
        _ = try await waitForCut(of: id)
        try await daemon.makeSession { $0.uploadProtocol = uploadProtocol }
        try await daemon.kill()
        try await daemon.start()
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(server.methods == ["POST", "HEAD"])
        expectFinished(content)
    }

    /// The journal's record of the resource cannot be read any more.
    @Test(arguments: ["POST", "PUT"])
    func aDamagedResourceIsTakenForOneThatMayBeComplete(method: String) async throws {
        try await start("resumable", retryBase: 3600)
        server.cut(after: 1 << 20)
        let id = try await upload(noise(Self.size)) { $0.method = method }
        _ = try await waitForCut(of: id)
        try await daemon.kill()
        _ = try await journal("UPDATE task SET upload = X'7B7D'")
        try await daemon.start()
        let events = try await daemon.outcomes()
        if method == "PUT" {
            #expect(events.map(\.gist) == ["1 completed of \(id)"])
            return #expect(server.methods == ["PUT", "PUT"])
        }
        #expect(events.map(\.gist) == ["1 failed of \(id)"])
        #expect(events.first?.failure?.reason.contains("may have acted on") == true)
        #expect(server.methods == ["POST"])
    }

    /// A credential for a challenge belongs to another request than the one that received the challenge.
    @Test func aChallengeRestartsTheUpload() async throws {
        try daemon.configure(#"{"retryBase": 0.05}"#)
        try await daemon.start()
        try await daemon.makeSession { session in
            (session.uploadProtocol, session.answersChallenges) = ("resumable", true)
        }
        server.challenge()
        let content = noise(1 << 20)
        let id = try await upload(content)
        try await poll("there is no challenge") {
            try await daemon.client.task(id).pendingReasons.map(\.kind) == [.authentication]
        }
        var change = TransferChange()
        change.authorization = "Basic dTpw"
        try await daemon.client.change(id, by: change)
        let events = try await daemon.outcomes()
        #expect(events.last { $0.sequence != nil }?.kind == .completed)
        #expect(server.methods == ["POST", "POST"])
    }

    /// A permanently overloaded server does not justify waiting for a week.
    @Test func aServerThatTellsNoOffsetIsGivenUp() async throws {
        try await start("resumable")
        server.cut(after: 1 << 20)
        server.replace {
            $0.method == "HEAD" ? "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n" : nil
        }
        let id = try await upload(noise(Self.size))
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(events.first?.response?.status == 503)
        #expect(events.first?.response?.url == server.url("/in"))
        #expect(server.methods == ["POST"] + Array(repeating: "HEAD", count: 6))
        // The URL of the resource is not needed any more.
        #expect(try await journal("SELECT upload FROM task").contains("[(None,)]"))
    }

    /// A server may take a while to notice that a request broke off, but not for ever.
    @Test func anUploadThatStaysLockedIsGivenUp() async throws {
        try await start("tus", retryBase: 0.002)
        server.cut(after: 500_000)
        server.replace {
            $0.method == "HEAD" ? "HTTP/1.1 423 Locked\r\nContent-Length: 0\r\n\r\n" : nil
        }
        let id = try await upload(noise(2 << 20))
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(events.first?.response?.status == 423)
        #expect(server.methods == ["POST", "PATCH"] + Array(repeating: "HEAD", count: 11))
    }

    @Test func aLockedUploadSaysSo() async throws {
        try await start("tus", retryBase: 3600)
        server.replace {
            $0.method == "PATCH" ? "HTTP/1.1 423 Locked\r\nContent-Length: 0\r\n\r\n" : nil
        }
        let id = try await upload(noise(1000))
        let problem = try await waitForCut(of: id).lastProblem
        #expect(problem?.contains("is locked by another request") == true)
    }

    // MARK: cancelling

    private func cancel(_ id: Int64) async throws {
        try await daemon.change(id, to: .cancelled)
    }

    @Test(arguments: ["resumable", "tus"], [false, true])
    func aCancelledUploadIsDeletedAtTheServer(
        uploadProtocol: String,
        isWaiting: Bool
    ) async throws {
        try await start(uploadProtocol, retryBase: 3600)
        if isWaiting {
            server.cut(after: 500_000)
        } else {
            server.slowDown(milliseconds: 100)
        }
        let id = try await upload(noise(Self.size)) { $0.headers = ["Authorization": "x"] }
        if isWaiting {
            _ = try await waitForCut(of: id)
        } else {
            try await poll("nothing is sent") { server.received > 0 }
        }
        #expect(server.unfinished == 1)
        try await cancel(id)
        #expect(try await daemon.outcomes().map(\.gist) == ["1 cancelled of \(id)"])
        try await poll("the resource stays") { server.unfinished == 0 }
        let head = try #require(server.requests.last)
        #expect(head.method == "DELETE" && head["authorization"] == "x")
        #expect(server.methods.filter { $0 == "DELETE" }.count == 1)
    }

    @Test func theUploadsOfASessionThatIsRemovedAreDeletedAtTheServer() async throws {
        try await start("resumable", retryBase: 3600)
        server.cut(after: 500_000)
        let id = try await upload(noise(Self.size))
        _ = try await waitForCut(of: id)
        try await daemon.client.removeSession("s")
        try await poll("the resource stays") { server.unfinished == 0 }
    }

    /// The task ends even if the server does not respond.
    @Test func aServerThatIsSilentDelaysNoCancellation() async throws {
        try await start("resumable", retryBase: 3600)
        server.cut(after: 500_000)
        let gate = Gate()
        defer { gate.open() }
        server.replace { head in
            if head.method == "DELETE" { gate.wait() }
            return nil
        }
        let id = try await upload(noise(Self.size))
        _ = try await waitForCut(of: id)
        try await cancel(id)
        #expect(try await daemon.client.task(id).state == .cancelled)
        #expect(try await daemon.outcomes().map(\.gist) == ["1 cancelled of \(id)"])
        try await poll("no deletion") { server.methods.last == "DELETE" }
        #expect(server.unfinished == 1)
        // The end of the daemon does not send one, either.
        #expect(try await daemon.kill(SIGTERM) == 0)
    }

    @Test func aSessionThatDoesNotSaySoResumesNothing() async throws {
        try await start(nil)
        server.cut(after: 1 << 20)
        let content = noise(Self.size)
        let id = try await upload(content)
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(server.methods == ["POST", "POST"])
        #expect(server.requests.allSatisfy { $0["upload-complete"] == nil })
    }

    @Test func anotherProtocolIsRefused() async throws {
        try await daemon.start()
        await #expect(throws: (any Error).self) {
            try await daemon.makeSession { $0.uploadProtocol = "ftp" }
        }
    }
}
