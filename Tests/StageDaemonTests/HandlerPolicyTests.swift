import FoundationEssentials
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The clients for which the system's daemon starts handlers, and the groups of these handlers.
///
/// The daemon runs with an `/etc/group` of the test: in it, the user `daemon` is a member of
/// the group 4242.
@Suite(.directory, .daemon, .server, .severalUsers)
struct HandlerPolicyTests {
    private let daemon: DaemonProcess
    private let peer: Peer
    private let server = TestServer.current
    private let user: UInt32 = 1
    private let member = ["--groups=4242"]
    private let alone = ["--clear-groups"]

    init() async throws {
        daemon = try .required()
        try daemon.letOthersPass()
        try daemon.configure(
            #"{"settlingTime": 0, "retryBase": 0.05, "handlerUsers": ["daemon"]}"#
        )
        let directory = try Directory.open(daemon.directory)
        let groups = try text(of: "/etc/group") + "private:x:4242:daemon\n\(Self.crowd)"
        try directory.write(Array(groups.utf8), to: "group", durably: false)
        let script = #"mount --bind "$0" /etc/group && exec "$@""#
        let file = daemon.directory.appending("group").string
        try await daemon.start(
            by: ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", script, file]
        )
        peer = try Peer(daemon)
        server.answer("/a", with: .content(noise(1000)))
        server.answer("/u", with: .status(201))
    }

    /// A group whose entry in the file has some 200 KB.
    private static let crowd =
        "crowd:x:4243:daemon," + (0..<20_000).map { "user\($0)" }.joined(separator: ",") + "\n"

    @Test func aGroupMayHaveAnyNumberOfMembers() async throws {
        let answer = try await peer.ask(
            as: user,
            user,
            "PUT",
            "/v1/sessions/s",
            #"{"group": "crowd"}"#,
            privileges: ["--groups=4243"]
        )
        #expect(answer.status == 200, "\(answer)")
    }

    private func makeSession(
        as user: UInt32,
        handler command: String = "true",
        privileges: [String]
    ) async throws -> (status: Int, body: String) {
        let body = #"{"handler": {"command": ["/bin/sh", "-c", "\#(command)"]}}"#
        return try await peer.ask(
            as: user,
            user,
            "PUT",
            "/v1/sessions/s",
            body,
            privileges: privileges
        )
    }

    @Test(arguments: [
        (user: UInt32(65534), privileges: ["--clear-groups"], reason: "is a system user"),
        (user: 4, privileges: ["--clear-groups"], reason: "is a system user"),
        (user: 4_000_000, privileges: ["--clear-groups"], reason: "has no account"),
        (user: 1, privileges: ["--clear-groups", "--no-new-privs"], reason: "no_new_privs"),
        (user: 0, privileges: ["--clear-groups", "--no-new-privs"], reason: "no_new_privs"),
    ])
    func aClientThatIsConfinedGetsNoHandler(
        user: UInt32,
        privileges: [String],
        reason: String
    ) async throws {
        let answer = try await makeSession(as: user, privileges: privileges)
        #expect(answer.status == 403 && answer.body.contains(reason), "\(answer)")
        // The user may have transfers nevertheless.
        let plain = try await peer.ask(
            as: user,
            user,
            "PUT",
            "/v1/sessions/s",
            "{}",
            privileges: privileges
        )
        #expect(plain.status == 200)
    }

    @Test func aClientOfAnotherUserNamespaceGetsNoHandler() async throws {
        let body = #"{"handler": {"command": ["/bin/true"]}}"#
        let command =
            ["/usr/bin/unshare", "--user", "--map-root-user"]
            + peer.command("ask", "PUT", "/v1/sessions/s", body)
        let answer = try await peer.run(as: user, user, command)
        #expect(answer.hasPrefix("403") && answer.contains("user namespace"), "\(answer)")
    }

    /// Connects as a confined process, ends, and sends a request from a child of it once its number is
    /// that of another process of the same user, which nothing confines.
    private static let reuse = """
        import ctypes, os, socket, struct, sys, time
        user, request, body = int(sys.argv[1]), sys.argv[2], sys.argv[3]
        libc = ctypes.CDLL(None, use_errno=True)
        def become():
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        wait, go = os.pipe()
        result, told = os.pipe()
        first = os.fork()
        if first == 0:
            if libc.unshare(0x40000000): sys.exit("unshare: %s" % os.strerror(ctypes.get_errno()))
            become()
            libc.prctl(38, 1, 0, 0, 0)
            client = socket.socket(socket.AF_UNIX)
            client.connect(os.environ["STAGEPACK_SOCKET"])
            # The answer shows that the connection was accepted.
            client.sendall(b"GET /v1/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
            client.recv(1 << 16)
            if os.fork() == 0:
                os.close(go)
                os.read(wait, 1)
                head = "%s HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n"
                client.sendall((head % (request, len(body)) + body).encode())
                os.write(told, client.recv(1 << 16))
            os._exit(0)
        os.waitpid(first, 0)
        # Later than the first by more than a tick of the clock that the kernel dates processes by.
        time.sleep(0.1)
        number = ctypes.c_int(first)
        wanted = struct.pack("11Q", 0, 0, 0, 0, 17, 0, 0, 0, ctypes.addressof(number), 1, 0)
        second = libc.syscall(435, wanted, len(wanted))
        if second < 0: sys.exit("clone3: %s" % os.strerror(ctypes.get_errno()))
        if second == 0:
            os.close(wait)
            os.close(told)
            become()
            # Its network namespace shows.
            libc.prctl(4, 1, 0, 0, 0)
            time.sleep(600)
            os._exit(0)
        assert second == first
        while b"%d" % user not in open("/proc/%d/status" % second, "rb").read().split(b"Uid:")[1][:9]:
            time.sleep(0.01)
        os.close(wait)
        os.close(told)
        os.write(go, b"x")
        print(os.read(result, 1 << 16).decode())
        os.kill(second, 9)
        """

    @Test(arguments: [nil, OldKernel.withoutPeerProcesses])
    func anotherProcessWithTheNumberOfTheClientIsNotTakenForIt(kernel: OldKernel?) async throws {
        if let kernel {
            try await daemon.kill()
            try await daemon.start(by: kernel.wrapper(in: Directory.open(daemon.directory)))
        }
        let body = #"{"handler": {"command": ["/bin/true"]}}"#
        // Control: a process that does not change gets its handler.
        let honest = try await makeSession(as: user, privileges: alone)
        #expect(honest.status == 200, "\(honest)")
        let task =
            #"{"tasks": [{"token": "t", "kind": "download", "url": "\#(server.url("/a"))"}]}"#
        for (request, body) in [
            ("PUT /v1/sessions/s", body), ("POST /v1/sessions/s/tasks", task),
        ] {
            let answer = try await peer.run(
                as: 0,
                0,
                ["/usr/bin/python3", "-c", Self.reuse, "\(user)", request, body]
            )
            #expect(answer.hasPrefix("HTTP/1.1 403 "), "\(answer)")
            #expect(answer.contains("has a process that the daemon cannot look at"), "\(answer)")
        }
    }

    @Test func eachHandlerHasASessionKeyringOfItsOwn() async throws {
        let target = try daemon.makeOpenDirectory().appending("keys")
        // Prints the number of the session keyring, from keyctl(2).
        let code = "import ctypes; print(ctypes.CDLL(None).syscall(\(Self.keyctl), 0, -3, 0))"
        let script = "python3 -c '\(code)' > \(target).$STAGEPACK_SESSION"
        for name in ["a", "b"] {
            let handler = #"{"handler": {"command": ["/bin/sh", "-c", "\#(script)"]}}"#
            let made = try await peer.ask(as: user, user, "PUT", "/v1/sessions/\(name)", handler)
            #expect(made.status == 200, "\(made)")
            let task = #"{"token": "t", "kind": "download", "url": "\#(server.url("/a"))"}"#
            let path = "/v1/sessions/\(name)/tasks"
            _ = try await peer.ask(as: user, user, "POST", path, #"{"tasks": [\#(task)]}"#)
        }
        func keyring(_ name: String) throws -> Int {
            // An error means that the file does not exist yet.
            let line = try? text(of: FilePath("\(target).\(name)"))
            return Int(line?.dropLast() ?? "") ?? 0
        }
        try await poll("the handlers are not started") {
            try ["a", "b"].allSatisfy { try keyring($0) != 0 }
        }
        if try keyring("a") == -1 { return }  // A kernel without keyrings: nothing is shared.
        #expect(try keyring("a") != keyring("b"))
        // The keyring is not the one that all processes of the user share.
        let shared = try await peer.run(as: user, user, ["/usr/bin/python3", "-c", code])
        #expect(try Int(shared.dropLast()) != keyring("a"))
    }

    #if arch(x86_64)
    private static let keyctl = 250
    #else
    private static let keyctl = 219
    #endif

    @Test func aHandlerHasTheGroupsOfTheClientAndNoOthers() async throws {
        let folder = try daemon.makeOpenDirectory()
        for (name, privileges, expected) in [("alone", alone, "1"), ("member", member, "1 4242")] {
            let target = folder.appending(name)
            let answer = try await makeSession(
                as: user,
                handler: "id -G > \(target)~ && mv \(target)~ \(target)",
                privileges: privileges
            )
            #expect(answer.status == 200, "\(answer)")
            let task =
                #"{"token": "\#(name)", "kind": "download", "url": "\#(server.url("/a"))"}"#
            let path = "/v1/sessions/s/tasks"
            _ = try await peer.ask(as: user, user, "POST", path, #"{"tasks": [\#(task)]}"#)
            try await poll("the handler is not started") { FileStatus.exists(target) }
            #expect(try text(of: target) == expected + "\n")
            // A failed launch delays the next one, so each case has a separate session.
            _ = try await peer.ask(as: user, user, "DELETE", "/v1/sessions/s")
        }
    }

    @Test func uploadsDoNotRegainGroupsThatTheirProcessDropped() async throws {
        let directory = try Directory.open(daemon.directory)
        try directory.write(Array("for members".utf8), to: "shared", durably: false)
        let members = UserIdentity(user: 0, group: 4242, groups: [])
        try directory.changeOwner(of: "shared", to: members)
        try directory.changeMode(of: "shared", to: [.ownerReadWrite, .groupRead])
        let file = daemon.directory.appending("shared")
        _ = try await peer.ask(as: user, user, "PUT", "/v1/sessions/s", "{}")
        for (privileges, status) in [(alone, 422), (member, 200)] {
            let task =
                #"{"token": "u", "kind": "upload", "url": "\#(server.url("/u"))", "file": "\#(file)"}"#
            let answer = try await peer.ask(
                as: user,
                user,
                "POST",
                "/v1/sessions/s/tasks",
                #"{"tasks": [\#(task)]}"#,
                privileges: privileges
            )
            #expect(answer.status == status, "\(answer)")
        }
    }

    @Test func aGroupsMemberGetsNoHeadersOfTheSession() async throws {
        let owner: UInt32 = 65534
        let configuration = #"{"group": "nogroup", "headers": {"Authorization": "Bearer secret"}}"#
        let made = try await peer.ask(as: owner, owner, "PUT", "/v1/sessions/g", configuration)
        #expect(made.status == 200 && made.body.contains("Bearer secret"))
        // The request is sent as 'sync', a member of the group.
        func ask(_ method: String, _ path: String, _ body: String = "") async throws -> String {
            try await peer.ask(as: 4, owner, method, "\(path)?user=\(owner)", body).body
        }
        for path in ["/v1/sessions/g", "/v1/sessions"] {
            let answer = try await ask("GET", path)
            #expect(answer.contains("(not shown)") && !answer.contains("secret"), "\(answer)")
        }
        server.answer("/evil", with: .content(noise(10)))
        func task(_ path: String) -> String {
            #"{"tasks": [{"token": "\#(path)", "kind": "download", "url": "\#(server.url(path))"}]}"#
        }
        _ = try await ask("POST", "/v1/sessions/g/tasks", task("/evil"))
        _ = try await peer.ask(as: owner, owner, "POST", "/v1/sessions/g/tasks", task("/a"))
        try await poll("both are not fetched") {
            server.requests(for: "/evil").count == 1 && server.requests(for: "/a").count == 1
        }
        #expect(server.requests(for: "/evil")[0]["authorization"] == nil)
        #expect(server.requests(for: "/a")[0]["authorization"] == "Bearer secret")
    }
}
