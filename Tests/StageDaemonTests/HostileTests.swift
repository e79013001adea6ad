import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import Synchronization
import SystemPackage
import Testing

/// Hostile clients, byte by byte: each is refused or disconnected, and other clients are served.
@Suite(.directory, .daemon, .server)
struct HostileTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current
    private let process: Int

    init() async throws {
        daemon = try .required()
        try daemon.configure(
            #"{"settlingTime": 0, "connections": 64, "connectionsPerHost": 64, "bytesPerUser": 1000000}"#
        )
        try await daemon.start()
        try await daemon.makeSession()
        process = try await daemon.client.status().process
    }

    /// Sends bytes, and returns the status of the response; `nil` if the daemon only closed the
    /// connection.
    private func status(of bytes: [UInt8]) async throws -> Int? {
        let client = try UnixSocket.connect(to: daemon.socket)
        // The limit exceeds the daemon's timeout for a silent client, but not the time of comparing long texts.
        let isLate = Mutex(false)
        let timeout = Task {
            try await Task.sleep(for: .seconds(90))
            isLate.withLock { $0 = true }
            client.shutDown()
        }
        defer { timeout.cancel() }
        let status: Int? = await withBlockingThread {
            // The daemon may refuse a request before it has read all of it.
            _ = try? client.send(bytes)
            var answer: [UInt8] = []
            while answer.count < 12, let more = try? client.receive(), !more.isEmpty {
                answer += more
            }
            client.shutDown()
            return Int(String(decoding: answer.prefix(12).suffix(3), as: UTF8.self))
        }
        let hasAnswered = !isLate.withLock { $0 }
        try #require(hasAnswered, "the daemon neither answers nor closes the connection")
        return status
    }

    private func request(_ head: String, _ body: String = "") -> [UInt8] {
        let length = body.isEmpty ? "" : "Content-Length: \(body.utf8.count)\r\n"
        return Array(
            "\(head) HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\(length)\r\n\(body)".utf8
        )
    }

    /// Expects that the daemon still runs, as the same process, and created nothing.
    private func expectNothingHappened() async throws {
        #expect(try await daemon.client.status().process == process)
        #expect(try await daemon.client.sessions().map(\.identifier) == ["s"])
        #expect(try await daemon.client.tasks() == [])
        #expect(try daemon.names(in: "parts") + daemon.names(in: "snapshots") == [])
        #expect(server.requests.isEmpty)
    }

    private static func task(_ more: String) -> String {
        #"{"tasks": [{"token": "t", "kind": "download", "url": "http://127.0.0.1:1/"\#(more)}]}"#
    }

    /// `long` exceeds the limit of a single text, and `many` that of all strings of a handler.
    private static let long = String(repeating: "x", count: 4097)
    private static let marks =
        String(repeating: "\u{301}", count: 200_000) + String(repeating: "\u{316}", count: 200_000)
    private static let escapedMarks = String(repeating: "%CC%81", count: 1000)
    private static let many = String(repeating: "x", count: 33_000)

    private static func fields(_ count: Int) -> String {
        (0..<count).map { #""A\#($0)": "b""# }.joined(separator: ", ")
    }

    private static func handler(_ more: String) -> String {
        #"{"handler": {"command": ["/bin/true"]\#(more)}}"#
    }

    private static func tasks(_ count: Int) -> String {
        (0..<count).map { #"{"token": "\#($0)", "kind": "download", "url": "http://a/"}"# }
            .joined(separator: ",")
    }

    private static let create = "POST /v1/sessions/s/tasks"
    private static let huge = String(repeating: "9", count: 400)

    static let requests: [(head: String, body: String, status: Int)] = [
        // Bodies
        (create, #"{"tasks": [{"token": "t", "kind": "down"#, 400),
        (create, "", 400), (create, "[]", 400), (create, "null", 400), (create, "{}", 400),
        (create, #"{"tasks": 3}"#, 400), (create, #"{"tasks": [{}]}"#, 400),
        (create, #"{"tasks": [{"token": 1, "kind": "download", "url": "http://a/"}]}"#, 400),
        (create, String(repeating: "[", count: 100_000), 400),
        // Comparing these names would take minutes.
        (create, #"{"a\#(marks)": 1, "tasks": []}"#, 400),
        ("PUT /v1/sessions/x", #"{"a\#(marks)": 1}"#, 400),
        (create, task(#", "size": -1"#), 400), (create, task(#", "size": \#(huge)"#), 400),
        (create, task(#", "size": 1e999"#), 400), (create, task(#", "size": "1""#), 400),
        (create, task(#", "priority": -0.1"#), 422), (create, task(#", "priority": 1e300"#), 422),
        (create, task(#", "earliestBegin": "yesterday""#), 400),
        (create, task(#", "sha256": "abc""#), 422), (create, task(#", "method": "G E T""#), 422),
        // 64 bytes, of which one digit is not of ASCII.
        (create, task(#", "sha256": "１\#(String(repeating: "a", count: 61))""#), 422),
        (create, task(#", "headers": {"A": "b\r\nC: d"}"#), 422),
        (create, task(#", "headers": {"A\u0000": "b"}"#), 422),
        (create, task(#", "headers": {"Host": "b"}"#), 422),
        (create, task(#", "headers": {"a(b": "c"}"#), 422),
        (create, task(#", "headers": {"Authorization": "(not shown)"}"#), 422),
        (create, task(#", "file": "/etc/passwd""#), 422),
        (create, task(#", "mirrors": ["http://a/"]"#), 422),
        (create, task(#", "resumeToken": "r-x""#), 422),
        (create, task(#", "size": 9000000000000000000"#), 429),
        (
            create,
            #"{"tasks": ["#
                + (1...2).map {
                    #"{"token": "\#($0)", "kind": "download", "url": "http://127.0.0.1:1/", "#
                        + #""size": 9000000000000000000}"#
                }
                .joined(separator: ",") + "]}",
            429
        ),
        (create, #"{"tasks": [{"token": "", "kind": "download", "url": "http://a/"}]}"#, 422),
        (create, #"{"tasks": [{"token": "t", "kind": "download", "url": "file:///x"}]}"#, 422),
        (create, #"{"tasks": [{"token": "t", "kind": "download", "url": "http://"}]}"#, 422),
        (create, #"{"tasks": [{"token": "t", "kind": "upload", "url": "http://a/"}]}"#, 422),
        (
            create,
            #"{"tasks": [{"token": "t", "kind": "upload", "url": "http://a/", "file": "/dev/zero"}]}"#,
            422
        ),
        (
            create,
            #"{"tasks": [{"token": "t", "kind": "upload", "url": "http://a/", "file": "/e\u0000tc"}]}"#,
            422
        ),
        // Sessions
        ("PUT /v1/sessions/x", #"{"requestTimeout": 1e300}"#, 422),
        ("PUT /v1/sessions/x", #"{"resourceTimeout": 1e300}"#, 422),
        ("PUT /v1/sessions/x", #"{"requestTimeout": -1}"#, 422),
        ("PUT /v1/sessions/x", #"{"maximumConnectionsPerHost": \#(huge)}"#, 400),
        ("PUT /v1/sessions/x", #"{"handler": {"command": []}}"#, 422),
        ("PUT /v1/sessions/x", #"{"handler": {"command": ["sh"]}}"#, 422),
        ("PUT /v1/sessions/x", #"{"group": "no such group"}"#, 403),
        ("PUT /v1/sessions/\(String(repeating: "x", count: 256))", "{}", 422),
        ("PUT /v1/sessions/a%1Bb", "{}", 422), ("PUT /v1/sessions/a%0Ab", "{}", 422),
        ("PUT /v1/sessions/a%C2%9Bb", "{}", 422), ("PUT /v1/sessions/a%E2%80%AEb", "{}", 422),
        ("PUT /v1/sessions/x", #"{"group": "\#(long)"}"#, 422),
        ("PUT /v1/sessions/x", #"{"maximumConnectionsPerHost": -1}"#, 422),
        ("PUT /v1/sessions/x", #"{"headers": {\#(fields(101))}}"#, 422),
        ("PUT /v1/sessions/x", #"{"headers": {"Cookie": "(not shown)"}}"#, 422),
        (
            "PUT /v1/sessions/x",
            #"{"headers": {"A": "\#(long)\#(long)\#(long)\#(long)\#(long)"}}"#, 422
        ),
        ("PUT /v1/sessions/x", handler(#", "version": "\#(long)""#), 422),
        ("PUT /v1/sessions/x", handler(#", "directory": "/\#(long)""#), 422),
        ("PUT /v1/sessions/x", handler(#", "directory": "tmp""#), 422),
        ("PUT /v1/sessions/x", handler(#", "environment": {"A=B": "c"}"#), 422),
        // "=" and a combining mark are one character in Swift.
        ("PUT /v1/sessions/x", handler(#", "environment": {"A=\u0301": "c"}"#), 422),
        ("PUT /v1/sessions/x", handler(#", "environment": {"A": "b\u0000"}"#), 422),
        ("PUT /v1/sessions/x", handler(#", "environment": {\#(fields(257))}"#), 422),
        (
            "PUT /v1/sessions/x",
            #"{"handler": {"command": ["/a"\#(String(repeating: #", """#, count: 256))]}}"#, 422
        ),
        ("PUT /v1/sessions/x", #"{"handler": {"command": ["/\#(many)"]}}"#, 422),
        ("POST /v1/sessions/s/acknowledge", #"{"sequence": -1}"#, 422),
        ("POST /v1/sessions/s/acknowledge", #"{"sequence": 0, "launch": "\#(long)"}"#, 422),
        ("GET /v1/sessions/s/events?after=-1", "", 400),
        ("GET /v1/sessions/s/events?after=x", "", 400),
        ("GET /v1/sessions/s/events?launch=\(long)", "", 422),
        // Members of tasks
        (create, task(#", "description": "\#(long)""#), 422),
        (create, task(#", "resumeToken": "\#(long)""#), 422),
        (create, task(#", "method": "\#(String(repeating: "G", count: 33))""#), 422),
        (create, task(#", "headers": {\#(fields(101))}"#), 422),
        (create, task(#", "expectedToSend": 9000000000000000"#), 422),
        (create, task(#", "expectedToReceive": 9000000000000000"#), 422),
        (create, #"{"launch": "\#(long)", "tasks": []}"#, 422),
        (create, #"{"tasks": [\#(tasks(1001))]}"#, 413),
        (
            create,
            #"{"tasks": [{"token": "t", "kind": "upload", "url": "http://a/", "file": "/\#(long)"}]}"#,
            422
        ),
        (
            create, #"{"tasks": [{"token": "\#(long)", "kind": "download", "url": "http://a/"}]}"#,
            422
        ),
        (
            create,
            #"{"tasks": [{"token": "t", "kind": "download", "url": "http://a/\#(long)\#(long)"}]}"#,
            422
        ),
        ("POST /v1/sessions/s/acknowledge", #"{"sequence": 9223372036854775807}"#, 422),
        ("POST /v1/sessions/s/acknowledge", #"{"sequence": \#(huge)}"#, 400),
        ("POST /v1/sessions/s/extend", "", 409),
        // Paths
        ("GET /", "", 404), ("GET /v2/", "", 404), ("GET /v1/nothing", "", 404),
        ("GET /v1/sessions/%2e%2e", "", 404), ("GET /v1/sessions/..%2F..%2Fetc", "", 404),
        ("GET /v1/../v1/sessions/none", "", 404), ("GET /v1/sessions/%00", "", 404),
        ("GET /v1/sessions/s/nothing", "", 404), ("GET /v1/sessions/s/tasks/1/2", "", 404),
        ("GET /v1/sessions/%ff%fe", "", 404), ("GET /v1/sessions/%", "", 404),
        ("DELETE /v1/sessions/none", "", 404), ("PATCH /v1/tasks/1", "{}", 404),
        ("GET /v1/tasks/-1", "", 404), ("GET /v1/tasks/\(huge)", "", 400),
        ("GET /v1/tasks/1%00", "", 400), ("GET /v1/tasks/0x1", "", 400),
        ("TRACE /v1/", "", 404), ("OPTIONS *", "", 404),
        // Names that take long to compare.
        ("GET /v1/\(escapedMarks)", "", 400), ("GET /v1/sessions?all=\(escapedMarks)", "", 400),
    ]

    @Test func meaninglessRequestsAreRefused() async throws {
        for (head, body, expected) in Self.requests {
            let status = try await status(of: request(head, body))
            #expect(status == expected, "\(head) \(body.prefix(200))")
        }
        try await expectNothingHappened()
    }

    @Test(arguments: ["\u{1B}", "\n", "\u{7F}", "\u{9B}", "\u{202E}"])
    func controlCharactersOfStagingsAreRefused(character: String) async throws {
        var configuration = SessionConfiguration()
        configuration.isTransient = true
        try await daemon.client.makeSession("t", configuration: configuration)
        for member in ["url", "description"] {
            var request = TransferRequest(token: "t", kind: .staging, url: "http://a/")
            var job = StagingJob()
            job.application = "a.b"
            job.event = "install"
            request.staging = job
            if member == "url" {
                request.url += character
            } else {
                request.description = character
            }
            let error = await #expect(throws: ControlError.self) {
                try await daemon.client.createTasks([request], in: "t")
            }
            guard case .refused(let refusal) = error else { continue }
            let reason =
                "the '\(member)' of a staging must not contain control or bidirectional characters"
            #expect(refusal.message.hasPrefix("task 't': \(reason), found '"))
            #expect(refusal.message.contains("\\u{"))
        }
        #expect(try await daemon.client.tasks() == [])
    }

    @Test func aBodyThatIsNotUnicodeIsRefused() async throws {
        let body =
            Array(#"{"tasks": [{"token": ""#.utf8) + [0xFF, 0xC0, 0x80]
            + Array(#"", "kind": "download", "url": "http://127.0.0.1:1/"}]}"#.utf8)
        let head = "\(Self.create) HTTP/1.1\r\nHost: x\r\nContent-Length: \(body.count)\r\n\r\n"
        #expect(try await status(of: Array(head.utf8) + body) == 400)
        try await expectNothingHappened()
    }

    @Test func bytesThatAreNotHTTPCloseTheConnection() async throws {
        var random = SeededGenerator(seed: 7)
        for count in [1, 10, 1000, 100_000] {
            let noise = (0..<count).map { _ in UInt8.random(in: .min ... .max, using: &random) }
            let status = try await status(of: noise + Array("\r\n\r\n".utf8))
            #expect(status == nil || status == 400)
        }
        for text in [
            "GET /v1/ HTTP/9.9\r\n\r\n", "GET /v1/\0 HTTP/1.1\r\n\r\n", "GET\r\n\r\n",
            "GET /v1/ HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
            "GET /v1/ HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
            "GET /v1/ HTTP/1.1\r\nHost x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            let status = try await status(of: Array(text.utf8))
            #expect(status.map((400..<500).contains) ?? true, "\(text)")
        }
        try await expectNothingHappened()
    }

    @Test func aBodyThatIsTooLargeIsRefused() async throws {
        let head = Array("\(Self.create) HTTP/1.1\r\nHost: x\r\n".utf8)
        let large = [UInt8](repeating: 0x20, count: 40 << 20)
        let length = Array("Content-Length: \(large.count)\r\n\r\n".utf8)
        #expect(try await [413, nil].contains(status(of: head + length + large)))
        let chunked = Array("Transfer-Encoding: chunked\r\n\r\n".utf8)
        let piece =
            Array("100000\r\n".utf8) + [UInt8](repeating: 0x20, count: 1 << 20)
            + Array("\r\n".utf8)
        let endless = (0..<40).flatMap { _ in piece }
        #expect(try await [413, nil].contains(status(of: head + chunked + endless)))
        try await expectNothingHappened()
        #expect(try residentBytes() < 400 << 20)
    }

    @Test func aFloodOfHeaderFieldsIsRefused() async throws {
        let line = "GET /v1/ HTTP/1.1\r\nHost: x\r\n"
        let floods = [
            (0..<100_000).map { "A\($0): b\r\n" }.joined(),
            "A: \(String(repeating: "b", count: 10 << 20))\r\n",
            String(repeating: "A", count: 10 << 20),
        ]
        for flood in floods {
            let status = try await status(of: Array("\(line)\(flood)\r\n".utf8))
            #expect(status.map((400..<500).contains) ?? true)
        }
        let target = String(repeating: "x", count: 1 << 20)
        let status = try await status(of: request("GET /v1/\(target)"))
        #expect(status.map((400..<500).contains) ?? true)
        try await expectNothingHappened()
    }

    @Test(.apart) func incompleteRequestsDelayNoOtherClients() async throws {
        var clients: [UnixSocket] = []
        let pieces = [
            "", "G", "GET /v1/ HTTP/1.1\r\nHos",
            "\(Self.create) HTTP/1.1\r\nContent-Length: 9\r\n\r\n{",
        ]
        for index in 0..<600 {
            let client = try UnixSocket.connect(to: daemon.socket)
            try client.send(Array(pieces[index % pieces.count].utf8))
            clients.append(client)
        }
        let began = ContinuousClock.now
        for _ in 0..<20 { _ = try await daemon.client.status() }
        #expect(ContinuousClock.now - began < .seconds(30))
        for client in clients { client.shutDown() }
        clients = []
        try await expectNothingHappened()
        let path = try #require(FilePath("/proc/\(process)/fd") as FilePath?)
        try await poll("connections that ended are kept") {
            try Directory.open(path).entries().count < 100
        }
    }

    @Test func aClientThatNeverReadsCostsLittle() async throws {
        let stream = try await daemon.attach()
        let client = try UnixSocket.connect(to: daemon.socket)
        try client.send(Array("GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n".utf8))
        let before = try residentBytes()
        // The stream is read from the beginning: the daemon closes a connection that is not read for half a minute.
        async let received = stream.take(within: .seconds(300)) { $0.sequence == 4000 }
        // Tasks with missing files end at once, each with one durable event and a few others.
        let requests = (0..<4000).map { number in
            TransferRequest(token: "\(number)", kind: .download, url: server.url("/\(number)"))
        }
        for start in stride(from: 0, to: 4000, by: ControlFormat.taskLimit) {
            let some = Array(requests[start..<start + ControlFormat.taskLimit])
            _ = try await daemon.client.createTasks(some, in: "s")
        }
        let events = try await received
        let growth = try residentBytes() - before
        #expect(growth < 150 << 20, "\(growth >> 20) MiB")
        client.shutDown()
        #expect(events.compactMap(\.sequence) == Array(1...4000))
        try await daemon.client.acknowledge(Acknowledgement(sequence: 4000), in: "s")
        #expect(try await daemon.client.tasks(in: "s") == [])
    }

    private func residentBytes() throws -> Int {
        let pages = try text(of: FilePath("/proc/\(process)/statm")).split(separator: " ")
        return (Int(pages[1]) ?? 0) * Int(getpagesize())
    }
}
