import Glibc
import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Hostile downloader extensions under the real program, on this kernel and on older ones.
@Suite(.server, .directory, .mountNamespaceIfRoot)
struct ExtensionAttackTests {
    /// An application with one pack and an extension in Python.
    private func install(_ text: String, on kernel: OldKernel? = nil) async throws -> Installed {
        var installed = try await Installed()
        try installed.world.publish([
            try .small(try PackID("title"), policy: .essential([.firstInstallation]))
        ])
        let folder = try installed.world.directory.makeDirectory("program")
        let script = """
            #!/usr/bin/python3
            import array, ctypes, errno, fcntl, json, mmap, os, signal, socket, struct, subprocess, sys
            import threading, time
            message = json.load(sys.stdin)
            folder = os.path.dirname(os.path.realpath(sys.argv[0]))
            libc = ctypes.CDLL(None, use_errno=True)
            machine = 0 if os.uname().machine == 'x86_64' else 1
            def call(number, *arguments):
                given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
                ctypes.set_errno(0)
                return 0 if libc.syscall(ctypes.c_long(number), *given) >= 0 else ctypes.get_errno()
            def attempt(body):
                try:
                    body()
                except OSError as error:
                    return error.errno
                return 0
            \(text)
            json.dump({"protocol": 1, "downloads": []}, sys.stdout)
            """
        let path = folder.path.appending("choose")
        try ProgramFile.write(script, to: path)
        installed.registration.downloaderExtension = .init(path: path.string)
        try installed.install()
        if let kernel { try installed.move(to: kernel) }
        return installed
    }

    private static let versions: [OldKernel] = [1, 2, 3, 4, 5, 6].map { .landlock(version: $0) }

    /// Every way to change a file by its path or by a descriptor that is open for reading.
    private static let changes = """
        victim = os.path.join(folder, 'victim')
        hidden = os.path.join(os.path.dirname(folder), 'hidden')
        made = os.path.join(folder, 'made')
        reading = os.open(victim, os.O_RDONLY)
        how = struct.pack('QQQ', os.O_RDONLY | os.O_TRUNC, 0, 0)
        open('own', 'w').write('own')
        for path in [victim, hidden, message['manifest']]:
            name = path.encode()
            for flags in [os.O_TRUNC, 3, 3 | os.O_TRUNC, os.O_WRONLY, os.O_RDWR,
                          os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_TRUNC, os.O_WRONLY | os.O_APPEND,
                          os.O_CREAT | os.O_TRUNC, os.O_CREAT | os.O_TRUNC | 3]:
                found = attempt(lambda: os.open(path, flags, 0o600))
                assert found == errno.EACCES, ('open', path, flags, found)
            assert call(437, -100, name, how, 24) == errno.ENOSYS
            if machine == 0: assert call(85, name, 0o600) == errno.EACCES
            assert attempt(lambda: os.truncate(path, 0)) == errno.EACCES
            for body in [lambda: os.remove(path), lambda: os.rename(path, 'a'),
                         lambda: os.replace('own', path), lambda: os.link(path, 'b'),
                         lambda: os.setxattr(path, 'user.a', b'b'), lambda: os.removexattr(path, 'user.a')]:
                assert attempt(body) != 0, path
            assert call(316 if machine == 0 else 276, -100, b'own', -100, name, 2) != 0
            os.chmod(path, 0o777)
            os.utime(path, (1, 1))
            os.chown(path, 1, 1)
            call(452, -100, name, 0o777, 0)
            call(463, -100, name, 0, b'user.a', how, 16)
            call(469, -100, name, how, 24, 0)
        for body in [lambda: os.ftruncate(reading, 0), lambda: os.pwrite(reading, b'x', 0),
                     lambda: os.posix_fallocate(reading, 0, 100000),
                     lambda: os.copy_file_range(os.open('own', 0), reading, 3),
                     lambda: os.sendfile(reading, os.open('own', 0), 0, 3),
                     lambda: os.open('/proc/self/fd/%d' % reading, os.O_WRONLY | os.O_TRUNC),
                     lambda: os.open('/proc/self/fd/%d' % reading, os.O_RDONLY | os.O_TRUNC),
                     lambda: mmap.mmap(reading, 0, mmap.MAP_SHARED, mmap.PROT_WRITE),
                     lambda: fcntl.ioctl(reading, 0x40086602, struct.pack('l', 0x40)),
                     lambda: fcntl.ioctl(reading, 0x401c5820, bytes(28)),
                     lambda: fcntl.fcntl(reading, 1024, fcntl.F_RDLCK),
                     lambda: os.mkdir(made), lambda: os.symlink('a', made), lambda: os.mkfifo(made),
                     lambda: os.mknod(made), lambda: open(made, 'w'),
                     lambda: socket.socket(socket.AF_UNIX).bind(made)]:
            assert attempt(body) != 0
        """

    @Test(arguments: versions.filter(\.isSimulated))
    func noFileOutsideIsChanged(on kernel: OldKernel) async throws {
        let installed = try await install(Self.changes, on: kernel)
        let folder = try #require(try installed.world.directory.directory("program"))
        let content = Array("what nothing may change".utf8)
        try folder.file(creating: "victim").write(content.span, at: 0)
        try installed.world.directory.file(creating: "hidden").write(content.span, at: 0)
        let before = (
            try folder.status("victim"), try installed.world.directory.status("hidden")
        )
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.error == "")
        #expect(ending.status == 0)
        #expect(try folder.status("victim") == before.0)
        #expect(try installed.world.directory.status("hidden") == before.1)
        #expect(try folder.file(reading: "victim")?.readAll(limit: 100) == content)
        #expect(try Set(folder.entries().map(\.path.string)) == ["choose", "victim"])
    }

    /// Ways to reach processes, from the program and from one that it starts.
    private static let signals = """
        tgkill, queue = [(234, 129), (131, 138)][machine]
        def reach():
            for process in [os.getppid(), \(getpid()), 1]:
                for body in [lambda: os.kill(process, 0), lambda: os.kill(process, signal.SIGTERM),
                             lambda: fcntl.fcntl(0, fcntl.F_SETOWN, process),
                             lambda: fcntl.fcntl(0, fcntl.F_SETSIG, 9)]:
                    assert attempt(body) == errno.EPERM, process
                assert call(tgkill, process, process, 0) == errno.EPERM
                assert call(queue, process, 0, bytes(128)) == errno.EPERM
                assert call(424, 0, 9, None, 0) == errno.ENOSYS
            # What it may always: itself, and its group.
        caught = []
        signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
        reach()
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(0, signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        assert len(caught) >= 2, caught
        child = subprocess.run(['/bin/sh', '-c', 'kill -0 \(getpid()) 2>/dev/null || kill -0 1 2>/dev/null'])
        assert child.returncode == 1, child
        """

    @Test(arguments: versions.filter(\.isSimulated) + [nil])
    func noOtherProcessIsReached(on kernel: OldKernel?) async throws {
        let installed = try await install(Self.signals, on: kernel)
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.error == "")
        #expect(ending.status == 0)
    }

    /// Calls that runtimes make routinely.
    private static let ordinary = """
        assert subprocess.run('echo one | tr o O', shell=True, capture_output=True).stdout == b'One\\n'
        script = 'x=$(echo two | cat); cat <(echo $x); sleep 0 & wait $!; set -m; true & wait'
        assert subprocess.run(['/bin/bash', '-c', script], capture_output=True).stdout == b'two\\n'
        perl = 'my $x = `echo three`; print $x; exit fork() ? 0 : 0'
        found = subprocess.run(['/usr/bin/perl', '-e', perl], capture_output=True).stdout
        assert b'three' in found, found
        results = []
        threads = [threading.Thread(target=results.append, args=[n]) for n in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert sorted(results) == list(range(8))
        one, other = socket.socketpair()
        one.sendall(b'a')
        assert other.recv(1) == b'a'
        open('file', 'w').write('four')
        assert subprocess.run('cp -a file copy && mv copy other && tar cf - other | tar tf - && ls -l',
                              shell=True).returncode == 0
        os.mkfifo('fifo')
        sys.stdout.flush()
        """

    @Test(arguments: [OldKernel.landlock(version: 2), nil])
    func shellsPythonAndPerlWork(on kernel: OldKernel?) async throws {
        // The output of these programs is neither the response nor log text.
        let aside = "out = os.dup(1); os.dup2(os.open('output', os.O_WRONLY | os.O_CREAT), 1)\n"
        let text = aside + Self.ordinary + "\nos.dup2(out, 1)"
        let installed = try await install(text, on: kernel)
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.error == "")
        #expect(ending.status == 0)
    }

    @Test(
        .root("root alone refuses"),
        arguments: [
            (OldKernel.withoutLandlock, "its files (Landlock)", "'lsm='"),
            (.withoutFilters, "its system calls (seccomp)", "allows seccomp filters"),
        ]
    )
    func rootStartsNoExtensionThatIsNotConfined(
        on kernel: OldKernel,
        reason: String,
        hint: String
    ) async throws {
        let installed = try await install(
            "open(message['container'] + '/started', 'w')",
            on: kernel
        )
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.status == 15)
        #expect(
            ending.error.contains(
                "/program/choose' was not started as root: this kernel does not confine \(reason)"
            )
        )
        #expect(ending.error.contains(hint))
        // On such a kernel, root also unpacks no pack that the policies select.
        #expect(try installed.staged() == [:])
        #expect(!FileStatus.exists(installed.container.appending("shared/started")))
    }

    @Test(.severalUsers, arguments: [OldKernel.withoutLandlock, .withoutFilters])
    func otherUsersAreWarned(on kernel: OldKernel) async throws {
        var installed = try await install(
            "open(message['container'] + '/started', 'w')",
            on: kernel
        )
        let directory = installed.world.directory
        _ = try directory.makeDirectory("data")
        unsafe #expect(chown(directory.path.appending("data").string, 65534, 65534) == 0)
        try Directory.open(directory.path.removingLastComponent()).changeMode(
            of: try #require(directory.path.lastComponent),
            to: FilePermissions(rawValue: 0o755)
        )
        installed.world.program.environment = [
            "XDG_CONFIG_HOME": directory.path.appending("etc").string,
            "XDG_DATA_HOME": directory.path.appending("data").string,
        ]
        installed.world.program.wrapper =
            ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            + (try kernel.wrapper(in: directory)) + [try Program.path.string]
        let ending = try await installed.run("prefetch", "--all")
        #expect(ending.error.contains("the downloader extension is not fully confined"))
        #expect(ending.status == 0)
        let shared = directory.path.appending("data/stagepack/groups/net.example/shared/started")
        #expect(FileStatus.exists(shared))
    }

    /// Processes that try to keep running.
    private static let daemons = """
        mark = '\(mark)'
        for command in ['sleep ' + mark, 'setsid sleep %s' % mark, 'nohup sleep %s &' % mark,
                        '(trap "" TERM HUP INT; sleep %s & wait) &' % mark, '(sleep %s &) &' % mark]:
            subprocess.Popen(['/bin/sh', '-c', command], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
        for signal_ in [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]: signal.signal(signal_, signal.SIG_IGN)
        libc.prctl(1, 0, 0, 0, 0)
        open(message['container'] + '/started', 'w')
        time.sleep(1000)
        """
    private static let mark = "604.\(UInt32.random(in: .min ... .max))"

    /// Returns whether a process of the extension exists.
    private static func isRunning(of installed: Installed) throws -> Bool {
        let program = installed.world.directory.path.appending("program/choose").string
        for process in try Directory.open("/proc").entries() where Int(process.path.string) != nil {
            let path = FilePath("/proc").appending(process.name).appending("cmdline")
            // A process that has gone meanwhile has no arguments.
            guard let bytes = try? File.open(reading: path).readAll(limit: 1 << 16) else {
                continue
            }
            let arguments = String(decoding: bytes, as: UTF8.self)
            if arguments.contains("sleep\0\(mark)") || arguments.contains(program) {
                return true
            }
        }
        return false
    }

    @Test func processesOfAnExtensionDieWithAKilledHost() async throws {
        let installed = try await install(Self.daemons)
        let started = installed.container.appending("shared/started")
        let ending = try await installed.world.program.run(["prefetch", "--all"]) { running in
            try await poll { FileStatus.exists(started) }
            #expect(try Self.isRunning(of: installed))
            running.send(SIGKILL)
        }
        #expect(ending.status == Program.killed)
        try await poll("processes are left") { try !Self.isRunning(of: installed) }
    }
}
