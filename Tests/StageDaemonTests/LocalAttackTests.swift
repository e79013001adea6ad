import FoundationEssentials
import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The daemon of all users, and a hostile user.
///
/// The attacker is `nobody`, the victim `daemon`; both are users that every Debian has.
@Suite(.directory, .daemon, .server, .severalUsers)
struct LocalAttackTests {
    private let daemon: DaemonProcess
    private let peer: Peer
    private let server = TestServer.current
    private let attacker: UInt32 = 65534
    private let victim: UInt32 = 1

    init() async throws {
        daemon = try .required()
        try daemon.letOthersPass()
        try daemon.configure(#"{"settlingTime": 0, "retryBase": 0.05}"#)
        try await daemon.start()
        peer = try Peer(daemon)
        server.answer("/a", with: .content(noise(1000)))
        server.answer("/u", with: .status(201))
    }

    private func ask(
        _ user: UInt32,
        _ method: String,
        _ path: String,
        _ body: String = ""
    ) async throws -> (status: Int, body: String) {
        try await peer.ask(as: user, user, method, path, body)
    }

    private func create(_ user: UInt32, _ task: String) async throws -> (status: Int, body: String)
    {
        _ = try await ask(user, "PUT", "/v1/sessions/s", "{}")
        return try await ask(user, "POST", "/v1/sessions/s/tasks", #"{"tasks": [\#(task)]}"#)
    }

    private func download(_ token: String, _ path: String = "/a") -> String {
        #"{"token": "\#(token)", "kind": "download", "url": "\#(server.url(path))"}"#
    }

    private func upload(_ token: String, _ file: String, _ more: String = "") -> String {
        #"{"token": "\#(token)", "kind": "upload", "url": "\#(server.url("/u"))", "#
            + #""file": "\#(file)"\#(more)}"#
    }

    /// A file that its user alone may read.
    private func secret(of user: UInt32, _ text: String) throws -> String {
        let directory = try Directory.open(daemon.directory)
        try directory.write(Array(text.utf8), to: "secret", durably: false)
        try directory.changeOwner(
            of: "secret",
            to: UserIdentity(user: user, group: user, groups: [])
        )
        try directory.changeMode(of: "secret", to: .privateFile)
        return daemon.directory.appending("secret").string
    }

    @Test func anUploadNamesNoOpenFileOfTheDaemon() async throws {
        // The daemon has both files open: that of a running upload copy, and that of a running download.
        let file = try secret(of: victim, "what the victim sends")
        server.answer("/held", with: Answer.status(201).stalled(after: 0))
        let held = upload("u", file).replacing(server.url("/u"), with: server.url("/held"))
        #expect(try await create(victim, held).status == 200)
        server.answer("/slow", with: .content(noise(100_000)).stalled(after: 2000))
        #expect(try await create(victim, download("d", "/slow")).status == 200)
        try await poll("the download does not begin") {
            try await ask(victim, "GET", "/v1/tasks/2").body.contains("\"state\":\"running\"")
                && server.requests(for: "/held").count == 1
        }
        let process = try #require(daemon.process)
        var paths = ["/proc/self/environ", "/proc/self/maps", "/proc/self/status", "/dev/stdin"]
        paths += ["/proc/\(process)/status", "/sys/kernel/mm/transparent_hugepage/enabled"]
        paths += ["/proc/self/root\(file)", "/proc/self/cwd/etc/hostname", "/dev/null"]
        for number in 0..<64 { paths += ["/proc/self/fd/\(number)", "/dev/fd/\(number)"] }
        // All requests use one session, and one request each: a refusal of one must not affect another.
        _ = try await ask(attacker, "PUT", "/v1/sessions/s", "{}")
        for path in paths {
            let body = #"{"tasks": [\#(upload(path, path))]}"#
            let answer = try await ask(attacker, "POST", "/v1/sessions/s/tasks", body)
            #expect(answer.status == 422, "\(path): \(answer)")
        }
        #expect(server.bodies(for: "/u") == [])
    }

    @Test func onlyTheOwnerCanReadFilesOfTheDaemon() async throws {
        let file = try secret(of: victim, "secret")
        let suspended = #", "isSuspended": true"#
        #expect(try await create(victim, upload("u", file, suspended)).status == 200)
        server.answer("/slow", with: .content(noise(1_000_000)).stalled(after: 500_000))
        #expect(try await create(victim, download("slow", "/slow")).status == 200)
        #expect(try await create(victim, download("d")).status == 200)
        try await peer.wait(forEvents: 1, of: victim)
        try await poll("nothing is received") { try daemon.names(in: "parts").count >= 1 }
        let list = ["/usr/bin/find", daemon.state.string, "-printf", "%P %#m %U %y\\n"]
        let lines = try await peer.run(as: 0, 0, list).split(separator: "\n").map(String.init)
        var kinds: Set<String> = []
        for line in lines {
            let words = line.split(separator: " ", omittingEmptySubsequences: false)
            let (path, mode, owner, kind) = (words[0], words[1], words[2], words[3])
            let parts = path.split(separator: "/")
            switch (parts.count, parts.first, kind) {
            case (0, _, "d"), (1, "staged", "d"): #expect(mode == "0711" && owner == "0", "\(line)")
            case (2, "staged", "d"): #expect(mode == "0700" && owner == "1", "\(line)")
            case (3, "staged", "f"): #expect(mode == "0600" && owner == "1", "\(line)")
            case (1, _, "d"): #expect(mode == "0700" && owner == "0", "\(line)")
            case (_, _, "f"): #expect(mode == "0600" && owner == "0", "\(line)")
            default: Issue.record("nothing else is kept: \(line)")
            }
            kinds.insert("\(parts.first ?? "") \(parts.count) \(kind)")
        }
        let expected: Set<String> = [" 0 d", "lock 1 f", "journal.sqlite 1 f", "parts 2 f"]
        #expect(kinds.isSuperset(of: expected.union(["snapshots 2 f", "staged 3 f"])))
    }

    @Test func aDaemonStartsDespiteFilesThatAUserPutAmongStagedOnes() async throws {
        for user in [attacker, victim] {
            _ = try await create(user, download("t"))
            try await peer.wait(forEvents: 1, of: user)
        }
        let staged = daemon.state.appending("staged")
        // Both files are moved aside, and their tasks have ended: files with these numbers belong to no task.
        for user in [attacker, victim] {
            let body = #"{"sequence": 1}"#
            let path = "/v1/sessions/s/acknowledge"
            #expect(try await ask(user, "POST", path, body).status == 204)
        }
        let script = "cd $0 && mkdir -p 1/2/3 && mkfifo 2 && ln -s /etc/passwd x && mkdir -m 0 y"
        let mine = staged.appending("65534").string
        _ = try await peer.run(as: attacker, attacker, ["/bin/sh", "-c", script, mine])
        let orphan = ["/bin/touch", staged.appending("1/2").string]
        _ = try await peer.run(as: victim, victim, orphan)
        try await daemon.kill()
        try await daemon.start()
        // Files that belong to no task are removed, in the directories of other users too.
        try await poll("the victim's file is left over") {
            !FileStatus.exists(staged.appending("1/2"))
        }
        #expect(FileStatus.exists("/etc/passwd"))
        _ = try await create(victim, download("next"))
        try await peer.wait(forEvents: 2, of: victim)
    }

    /// Starts the daemon while file systems that never respond are mounted on files of the attacker.
    private func startDaemon(withMountsOn names: [String]) async throws {
        let paths = names.map { daemon.state.appending("staged/65534/\($0)").string }
        let program = daemon.directory.appending("mounts.py")
        try Directory.open(daemon.directory)
            .write(Array(SilentMounts.program.utf8), to: "mounts.py", durably: false)
        let script = """
            program=$1 mounts=$2
            shift 2
            python3 "$program" $mounts >"$program.log" &
            until grep -q mounted "$program.log"; do kill -0 $! || exit 99; sleep 0.05; done
            exec "$@"
            """
        let shell = ["/bin/sh", "-c", script, "sh", program.string]
        try await daemon.start(
            by: ["/usr/bin/unshare", "--mount"] + shell + [paths.joined(separator: " ")]
        )
    }

    /// A user may mount a file system on each file that is the user's own (fusermount3(1)).
    @Test(.fuse)
    func aMountOnOneFileDelaysItsUserAlone() async throws {
        for user in [attacker, victim] {
            _ = try await create(user, download("t"))
            try await peer.wait(forEvents: 1, of: user)
        }
        let next = daemon.state.appending("staged/65534/3").string
        _ = try await peer.run(as: attacker, attacker, ["/bin/touch", next])
        try await daemon.kill()
        // The daemon counts the finished download at its start, and the next download gets the number of the other file.
        try await startDaemon(withMountsOn: ["1", "3"])
        server.answer("/next", with: .content(noise(1000)))
        #expect(try await create(attacker, download("n", "/next")).status == 200)
        try await poll("it is not received") { server.requests(for: "/next").count == 1 }
        for number in 2...4 {
            #expect(try await create(victim, download("v\(number)")).status == 200)
            try await peer.wait(forEvents: number, of: victim)
        }
        try await daemon.kill()
        try await startDaemon(withMountsOn: ["1", "3"])
        #expect(try await create(victim, download("last")).status == 200)
        try await peer.wait(forEvents: 5, of: victim)
        #expect(try await ask(attacker, "GET", "/v1/sessions/s").body.contains("\"lastEvent\":1"))
        // The attacker's own download ends once the file system is unmounted.
        try await daemon.kill()
        _ = try await peer.run(as: attacker, attacker, ["/bin/rm", next])
        try await daemon.start()
        try await peer.wait(forEvents: 2, of: attacker)
    }

    /// A handler that waits for a file system of its user cannot be killed.
    @Test(.fuse, arguments: [SIGKILL, SIGTERM])
    func aDaemonEndsBesideAHandlerThatCannotBeKilled(signal: CInt) async throws {
        let path = daemon.directory.appending("silent")
        try Directory.open(daemon.directory).createDirectory("silent")
        try await daemon.kill()
        try daemon.configure(#"{"settlingTime": 0, "handlerUsers": ["nobody"]}"#)
        try await daemon.start()
        let mounts = try await SilentMounts.mount(on: path, for: daemon)
        defer { unsafe #expect(umount2(path.string, CInt(MNT_DETACH)) == 0) }
        let handler = #"{"handler": {"command": ["/bin/true"], "directory": "\#(path)"}}"#
        #expect(try await ask(attacker, "PUT", "/v1/sessions/s", handler).status == 200)
        let tasks = #"{"tasks": [\#(download("t"))]}"#
        #expect(try await ask(attacker, "POST", "/v1/sessions/s/tasks", tasks).status == 200)
        try await poll("no handler waits") {
            try SilentMounts.requestCount(for: daemon) > 0
        }
        // The daemon ends although the handler does not, and the handler holds nothing that the next daemon needs.
        try await daemon.kill(signal)
        try await daemon.start()
        #expect(mounts.status == nil)
        _ = consume mounts
    }

    /// Uploads the file of the first argument in four requests, and does not wait for the responses.
    private static let uploads = """
        import http.client, json, os, socket, sys, time
        def connect():
            client = http.client.HTTPConnection('stagepack')
            client.sock = socket.socket(socket.AF_UNIX)
            client.sock.connect(os.environ['STAGEPACK_SOCKET'])
            return client
        client = connect()
        client.request('PUT', '/v1/sessions/s', '{}')
        client.getresponse().read()
        held = []
        for number in range(4):
            upload = dict(token=str(number), kind='upload', url='http://127.0.0.1:9/', file=sys.argv[1])
            client = connect()
            client.request('POST', '/v1/sessions/s/tasks', json.dumps(dict(tasks=[upload])))
            held.append(client)
        time.sleep(600)
        """

    /// The daemon has 256 threads for work that waits, of which work for users takes half at most.
    @Test(.fuse)
    func filesOnMountsOfManyUsersLeaveThreadsForTheDaemon() async throws {
        let file = daemon.directory.appending("silent")
        try Directory.open(daemon.directory).write([], to: "silent", durably: false)
        let mounts = try await SilentMounts.mount(on: file, for: daemon)
        defer { unsafe #expect(umount2(file.string, CInt(MNT_DETACH)) == 0) }
        let script = """
            for user in $(seq 1000 1065); do
                setpriv --reuid=$user --regid=$user --clear-groups python3 -c "$1" "$2" &
            done
            wait
            """
        let socket = "STAGEPACK_SOCKET=\(daemon.socket)"
        let clients = try StartedProcess(
            ["/usr/bin/env", socket, "/bin/sh", "-c", script, "sh", Self.uploads, file.string],
            log: daemon.directory.appending("clients.log")
        )
        try await poll("the files are not read") {
            try SilentMounts.requestCount(for: daemon) >= 128
        }
        // Without a limit, the other requests would follow.
        try await pollUntilUnchanged { try SilentMounts.requestCount(for: daemon) }
        try await daemon.makeSession()
        let id = try await daemon.download(server.url("/a"))
        #expect(try await daemon.outcomes().map(\.gist) == ["1 completed of \(id)"])
        #expect(clients.status == nil && mounts.status == nil)
        _ = consume clients
        _ = consume mounts
    }

    /// The daemon's reading thread would wait for some files that it refuses to receive (`SO_LINGER`).
    @Test func noClientSendsOpenFiles() async throws {
        let script = """
            import os, socket
            client = socket.socket(socket.AF_UNIX)
            client.connect(os.environ["STAGEPACK_SOCKET"])
            try:
                # SO_PASSRIGHTS
                client.getsockopt(socket.SOL_SOCKET, 83)
                socket.send_fds(client, [b"GET"], [1])
                print("accepted")
            except PermissionError:
                print("refused")
            except OSError:
                print("before Linux 6.16")
            """
        let python = ["/usr/bin/python3", "-c", script]
        let said = try await peer.run(as: attacker, attacker, python)
        #expect(["refused\n", "before Linux 6.16\n"].contains(said))
    }

    @Test func aLockOfAnotherUserKeepsNoDaemonFromStarting() async throws {
        try await daemon.kill()
        let program = """
            import fcntl, os, sys, time
            held = []
            for name in ['lock', 'journal.sqlite', 'journal.sqlite-wal', 'journal.sqlite-shm']:
                try:
                    file = os.open(os.path.join(sys.argv[1], name), os.O_RDONLY)
                    fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    held.append(name)
                except OSError:
                    pass
            print(held, flush=True)
            time.sleep(600)
            """
        let log = daemon.directory.appending("locker.log")
        let identity = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        let locker = try StartedProcess(
            identity + ["/usr/bin/python3", "-c", program, daemon.state.string],
            log: log
        )
        try await poll("nothing is locked") { try text(of: log).hasSuffix("\n") }
        try await daemon.start()
        #expect(try text(of: log) == "[]\n")
        _ = consume locker
    }

    @Test func aDirectoryThatWasNotGivenAwayIsGivenAwayLater() async throws {
        try await daemon.kill()
        // The state after a daemon was killed between the two steps.
        let staged = try Directory.open(daemon.state.appending("staged"))
        try staged.createDirectory("1")
        try await daemon.start()
        _ = try await create(victim, download("t"))
        try await peer.wait(forEvents: 1, of: victim)
        let target = try daemon.makeOpenDirectory().appending("moved")
        let move = ["/bin/mv", daemon.state.appending("staged/1/1").string, target.string]
        _ = try await peer.run(as: victim, victim, move)
    }

    @Test func holesOfAFileToUploadTakeNoDisk() async throws {
        let path = daemon.directory.appending("sparse").string
        let make = #"truncate -s 1G "$0" && chmod 644 "$0" && printf end >> "$0""#
        _ = try await peer.run(as: 0, 0, ["/bin/sh", "-c", make, path])
        #expect(
            try await create(attacker, upload("u", path, #", "isSuspended": true"#)).status == 200
        )
        let name = try #require(try daemon.names(in: "snapshots").first)
        let snapshots = try Directory.open(daemon.state.appending("snapshots"))
        let status = try #require(try snapshots.status(FilePath(name)))
        #expect(status.size == 1 << 30 + 3)
        #expect(status.allocatedSize < 1 << 20)
        let file = try File.open(reading: snapshots.path.appending(name))
        var tail = [UInt8](repeating: 0, count: 8)
        #expect(try file.read(into: &tail, at: 1 << 30) == 3)
        #expect(Array(tail.prefix(3)) == Array("end".utf8))
    }
}
