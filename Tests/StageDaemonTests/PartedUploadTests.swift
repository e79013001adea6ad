import Foundation
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Uploads in presigned parts, by the daemon.
@Suite(.directory, .daemon)
struct MultipartUploadTests {
    private let daemon: DaemonProcess
    private let server: PartServer
    private static let size = 16 << 20 + 1
    private static let part = 128 << 10

    init() throws {
        daemon = try .required()
        server = try PartServer()
    }

    private func start(retryBase: Double = 0.01) async throws {
        try daemon.configure(#"{"retryBase": \#(retryBase)}"#)
        try await daemon.start()
        try await daemon.makeSession { $0.uploadProtocol = "resumable" }
    }

    private func request() -> TransferRequest {
        var request = TransferRequest(token: "u", kind: .upload, url: server.url("/object"))
        request.parts = server.targets(for: Self.size, part: Self.part)
        return request
    }

    private func upload(
        _ content: [UInt8],
        _ change: (inout TransferRequest) -> Void = { _ in }
    ) async throws -> Int64 {
        let directory = try TemporaryDirectory.required()
        try directory.write(content, to: "file", durably: false)
        var request = request()
        request.file = directory.path.appending("file").string
        change(&request)
        return try #require(try await daemon.client.createTasks([request], in: "s").first)
    }

    private func expectObject(_ content: [UInt8], at location: SourceLocation = #_sourceLocation) {
        let isEqual = server.object == content
        #expect(isEqual, sourceLocation: location)
        #expect(server.faults == [], sourceLocation: location)
        let rate = Double(server.received) / Double(content.count)
        #expect(rate <= 1.05, sourceLocation: location)
    }

    @Test(arguments: [1, 2] as [UInt64])
    func partsThatAreCutAreSentAgain(seed: UInt64) async throws {
        try await start()
        var numbers = SeededGenerator(seed: seed)
        server.cut(after: (1...5).map { _ in Int.random(in: 0..<Self.part, using: &numbers) })
        let content = noise(Self.size)
        let id = try await upload(content)
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        #expect(events.first?.response?.status == 200)
        #expect(events.first?.response?.url == server.url("/object"))
        #expect(events.first?.bytesSent == ByteCount(Self.size))
        expectObject(content)
        #expect(server.order == Array(1...129))
        #expect(try daemon.names(in: "snapshots") == [])
    }

    /// The daemon is killed while it sends, and resumes with the first part that was not acknowledged.
    @Test func aDaemonThatIsKilledContinues() async throws {
        try await start()
        let content = noise(Self.size)
        server.slowDown(milliseconds: 50)
        let id = try await upload(content)
        var received = 0
        for round in 1...4 {
            try await poll("the upload gets no further") {
                server.received > round * Self.size / 6
            }
            try await daemon.kill()
            received = server.received
            try await daemon.start()
        }
        server.slowDown(milliseconds: 0)
        let events = try await daemon.outcomes()
        #expect(events.map(\.gist) == ["1 completed of \(id)"])
        expectObject(content)
        // If the daemon is killed after the last part, it may have sent the completion, but not received its response.
        let completions = server.methods.filter { $0 == "POST" }.count
        #expect(completions == 1 || received >= Self.size)
    }

    /// The application is killed, and so are its later processes that see the upload; the file is deleted by then.
    @Test func anApplicationThatIsKilledIsNotMissed() async throws {
        try daemon.configure(#"{"retryBase": 0.01}"#)
        try await daemon.start()
        let directory = try TemporaryDirectory.required()
        let content = noise(Self.size)
        try directory.write(content, to: "file", durably: false)
        // The upload does not end before the test kills the application.
        server.slowDown(milliseconds: 20, withLongPausesAfter: Self.size / 6)
        let file = directory.path.appending("file").string
        var application = try application("begin", file, "\(Self.part)", server.url(""))
        try await poll("the upload is not stored") { try said().contains("stored\n") }
        try directory.remove("file")
        for round in 1...3 {
            try await poll("the upload gets no further") {
                server.received > round * Self.size / 6
            }
            application.send(SIGKILL)
            #expect(application.end() == 1000 + SIGKILL)
            #expect(server.object == nil)
            application = try self.application("watch")
            let found = String(repeating: "found 1\n", count: round)
            try await poll("the upload is not found") { try said() == "stored\n" + found }
            server.slowDown(milliseconds: 20, withLongPausesAfter: (round + 1) * Self.size / 6)
        }
        server.slowDown(milliseconds: 0)
        try await poll("the application does not end") { application.status != nil }
        #expect(application.status == 0)
        let end = "completed well, status 200\n"
        #expect(try said() == "stored\nfound 1\nfound 1\nfound 1\n" + end)
        expectObject(content)
        #expect(server.order == Array(1...129))
        #expect(server.methods.filter { $0 == "POST" }.count == 1)
        #expect(try daemon.names(in: "snapshots") == [])
    }

    private var log: FilePath { daemon.directory.appending("application.log") }

    /// Output of all processes of the application, without the warning that others could replace its program, which depends on the folder of
    /// the build.
    private func said() throws -> String {
        guard FileStatus.exists(log) else { return "" }
        let text = String(
            decoding: try File.open(reading: log).readAll(limit: 1 << 20),
            as: UTF8.self
        )
        return text.split(separator: "\n").filter { !$0.contains(" stage-session") }
            .map { "\($0)\n" }.joined()
    }

    private func application(_ arguments: String...) throws -> StartedProcess {
        let program = try BuiltProgram.path(ofTestProgram: "presigned-upload-client").string
        return try StartedProcess([program, daemon.socket.string] + arguments, log: log)
    }

    @Test func aCancelledUploadIsAborted() async throws {
        try await start()
        let gate = Gate()
        defer { gate.open() }
        server.replace { head in
            if head.target.contains("number=2&") { gate.wait() }
            return nil
        }
        let id = try await upload(noise(Self.size)) { $0.headers = ["Authorization": "x"] }
        try await poll("the first part is not sent") { server.order == [1] }
        try await daemon.change(id, to: .cancelled)
        #expect(try await daemon.outcomes().map(\.gist) == ["1 cancelled of \(id)"])
        try await poll("the parts stay") { server.isAborted }
        #expect(server.requests.last?["authorization"] == "x")
    }

    /// A URL alone grants access.
    @Test func theURLsAreReportedToNoClient() async throws {
        try await start(retryBase: 3600)
        server.replace { _ in "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n" }
        let id = try await upload(noise(Self.size))
        try await daemon.wait(for: [.backoff], of: id)
        let task = try await daemon.client.task(id)
        #expect(task.request.parts == nil && task.request.url == server.url("/object"))
        #expect(task.lastProblem?.contains("503") == true)
        #expect(!"\(task)".contains("secret"))
    }

    @Test func invalidPartsAreRefused() async throws {
        try await start()
        let content = noise(Self.size)
        let changes: [@Sendable (inout TransferRequest) -> Void] = [
            { $0.parts?.parts = [] },
            { $0.parts?.parts[0].size = .zero },
            { $0.parts?.parts[0].size = ByteCount(Self.part - 1) },
            { $0.parts?.parts[0].url = "file:///etc/passwd" },
            { $0.parts?.completionURL = "http://localhost/complete" },
            { $0.parts?.abortURL = "http://localhost/abort" },
            { $0.method = "PUT" },
            {
                $0.allowedDomains = ["a.example", "127.0.0.1"]
                $0.parts?.parts[0].url = "http://b.example/"
            },
            { request in
                request.parts?.parts = Array(
                    repeating: UploadParts.Part(url: "http://a/", size: ByteCount(1)),
                    count: 1001
                )
            },
        ]
        for (index, change) in changes.enumerated() {
            let error = await #expect(throws: ControlError.self, "change \(index)") {
                _ = try await upload(content) { request in
                    request.token = "u\(index)"
                    change(&request)
                }
            }
            guard case .refused(let refusal) = error else {
                Issue.record("expected a refusal of \(index)")
                continue
            }
            #expect(refusal.code == .invalid)
        }
        #expect(try daemon.names(in: "snapshots") == [])
        #expect(server.methods == [])
    }
}
