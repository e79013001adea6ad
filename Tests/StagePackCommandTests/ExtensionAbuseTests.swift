import FoundationEssentials
import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Downloader extensions that stay within their sandbox, and cause harm by the files that they leave, by their requests and by their cost.
@Suite(.server, .directory, .mountNamespaceIfRoot)
struct ExtensionAbuseTests {
    /// An application with one pack and an extension in Python.
    private func install(_ text: String) async throws -> Installed {
        var installed = try await Installed()
        try installed.world.publish([
            try .small(try PackID("title"), policy: .essential([.firstInstallation]))
        ])
        let folder = try installed.world.directory.makeDirectory("program")
        let script = """
            #!/usr/bin/python3
            import ctypes, errno, json, os, sys, time
            message = json.load(sys.stdin)
            shared = message['container']
            answer = {"protocol": 1, "downloads": []}
            libc = ctypes.CDLL(None, use_errno=True)
            x86 = os.uname().machine == 'x86_64'
            def call(number, *arguments):
                given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
                ctypes.set_errno(0)
                return 0 if libc.syscall(ctypes.c_long(number), *given) >= 0 else ctypes.get_errno()
            \(text)
            json.dump(answer, sys.stdout)
            """
        let path = folder.path.appending("choose")
        try ProgramFile.write(script, to: path)
        installed.registration.downloaderExtension = .init(path: path.string)
        try installed.install()
        return installed
    }

    /// A download by URL, as Python.
    private static func download(_ identifier: String, _ url: String, _ more: String = "") -> String
    {
        """
        {"identifier": \(identifier), "url": \(url), "fileSize": 4,
         "applicationGroup": message["applicationGroup"]\(more)}
        """
    }

    // MARK: What it leaves

    /// Each call that creates a file has a mode argument.
    private static let setID = """
        os.umask(0)
        os.chdir(shared)
        number = 0
        for bits in [0o4000, 0o2000, 0o1000, 0o7000]:
            for mode in [bits | 0o777, bits]:
                for flags in [os.O_CREAT | os.O_WRONLY, os.O_CREAT | os.O_RDWR | os.O_EXCL, os.O_CREAT,
                              os.O_TMPFILE | os.O_RDWR, os.O_TMPFILE | os.O_WRONLY]:
                    number += 1
                    name = b'.' if flags & os.O_TMPFILE == os.O_TMPFILE else b'file-%d' % number
                    assert call(257 if x86 else 56, -100, name, flags, mode) == errno.EACCES, (flags, mode)
                    if x86: assert call(2, name, flags, mode) == errno.EACCES, (flags, mode)
                name = b'other-%d' % number
                assert call(258 if x86 else 34, -100, name, mode) == errno.EPERM
                assert call(259 if x86 else 33, -100, name, 0o010000 | mode, 0) == errno.EPERM
                if x86:
                    assert call(85, name, mode) == errno.EACCES
                    assert call(83, name, mode) == errno.EPERM
                    assert call(133, name, 0o010000 | mode, 0) == errno.EPERM
        # A mode without a file to be made is none.
        open('plain', 'w').close()
        assert call(257 if x86 else 56, -100, b'plain', os.O_RDWR, 0o7777) == 0
        assert call(257 if x86 else 56, -100, b'.', os.O_TMPFILE | os.O_RDWR, 0o600) == 0
        os.mkdir('directory', 0o777)
        os.mkfifo('fifo', 0o666)
        assert call(285 if x86 else 47, os.open('plain', os.O_RDWR), 0, 0, 4096) == errno.EOPNOTSUPP
        os.posix_fallocate(os.open('plain', os.O_RDWR), 0, 4096)
        """

    @Test func anExtensionMakesNoFilesWithPrivileges() async throws {
        let installed = try await install(Self.setID)
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.error == "")
        #expect(ending.status == 0)
        let shared = try Directory.open(installed.container.appending("shared"))
        let names = try shared.entries().map(\.name)
        #expect(Set(names.map(\.string)) == ["plain", "directory", "fifo"])
        for name in names {
            let path = shared.path.appending(name).string
            var status = stat()
            unsafe #expect(lstat(path, &status) == 0)
            #expect(status.st_mode & 0o7000 == 0, "\(path)")
        }
    }

    @Test(.mountedFileSystems)
    func anExtensionIsKilledBeforeItFillsTheFileSystem() async throws {
        var installed = try await install(
            """
            block = bytes(1 << 20)
            for number in range(100000):
                with open('%s/%d' % (shared, number), 'wb') as file: file.write(block)
                time.sleep(0.02)
            """
        )
        let script = """
            mount -t tmpfs -o size=256m none "$0/var-lib" || exit 99
            "$@"
            status=$?
            df --output=avail -B1 "$0/var-lib" | tail -n 1 > "$0/free"
            exit $status
            """
        let directory = installed.world.directory
        installed.world.program.wrapper =
            ["/usr/bin/unshare", "-m", "/bin/sh", "-c", script, directory.path.string]
            + installed.world.program.wrapper
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.status == 15)
        #expect(ending.error.contains("the file system that it writes to is nearly full"))
        let bytes = try File.open(reading: directory.path.appending("free")).readAll(limit: 100)
        let text = String(decoding: bytes, as: UTF8.self)
        let free = try #require(Int(text.filter(\.isNumber)))
        #expect(free > 0)
        // The packs that the policies request had enough space.
        #expect(free < 20 << 20)
    }

    @Test(.strace)
    func filesThatAnExtensionLeavesDoNotDelayAHook() async throws {
        var installed = try await install(
            """
            for number in range(5000): open('%s/%d' % (message['scratch'], number), 'w').close()
            """
        )
        let plain = installed.world.program.wrapper
        // Simulates a disk that needs more time for all files than the guard of the hook allows.
        installed.world.program.wrapper.removeLast()
        installed.world.program.wrapper += [
            "/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-e", "signal=none",
            "-e", "trace=unlinkat", "-e", "inject=unlinkat:delay_enter=20000",
            try Program.path.string,
        ]
        let hook = try await installed.run("prefetch", "--all", "--hook", "--deadline", "40")
        #expect(!hook.error.contains("warning"), "\(hook.error)")
        #expect(hook.status == 0)
        #expect(!hook.output.contains("killed"), "\(hook.output)")
        let folder = installed.container.appending("extension")
        let left = try Directory.open(folder).entries().map(\.path.string)
        #expect(!left.isEmpty && left.allSatisfy { $0.hasPrefix(ContainerLayout.removedPrefix) })
        // The next run removes the rest.
        installed.world.program.wrapper = plain
        #expect(try await installed.run("gc", "--app", "net.example.wallpaper").status == 0)
        #expect(try Directory.open(folder).entries().isEmpty)
    }

    /// Runs the program with a separate file system at `/var/lib`.
    private func run(
        _ installed: Installed,
        onFileSystemOf options: String
    ) async throws -> Program.Ending {
        var program = installed.world.program
        let script = #"mount -t tmpfs -o "$1" none "$0/var-lib" || exit 99; shift; exec "$@""#
        let mounting = [
            "/bin/sh", "-c", script, installed.world.directory.path.string, options,
        ]
        program.wrapper = ["/usr/bin/unshare", "-m"] + mounting + program.wrapper
        return try await program.run(["prefetch", "--all"])
    }

    @Test(.mountedFileSystems)
    func anExtensionIsKilledBeforeItTakesAllInodes() async throws {
        let installed = try await install(
            """
            try:
                for number in range(100000):
                    open('%s/%d' % (shared, number), 'w').close()
                    time.sleep(0.001)
            except OSError:
                sys.exit('there are no more files')
            """
        )
        let ending = try await run(installed, onFileSystemOf: "nr_inodes=8000")
        #expect(ending.status == 15)
        #expect(
            ending.error.contains("the file system that it writes to is nearly full"),
            "\(ending.error)"
        )
    }

    @Test(.mountedFileSystems)
    func noFileOfItIsLargerThanWhatIsFree() async throws {
        let installed = try await install(
            """
            with open(shared + '/large', 'wb') as file:
                file.truncate(100 << 20)
                try:
                    file.truncate(200 << 20)
                    sys.exit('it has grown')
                except OSError as error:
                    assert error.errno == errno.EFBIG, error
            """
        )
        let ending = try await run(installed, onFileSystemOf: "size=128m")
        #expect(ending.status == 0, "\(ending.error)")
    }

    // MARK: What it asks for

    @Test(arguments: ["127.0.0.1", "localhost", "0.0.0.0", "2130706433", "[::1]"])
    func anExtensionReachesNoLocalServiceByItsHost(host: String) async throws {
        let service = try TestServer()
        defer { service.stop() }
        service.answer("/secret", with: .content(Array("abcd".utf8)))
        let url = "http://\(host):\(service.port)/secret"
        let installed = try await install(
            """
            if message['kind'] == 'downloads':
                answer['downloads'] = [\(Self.download("'a'", "'\(url)'"))]
            elif message['kind'] == 'finished':
                os.rename(message['file'], shared + '/got')
            """
        )
        let ending = try await installed.run("prefetch", "--all", "--attempts", "1")
        #expect(ending.status != 0)
        #expect(service.requests.isEmpty)
        #expect(!FileStatus.exists(installed.container.appending("shared/got")))
    }

    @Test func noRedirectLeadsItToAServiceOfThisMachine() async throws {
        let service = try TestServer()
        defer { service.stop() }
        service.answer("/secret", with: .content(Array("abcd".utf8)))
        let start = TestServer.current.url("/start")
        TestServer.current.answer("/start", with: .redirect(to: service.url("/secret")))
        let installed = try await install(
            """
            if message['kind'] == 'downloads':
                answer['downloads'] = [\(Self.download("'a'", "'\(start)'"))]
            """
        )
        let ending = try await installed.run("prefetch", "--all", "--attempts", "1")
        #expect(ending.status != 0)
        #expect(ending.error.contains("is on this machine or its link"))
        #expect(service.requests.isEmpty)
    }

    /// Serves a directory over HTTP, and over TLS at another port, and then creates a file there.
    private static let servers = """
        import functools, http.server, ssl, sys, threading
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[2])
        plain, secure = [http.server.HTTPServer(("0.0.0.0", port), handler) for port in [8000, 8443]]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1])
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        threading.Thread(target=plain.serve_forever).start()
        open(sys.argv[2] + "/ready", "w").close()
        secure.serve_forever()
        """

    /// Sends the request to an address of the machine that is not a loopback address, in a network of the test, where a proxy would be
    /// the server of the manifest.
    @Test(.ownNetwork, arguments: ["", "http://127.0.0.1:8000"])
    func anExtensionReachesNoLocalServiceByAnAddressOfTheMachine(proxy: String) async throws {
        var installed = try await install(
            """
            if message['kind'] == 'downloads':
                answer['downloads'] = [\(Self.download("'a'", "'https://198.51.100.1:8443/secret'"))]
            """
        )
        let world = installed.world
        let pem = try await makeCertificate(
            for: "IP:198.51.100.1",
            in: world.directory.path
        )
        let pack = try SamplePack.small(try PackID("title"), policy: .onDemand)
        let served = try world.directory.makeDirectory("served")
        try served.write(try world.manifest(of: [pack]), to: "manifest.json", durably: false)
        try served.write(Array("abcd".utf8), to: "secret", durably: false)
        installed.registration.manifestURLs = ["http://127.0.0.1:8000/manifest.json"]
        try installed.install()
        let script = """
            ip link set lo up && ip addr add 198.51.100.1/32 dev lo || exit 99
            python3 -c "$1" "$0/server.pem" "$0/served" 2>"$0/notes" >&2 &
            until test -e "$0/served/ready"; do sleep 0.1; done
            shift
            "$@"
            status=$?
            kill $!
            exit $status
            """
        installed.world.program.wrapper =
            ["/usr/bin/unshare", "-n", "/bin/sh", "-c", script, world.directory.path.string]
            + [Self.servers] + world.program.wrapper
        installed.world.program.environment["https_proxy"] = proxy
        let ending = try await installed.run(
            "prefetch",
            "--all",
            "--attempts",
            "1",
            "--cacert",
            pem
        )
        #expect(ending.status != 0)
        #expect(ending.error.contains("is on this machine or its link"), "\(ending.error)")
        let notes = try text(of: world.directory.path.appending("notes"))
        #expect(notes.contains("GET /manifest.json") && !notes.contains("GET /secret"), "\(notes)")
        #expect(!notes.contains("CONNECT"), "\(notes)")
    }

    /// A proxy that responds for every host, and records the heads of the requests.
    private static let proxy = """
        import socket, ssl, sys
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1])
        listener = socket.create_server(("127.0.0.1", 0))
        with open(sys.argv[2], "w") as notes: print(listener.getsockname()[1], file=notes)
        while True:
            client, _ = listener.accept()
            try:
                client.recv(4096)
                client.sendall(b"HTTP/1.1 200 x\\r\\n\\r\\n")
                with context.wrap_socket(client, server_side=True) as stream:
                    head = stream.recv(65536).decode()
                    with open(sys.argv[3], "a") as notes: notes.write(head)
                    stream.sendall(b"HTTP/1.1 200 x\\r\\nContent-Length: 4\\r\\n\\r\\nabcd")
            except OSError:
                pass
        """

    @Test(arguments: ["netrc", "token"])
    func anExtensionReceivesNoPasswordsOfTheHost(kind: String) async throws {
        let own = TestServer.current.url("/own")
        TestServer.current.answer("/own", with: .content(Array("abcd".utf8)))
        let other = "https://files.example.invalid/other"
        var installed = try await install(
            """
            if message['kind'] == 'downloads':
                answer['downloads'] = [\(Self.download("'own'", "'\(own)'")),
                                       \(Self.download("'other'", "'\(other)'"))]
            elif message['kind'] == 'finished':
                os.rename(message['file'], '%s/%d' % (shared, len(os.listdir(shared))))
            """
        )
        let directory = installed.world.directory
        let pem = try await makeCertificate(for: "DNS:files.example.invalid", in: directory.path)
        let (port, heads) = (directory.path.appending("port"), directory.path.appending("heads"))
        let proxy = try PythonScript(Self.proxy, pem, port.string, heads.string)
        defer { proxy.end() }
        try await poll { try text(of: port).hasSuffix("\n") }
        installed.world.program.environment["https_proxy"] =
            "http://127.0.0.1:\(try text(of: port).dropLast())"
        let hosts = ["127.0.0.1", "files.example.invalid"]
        let netrc = hosts.map { "machine \($0) login a password b\n" }.joined()
        try directory.write(Array(netrc.utf8), to: "netrc", durably: false)
        try directory.write(Array("secret".utf8), to: "token", durably: false)
        let options =
            kind == "netrc"
            ? ["--netrc-file", directory.path.appending("netrc").string]
            : hosts.flatMap { ["--token-file", "\($0)=\(directory.path.appending("token"))"] }
        let ending = try await installed.world.program.run(
            ["prefetch", "--all", "--attempts", "1", "--cacert", pem] + options
        )
        #expect(ending.status == 0, "\(ending.error)")
        // The origin of the manifest belongs to the host.
        #expect(
            TestServer.current.requests(for: "/own").map { $0["authorization"] != nil } == [true]
        )
        let head = try text(of: heads)
        #expect(
            head.contains("GET /other ") && !head.lowercased().contains("authorization"),
            "\(head)"
        )
    }

    // MARK: What it costs

    @Test func theDeadlineHoldsForAllItsFilesTogether() async throws {
        let server = TestServer.current
        server.answer("/silent?0", with: .content(Array("abcd".utf8)).with { $0.stallAfter = 1 })
        let url = "'\(server.url("/silent"))?%d' % number"
        let installed = try await install(
            """
            if message['kind'] == 'downloads':
                answer['downloads'] = [\(Self.download("str(number)", url, ", 'essential': True"))
                                       for number in range(4000)]
            """
        )
        let start = ContinuousClock.now
        let ending = try await installed.run("prefetch", "--all", "--hook", "--deadline", "5")
        let duration = ContinuousClock.now - start
        #expect(ending.status == 0)
        #expect(duration < .seconds(120), "\(duration)")
    }

    @Test func aPeriodicRunFetchesAThousandFilesAtMost() async throws {
        let server = TestServer.current
        server.answer("/file", with: .content(Array("abcd".utf8)))
        let installed = try await install("")
        // The program is started a thousand times, so it is a shell script: Python takes longer to start.
        let program = """
            #!/bin/sh
            read -r message
            case $message in
            *'"kind":"downloads"'*)
                group=${message#*'"applicationGroup":"'}
                printf '{"protocol":1,"downloads":['
                number=0
                while [ $number -lt 1010 ]; do
                    [ $number = 0 ] || printf ,
                    printf '{"identifier":"%d","url":"\(server.url("/file"))","fileSize":4,"applicationGroup":"%s"}' \
                        $number "${group%%'"'*}"
                    number=$((number + 1))
                done
                printf ']}' ;;
            *) printf '{"protocol":1,"downloads":[]}' ;;
            esac
            """
        let path = installed.world.directory.path.pushing("program/choose")
        try ProgramFile.write(program, to: path)
        let ending = try await installed.run(
            "prefetch",
            "--all",
            "--event",
            "periodic",
            "--json"
        )
        #expect(ending.error == "")
        #expect(ending.status == 0)
        // The outcome is "left" for the remaining downloads, and for the pack that the extension did not request.
        #expect(ending.output.components(separatedBy: #""outcome" : "left""#).count - 1 == 11)
        #expect(server.requests(for: "/file").count == 1000)
    }
}
