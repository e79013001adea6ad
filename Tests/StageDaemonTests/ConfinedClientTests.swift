import FoundationEssentials
import Glibc
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Clients of the system's daemon that are confined from files or from the network, and attempts to impersonate
/// another process or user.
@Suite(.directory, .daemon, .server, .severalUsers)
struct ConfinedClientTests {
    private let daemon: DaemonProcess
    private let peer: Peer
    private let server = TestServer.current
    private let user: UInt32 = 1
    private let path = "/v1/sessions/s/tasks"

    init() async throws {
        daemon = try .required()
        try daemon.letOthersPass()
        try daemon.configure(#"{"settlingTime": 0, "retryBase": 0.05, "relaunchDelay": 0.1}"#)
        try await daemon.start()
        peer = try Peer(daemon)
        server.answer("/a", with: .content(noise(1000)))
        server.answer("/u", with: .status(201))
    }

    private func task(_ kind: String) -> String {
        let file = #", "file": "/etc/hostname""#
        let url = server.url(kind == "upload" ? "/u" : "/a")
        return #"{"tasks": [{"token": "\#(UUID())", "kind": "\#(kind)", "url": "\#(url)""#
            + "\(kind == "upload" ? file : "")}]}"
    }

    /// Sends a request as the user, from within new namespaces of unshare(1).
    private func ask(within namespaces: [String], _ body: String) async throws -> String {
        let identity = ["--reuid=\(user)", "--regid=\(user)", "--clear-groups"]
        let command =
            ["/usr/bin/unshare"] + namespaces + ["/usr/bin/setpriv"] + identity
            + peer.command("ask", "POST", path, body)
        return try await peer.run(as: 0, 0, command)
    }

    @Test func aClientThatIsConfinedFromFilesCannotUpload() async throws {
        _ = try await peer.ask(as: user, user, "PUT", "/v1/sessions/s", "{}")
        let plain = try await peer.ask(as: user, user, "POST", path, task("upload"))
        #expect(plain.status == 200, "\(plain)")
        let confined = try await peer.ask(
            as: user,
            user,
            "POST",
            path,
            task("upload"),
            privileges: ["--clear-groups", "--no-new-privs"]
        )
        #expect(confined.status == 403 && confined.body.contains("no_new_privs"), "\(confined)")
        let hidden = try await ask(within: ["--mount"], task("upload"))
        #expect(hidden.hasPrefix("403") && hidden.contains("mount namespace"), "\(hidden)")
        try await poll("the first is not sent") { server.bodies(for: "/u").count == 1 }
        // A download needs no file of the client, and most confined programs may use the network.
        #expect(try await ask(within: ["--mount"], task("download")).hasPrefix("200"))
        let download = try await peer.ask(
            as: user,
            user,
            "POST",
            path,
            task("download"),
            privileges: ["--clear-groups", "--no-new-privs"]
        )
        #expect(download.status == 200, "\(download)")
    }

    @Test func usersReadTheirHeaderFieldsWhereNothingConfinesTheClient() async throws {
        _ = try await peer.ask(as: user, 2, "PUT", "/v1/sessions/s", #"{"group": "bin"}"#)
        func new(_ value: String) -> String {
            #"{"tasks": [{"token": "t", "kind": "download", "url": "\#(server.url("/a"))","#
                + #" "isSuspended": true, "headers": {"Authorization": "\#(value)"}}]}"#
        }
        let made = try await peer.ask(as: user, 2, "POST", path, new("secret"))
        #expect(made.status == 200, "\(made)")
        func read(
            _ path: String,
            by user: UInt32 = 1,
            _ privileges: [String] = []
        ) async throws -> Bool {
            let answer = try await peer.ask(
                as: user,
                2,
                "GET",
                path,
                "",
                privileges: ["--clear-groups"] + privileges
            )
            #expect(answer.status == 200 && answer.body.contains("Authorization"), "\(answer)")
            return answer.body.contains("secret")
        }
        #expect(try await read("\(path)?headers=1"))
        #expect(try await read("/v1/tasks/1?headers=1"))
        #expect(try await !read(path))
        #expect(try await !read("\(path)?headers=1", ["--no-new-privs"]))
        #expect(try await !read("\(path)?headers=1&user=1", by: 4), "a member of the group")
        #expect(try await !read("/v1/tasks?headers=1&all=1", by: 0))
    }

    @Test func theAnswerToAChallengeIsReportedToNoClient() async throws {
        let rules = #"{"group": "bin", "answersChallenges": true}"#
        _ = try await peer.ask(as: user, 2, "PUT", "/v1/sessions/s", rules)
        let refusal = Answer.status(401).field("WWW-Authenticate", "Basic realm=\"x\"")
        let gate = Gate()
        defer { gate.open() }
        server.answer("/asks", with: refusal, .content(noise(1000)).waiting(for: gate))
        let new =
            #"{"tasks": [{"token": "t", "kind": "download", "url": "\#(server.url("/asks"))","#
            + #" "headers": {"X-Own": "own", "authorization": "first"}}]}"#
        let made = try await peer.ask(as: user, 2, "POST", path, new)
        #expect(made.status == 200, "\(made)")
        func read(_ path: String) async throws -> String {
            let answer = try await peer.ask(
                as: user,
                2,
                "GET",
                path,
                "",
                privileges: ["--clear-groups"]
            )
            return answer.body
        }
        try await poll("no challenge came") {
            try await read("/v1/tasks/1").contains("authentication")
        }
        #expect(try await read("/v1/tasks/1?headers=1").contains("first"))
        let answer = try await peer.ask(
            as: user,
            2,
            "PATCH",
            "/v1/tasks/1",
            #"{"authorization": "second"}"#
        )
        #expect(answer.status == 200, "\(answer)")
        for location in ["/v1/tasks/1?headers=1", "\(path)?headers=1"] {
            let text = try await read(location)
            #expect(text.contains("own") && !text.contains("second"), "\(text)")
        }
        try await poll("it was not sent") {
            server.requests(for: "/asks").map { $0["authorization"] } == ["first", "second"]
        }
    }

    @Test func aClientInAnotherNetworkNamespaceCannotTransfer() async throws {
        _ = try await peer.ask(as: user, user, "PUT", "/v1/sessions/s", "{}")
        for kind in ["download", "upload"] {
            let answer = try await ask(within: ["--net"], task(kind))
            #expect(answer.hasPrefix("403") && answer.contains("network namespace"), "\(answer)")
        }
        #expect(server.requests(for: "/a").isEmpty && server.requests(for: "/u").isEmpty)
    }

    /// Begins a script that becomes the user and runs the client, whose command follows it.
    private static let prelude = """
        import ctypes, os, runpy, struct, sys
        command = sys.argv[1:]
        libc = ctypes.CDLL(None, use_errno=True)
        os.setgroups([])
        os.setresgid(1, 1, 1)

        """

    /// Requests a transfer from a client that a Python script confines.
    private func ask(as script: String, _ kind: String) async throws -> String {
        let program = peer.command("ask", "POST", path, task(kind))
        return try await peer.run(
            as: 0,
            0,
            ["/usr/bin/python3", "-c", Self.prelude + script] + program
        )
    }

    /// A filter that allows every call: even this counts as a restriction.
    private static let takingFilter = """
        code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
        program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
        if libc.prctl(22, 2, program, 0, 0): sys.exit(os.strerror(ctypes.get_errno()))

        """
    private static let filter =
        takingFilter + "os.setresuid(1, 1, 1)\nos.execv(command[0], command)"

    @Test(.filtersOfProcess1)
    func aClientUnderAFilterOfSystemCallsHasNothingUploaded() async throws {
        _ = try await peer.ask(as: user, user, "PUT", "/v1/sessions/s", "{}")
        let answer = try await ask(as: Self.filter, "upload")
        #expect(answer.hasPrefix("403") && answer.contains("filter of system calls"), "\(answer)")
        #expect(try await ask(as: Self.filter, "download").hasPrefix("200"))
    }

    /// The daemon's unit has a filter, which its handlers inherit and other processes do not.
    @Test(.filtersOfProcess1)
    func aFilterOfTheDaemonExcusesItsHandlersAlone() async throws {
        let start = "import ctypes, os, struct, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        let script = start + Self.takingFilter + "os.execv(sys.argv[1], sys.argv[1:])"
        try await daemon.kill()
        try await daemon.start(by: ["/usr/bin/python3", "-c", script])
        _ = try await peer.ask(as: user, user, "PUT", "/v1/sessions/s", "{}")
        let answer = try await ask(as: Self.filter, "upload")
        #expect(answer.hasPrefix("403") && answer.contains("filter of system calls"), "\(answer)")
        let plain = try await peer.ask(as: user, user, "POST", path, task("upload"))
        #expect(plain.status == 200, "\(plain)")
        try await poll("the first is not sent") { server.bodies(for: "/u").count == 1 }
        // A handler of root's, started for the end of a download.
        var configuration = SessionConfiguration()
        configuration.handler = LaunchHandler(
            command: peer.command("ask", "POST", path, task("upload"))
        )
        _ = try await daemon.client.makeSession("s", configuration: configuration)
        _ = try await peer.ask(as: 0, 0, "POST", path, task("download"))
        try await poll("the handler's is not sent") { server.bodies(for: "/u").count == 2 }
    }

    @Test func aClientOfAnotherPIDNamespaceHasNothingUploaded() async throws {
        _ = try await peer.ask(as: user, user, "PUT", "/v1/sessions/s", "{}")
        let answer = try await ask(within: ["--pid", "--fork"], task("upload"))
        #expect(answer.hasPrefix("403") && answer.contains("PID namespace"), "\(answer)")
    }

    /// A set-user-ID program: the connection reports its effective user.
    @Test func aClientThatAnotherUserStartedHasNothingUploaded() async throws {
        _ = try await peer.ask(as: user, user, "PUT", "/v1/sessions/s", "{}")
        let script = "os.setresuid(2, 1, 1)\nos.execv(command[0], command)"
        let answer = try await ask(as: script, "upload")
        #expect(answer.hasPrefix("403") && answer.contains("cannot look at"), "\(answer)")
    }

    @Test func aClientThatHidesItsNetworkHasNothingTransferred() async throws {
        _ = try await peer.ask(as: user, user, "PUT", "/v1/sessions/s", "{}")
        // Executing the client would make the process dumpable again, so the script runs it itself.
        func script(dumpable: Int) -> String {
            """
            os.setresuid(1, 1, 1)
            libc.prctl(4, \(dumpable), 0, 0, 0)
            sys.argv = command[1:]
            runpy.run_path(command[1], run_name="__main__")
            """
        }
        let answer = try await ask(as: script(dumpable: 0), "download")
        #expect(answer.hasPrefix("403") && answer.contains("does not show"), "\(answer)")
        #expect(try await ask(as: script(dumpable: 1), "download").hasPrefix("200"))
    }

    @Test func aClientWithFewerCapabilitiesCannotSetAHandler() async throws {
        let answer = try await peer.ask(
            as: 0,
            0,
            "PUT",
            "/v1/sessions/s",
            #"{"handler": {"command": ["/bin/true"]}}"#,
            privileges: ["--clear-groups", "--bounding-set=-all"]
        )
        #expect(answer.status == 403 && answer.body.contains("fewer capabilities"), "\(answer)")
    }

    @Test func aSessionNameSelectsOnlyTheCallersSession() async throws {
        let (attacker, group): (UInt32, UInt32) = (4, 65534)
        let shared = #"{"group": "nogroup"}"#
        _ = try await peer.ask(as: attacker, group, "PUT", "/v1/sessions/s", shared)
        for member in [user, 0] {
            let answer = try await peer.ask(as: member, group, "POST", path, task("download"))
            #expect(answer.status == 404, "\(answer)")
            let named = try await peer.ask(
                as: member,
                group,
                "POST",
                "\(path)?user=\(attacker)",
                task("download")
            )
            #expect(named.status == 200, "\(named)")
        }
        // A session cannot be given to another user: it would have the groups of the client.
        let foreign = "/v1/sessions/s?user=\(attacker)"
        let taken = try await peer.ask(as: 0, 0, "PUT", foreign, "{}")
        #expect(taken.status == 403, "\(taken)")
        #expect(try await peer.ask(as: 0, 0, "GET", "/v1/sessions/s").status == 404)
        let own = try await peer.ask(as: attacker, group, "PUT", foreign, shared)
        #expect(own.status == 200, "\(own)")
        let stranger = try await peer.ask(
            as: user,
            user,
            "POST",
            "\(path)?user=\(attacker)",
            task("download")
        )
        #expect(stranger.status == 404)
    }

    @Test func noNameBeginsALineOfTheLog() async throws {
        let forged = "<0>sshd[1]: Accepted publickey for root"
        let name = "s%0A%3C0%3Ekernel: panic".replacing(" ", with: "%20")
        let handler = #"{"handler": {"command": ["/none\n\#(forged)"]}}"#
        // The machine may have no regular user, so root sends the requests.
        let refused = try await peer.ask(as: 0, 0, "PUT", "/v1/sessions/\(name)", handler)
        #expect(refused.status == 422, "\(refused)")
        let made = try await peer.ask(as: 0, 0, "PUT", "/v1/sessions/s", handler)
        #expect(made.status == 200, "\(made)")
        _ = try await peer.ask(as: 0, 0, "POST", "/v1/sessions/s/tasks", task("download"))
        try await poll("the handler is not started") {
            try daemon.said().contains("A handler could not be started")
        }
        let lines = try daemon.said().split(whereSeparator: \.isNewline)
        #expect(!lines.contains { $0.hasPrefix("<0>") }, "\(lines)")
        #expect(lines.contains { $0.contains("\\u{a}<0>sshd") }, "\(lines)")
    }
}

/// Clients that send requests and do not read the responses.
@Suite(.directory, .daemon, .server)
struct UnreadAnswerTests {
    private let daemon: DaemonProcess
    private let peer: Peer

    init() async throws {
        daemon = try .required()
        try daemon.configure(#"{"settlingTime": 0, "retryBase": 0.05}"#)
        try await daemon.start()
        peer = try Peer(daemon)
    }

    /// Asks twice at once on each of many connections, reads nothing, and prints how many of the four that
    /// are worked on first are still open after five minutes: an answer has 30 seconds and the next request 20.
    private static let script = """
        import os, select, socket, sys, time
        connections = []
        for _ in range(60):
            one = socket.socket(socket.AF_UNIX)
            one.connect(os.environ['STAGEPACK_SOCKET'])
            one.sendall(b'GET /v1/sessions HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' * 2)
            connections.append(one)
            # The first four are worked on, and nobody else is while they do not read.
            if len(connections) <= 4: select.select([one], [], [])
        others, connections = connections[4:], connections[:4]
        poll = select.poll()
        for one in connections: poll.register(one, select.POLLRDHUP)
        end = time.monotonic() + 300
        while connections and time.monotonic() < end:
            for number, _ in poll.poll(1000):
                poll.unregister(number)
                connections = [one for one in connections if one.fileno() != number]
        print(len(connections))
        """

    @Test func answersThatAreNotReadTakeLittleMemoryAndEnd() async throws {
        var configuration = SessionConfiguration()
        for number in 10..<100 {
            configuration.headers["A\(number)"] = String(repeating: "x", count: 640)
        }
        for number in 0..<200 {
            _ = try await daemon.client.makeSession("s\(number)", configuration: configuration)
        }
        let process = try #require(daemon.process)
        let before = try memory(of: process)
        async let left = peer.run(
            as: geteuid(),
            getegid(),
            ["/usr/bin/python3", "-c", Self.script],
            privileges: ["--keep-groups"]
        )
        var most: Int64 = 0
        for _ in 0..<20 {
            try await Task.sleep(for: .seconds(1))
            most = max(most, try memory(of: process))
        }
        // A complete response has 11 MiB: sixty of them would take 660 MiB.
        #expect(most - before < 100 << 20, "\((most - before) >> 20) MiB")
        #expect(try await left == "0\n")
    }

    private func memory(of process: Int32) throws -> Int64 {
        let status = try text(of: FilePath("/proc/\(process)/status"))
        let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") })
        let number = line.split(separator: " ", omittingEmptySubsequences: true).dropLast().last
        return try #require(number.flatMap { Int64($0) }) << 10
    }
}

extension Trait where Self == ConditionTrait {
    /// PID 1 has as many filters of system calls as the tests, and the kernel counts them.
    fileprivate static var filtersOfProcess1: Self {
        .enabled("filters of the tests are those of PID 1") {
            func filters(_ process: String) throws -> Substring? {
                try text(of: FilePath("/proc/\(process)/status")).split(separator: "\n")
                    .first { $0.hasPrefix("Seccomp_filters:") }
            }
            return try filters("self") == filters("1") && filters("1") != nil
        }
    }
}
