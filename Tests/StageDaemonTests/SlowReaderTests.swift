import FoundationEssentials
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Clients that send requests and do not read the responses.
@Suite(.apart, .directory, .daemon, .server, .severalUsers)
struct SlowReaderTests {
    private let daemon: DaemonProcess
    private let peer: Peer
    private let server = TestServer.current

    init() async throws {
        daemon = try .required()
        try daemon.configure(#"{"settlingTime": 0, "retryBase": 0.05}"#)
        try await daemon.start()
        try await daemon.makeSession()
        peer = try Peer(daemon)
    }

    /// Sends a request for a path, reads nothing, and prints the seconds after which the connection was closed.
    ///
    /// With a second argument, reads the first byte of the response, and then creates a file with this name.
    private static let script = """
        import os, select, socket, sys, time
        client = socket.socket(socket.AF_UNIX)
        client.connect(os.environ["STAGEPACK_SOCKET"])
        began = time.monotonic()
        client.sendall(b"GET %s HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % sys.argv[1].encode())
        if len(sys.argv) > 2:
            client.recv(1)
            open(sys.argv[2], "w").close()
        poll = select.poll()
        poll.register(client, 0)
        print(int(time.monotonic() - began) if poll.poll(300000) else "never")
        """

    private func create(_ count: Int, _ change: (inout TransferRequest) -> Void) async throws {
        let requests = (0..<count).map { number in
            var request = TransferRequest(
                token: "\(number)",
                kind: .download,
                url: server.url("/a")
            )
            change(&request)
            return request
        }
        _ = try await daemon.client.createTasks(requests, in: "s")
    }

    private func secondsUntilClosed(_ path: String, _ more: String...) async throws -> Int {
        let command = ["/usr/bin/python3", "-c", Self.script, path] + more
        let answer = try await peer.run(as: 0, 0, command)
        return try #require(Int(answer.dropLast()), "\(answer)")
    }

    @Test(arguments: ["/v1/tasks", "/v1/sessions/s/tasks"])
    func aListThatIsNotReadIsCutOff(path: String) async throws {
        // The response exceeds the buffers of the kernel and of the daemon for a client.
        try await create(60) { request in
            request.headers = ["A": String(repeating: "x", count: 12_000)]
            request.isSuspended = true
        }
        // A client has 30 seconds to read a response. If all of it fits in the socket's buffer, it counts as read, and
        // the client has 20 seconds for its next request.
        let seconds = try await secondsUntilClosed(path)
        #expect(seconds >= 15)
        #expect(try await daemon.client.tasks(in: "s").count == 60)
    }

    @Test(arguments: ["/v1/events", "/v1/sessions/s/events?after=0"])
    func aStreamThatIsNotReadIsCutOff(path: String) async throws {
        // The final event contains the header fields of the response.
        let note = String(repeating: "x", count: 30_000)
        server.answer("/a", with: .content(noise(10)).field("X-Note", note))
        let sign = daemon.directory.appending("listens")
        async let seconds = secondsUntilClosed(path, sign.string)
        try await poll("no process listens") { FileStatus.exists(sign) }
        try await create(60) { _ in }
        let passed = try await seconds
        #expect(passed >= 15)
        #expect(try await daemon.outcomes().count == 60)
    }

    /// A client that is always slow misses further events while it receives the state of many tasks.
    @Test func theStateOfAllTasksComesBeforeThatOfTheFirstAgain() async throws {
        // The state of all tasks exceeds the buffers of the kernel and of the daemon for a client.
        let ids = try await daemon.downloads(8000, of: server.url("/a")) {
            $0.earliestBegin = .now + 3600
        }
        let stream = try await daemon.attach()
        defer { stream.close() }
        var change = TransferChange()
        change.priority = 0.75
        // The events exceed the daemon's buffer for a client, and none of them is about the first or the last task.
        let changes = TaskChanges(ids[1...600].map { TaskChange($0, change: change) })
        let body = String(decoding: try ControlFormat.encode(changes), as: UTF8.self)
        // The daemon disconnects the client after half a minute, in which three programs may not start.
        for _ in 0..<3 {
            let path = daemon.socket.string
            let answer = try ControlExchange("PATCH /v1/sessions/s/tasks", body: body, at: path)
            #expect(answer.status == 200)
        }
        let last = try #require(ids.last)
        let events = try await stream.take { $0.task == last }
        #expect(events.count { $0.task == ids[0] } == 1)
    }
}
