import FoundationEssentials
import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Downloader extensions that stay within their sandbox and do harm by what they leave, ask for and cost.
@Suite(
    .server,
    .directory,
    .enabled("root needs a '/var/lib' of its own") {
        guard geteuid() == 0 else { return true }
        return await Program.canMount
    }
)
struct ExtensionAbuseTests {
    /// An application with one pack and an extension of Python's.
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
        let mode = FilePermissions(rawValue: 0o755)
        try folder.file(creating: "choose", permissions: mode).write(Array(script.utf8).span, at: 0)
        installed.registration.downloaderExtension = .init(
            path: folder.path.appending("choose").string
        )
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

    /// Every call that makes a file takes a mode.
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

    @Test func itMakesNoFileThatGivesRights() async throws {
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

    @Test(.enabled("mounting takes root") { geteuid() == 0 })
    func itIsEndedBeforeItHasFilledTheFileSystem() async throws {
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
        // What the policies asked for has had room.
        #expect(free < 20 << 20)
    }

    @Test(.enabled("delaying calls takes strace") { FileStatus.exists("/usr/bin/strace") })
    func whatItLeavesToRemoveDoesNotHoldAHookUp() async throws {
        var installed = try await install(
            """
            for number in range(3000): open('%s/%d' % (message['scratch'], number), 'w').close()
            """
        )
        let plain = installed.world.program.wrapper
        // A disk that takes a minute for all of them.
        installed.world.program.wrapper.removeLast()
        installed.world.program.wrapper += [
            "/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-e", "signal=none",
            "-e", "trace=unlinkat", "-e", "inject=unlinkat:delay_enter=20000",
            try Program.path.string,
        ]
        let start = ContinuousClock.now
        let hook = try await installed.run("prefetch", "--all", "--hook", "--deadline", "20")
        let duration = ContinuousClock.now - start
        #expect(!hook.error.contains("warning"), "\(hook.error)")
        #expect(hook.status == 0)
        #expect(!hook.output.contains("killed"), "\(hook.output)")
        #expect(duration < .seconds(40), "\(duration)")
        let folder = installed.container.appending("extension")
        let left = try Directory.open(folder).entries().map(\.name.string)
        #expect(!left.isEmpty && left.allSatisfy { $0.hasPrefix(ContainerLayout.removedPrefix) })
        // What is left goes with the next run.
        installed.world.program.wrapper = plain
        #expect(try await installed.run("gc", "--app", "net.example.wallpaper").status == 0)
        #expect(try Directory.open(folder).entries().isEmpty)
    }

    // MARK: What it asks for

    @Test(arguments: ["127.0.0.1", "localhost", "0.0.0.0", "2130706433", "[::1]"])
    func itReachesNoServiceOfThisMachineByItsHost(host: String) async throws {
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
        // Started a thousand times: a shell starts in less time than Python.
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
        let folder = try Directory.open(installed.world.directory.path.appending("program"))
        try folder.remove("choose")
        let mode = FilePermissions(rawValue: 0o755)
        try folder.file(creating: "choose", permissions: mode)
            .write(Array(program.utf8).span, at: 0)
        let ending = try await installed.run(
            "prefetch",
            "--all",
            "--event",
            "periodic",
            "--json"
        )
        #expect(ending.error == "")
        #expect(ending.status == 0)
        // The rest, and the pack that it did not ask for.
        #expect(ending.output.components(separatedBy: #""outcome" : "left""#).count - 1 == 11)
        #expect(server.requests(for: "/file").count == 1000)
    }
}
