import Glibc
import StageControl
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Workers of the daemon that a server's content has compromised.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct WorkerSandboxTests {
    /// A process outside of the sandbox, with data that an attacker would look for, which starts the attacker.
    private static let bystander = """
        import os, socket, subprocess, sys
        program, place, version, inner = sys.argv[1:]
        os.chdir(place)
        for name in ['container', 'other', 'secrets', 'manifests']: os.mkdir(name)
        for name in ['other/file', 'secrets/key', 'manifests/manifest.json']:
            with open(name, 'w') as file: file.write('secret')
            os.chmod(name, 0o600)
        os.chmod('container', 0o755)
        hidden = socket.socket(socket.AF_UNIX)
        hidden.bind('\\0' + place)
        hidden.listen(1)
        named = socket.socket(socket.AF_UNIX)
        named.bind('bus')
        named.listen(1)
        server = socket.create_server(('127.0.0.1', 0))
        before = [os.stat(name) for name in ['other/file', 'secrets/key', 'manifests/manifest.json']]
        status = subprocess.run([program, 'worker', place + '/container',
                                 'file://' + place + '/manifests/manifest.json', '/usr/bin/python3', '-c',
                                 inner, place, version, str(os.getpid()),
                                 str(server.getsockname()[1])]).returncode
        for name, then in zip(['other/file', 'secrets/key', 'manifests/manifest.json'], before):
            now = os.stat(name)
            assert (now.st_mode, now.st_uid, now.st_mtime_ns, now.st_nlink, now.st_size) == \
                (then.st_mode, then.st_uid, then.st_mtime_ns, then.st_nlink, then.st_size), name
        assert os.listdir('other') == ['file'] and os.listdir('secrets') == ['key']
        assert sorted(os.listdir('.')) == ['bus', 'container', 'manifests', 'other', 'secrets']
        sys.exit(status)
        """

    /// The attempts of the attacker.
    private static let attacker = """
        import ctypes, errno, os, resource, socket, struct, subprocess, sys
        place, version, outer, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
        libc = ctypes.CDLL(None, use_errno=True)
        x86 = os.uname().machine == 'x86_64'
        def call(number, *arguments):
            given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
            ctypes.set_errno(0)
            return 0 if libc.syscall(ctypes.c_long(number), *given) >= 0 else ctypes.get_errno()
        def attempt(body):
            try: body()
            except OSError as error: return error.errno
            return 0
        def refused(body, *expected):
            found = attempt(body)
            assert found in (expected or (errno.EACCES,)), (found, expected)
        os.chdir(place + '/container')
        # Its own container, as a worker uses it.
        os.makedirs('staging/a')
        os.mkdir('generations')
        open('staging/a/file', 'w').write('content')
        os.rename('staging/a', 'generations/a')
        os.link('generations/a/file', 'linked')
        file = os.open('linked', os.O_RDWR)
        os.fchmod(file, 0o755)
        os.utime(file, (1, 1))
        assert subprocess.run(['/bin/true']).returncode == 0
        assert open(place + '/manifests/manifest.json').read() == 'secret'
        # No rights to leave behind, and no programs of its own.
        refused(lambda: os.fchmod(file, 0o4755), errno.EPERM)
        refused(lambda: os.open('made', os.O_CREAT | os.O_WRONLY, 0o4755))
        refused(lambda: os.mkdir('made', 0o2755), errno.EPERM)
        # The flags and mode of openat2(2) are in memory, so it makes the bit; nothing makes the file executable then.
        how = struct.pack('QQQ', os.O_CREAT | os.O_RDWR, 0o2705, 0)
        assert call(437, -100, b'set-group', how, len(how)) == 0
        group = os.open('set-group', os.O_RDWR)
        access = struct.pack('<I' + 'HHI' * 3, 2, 1, 7, 0xffffffff, 4, 5, 0xffffffff, 32, 5, 0xffffffff)
        refused(lambda: os.setxattr(group, 'system.posix_acl_access', access), errno.EOPNOTSUPP)
        refused(lambda: os.fchmod(group, 0o2755), errno.EPERM)
        os.remove('set-group')
        refused(lambda: os.mknod('made'), errno.EPERM)
        open('own', 'w').write('#!/bin/sh\\n')
        os.fchmod(os.open('own', os.O_RDONLY), 0o755)
        refused(lambda: os.execv('./own', ['own']))
        # Files of its user.
        for path in [place + '/secrets/key', place + '/other/file']:
            for flags in [os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_TRUNC, 3]:
                refused(lambda: os.open(path, flags))
            refused(lambda: os.truncate(path, 0))
            refused(lambda: os.remove(path))
            refused(lambda: os.rename(path, 'taken'), errno.EACCES, errno.EXDEV)
            refused(lambda: os.replace('own', path), errno.EACCES, errno.EXDEV)
            refused(lambda: os.link(path, 'taken'), errno.EACCES, errno.EXDEV)
            refused(lambda: os.chmod(path, 0o666), errno.EPERM)
            refused(lambda: os.chown(path, 1, 1), errno.EPERM)
            refused(lambda: os.utime(path, (1, 1)), errno.EPERM)
            refused(lambda: os.setxattr(path, 'user.a', b'b'), errno.EPERM)
            assert call(452, -100, path.encode(), 0o666, 0) == errno.EPERM
        for path in [place + '/made', place + '/secrets/authorized_keys', '/etc/made', '/tmp/made-by-a-worker']:
            refused(lambda: os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            refused(lambda: os.mkdir(path))
            refused(lambda: os.symlink('a', path))
        for path in [place, place + '/secrets', place + '/other', '/root', '/home', '/tmp']:
            refused(lambda: os.listdir(path))
        # A file that it may read is not emptied.
        for flags in [os.O_TRUNC, 3, os.O_WRONLY]:
            refused(lambda: os.open(place + '/manifests/manifest.json', flags))
        # Others are let write nothing: neither of its own, nor of what it reads.
        for path in ['own', place + '/manifests/manifest.json']:
            for mode in [0o666, 0o664, 0o777]:
                refused(lambda: os.fchmod(os.open(path, os.O_RDONLY), mode), errno.EPERM)
        # Processes of its user.
        refused(lambda: resource.prlimit(outer, resource.RLIMIT_CPU, (1, 1)), errno.EPERM)
        refused(lambda: os.setpriority(os.PRIO_PROCESS, outer, 19), errno.EPERM)
        refused(lambda: os.sched_setaffinity(outer, {0}), errno.EPERM)
        resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))
        refused(lambda: open('/proc/%d/mem' % outer, 'r+b'))
        refused(lambda: open('/proc/%d/environ' % outer, 'rb'))
        assert call(101 if x86 else 117, 16, outer, 0, 0) == errno.EPERM
        assert call(311 if x86 else 271, outer, None, 0, None, 0, 0) == errno.EPERM
        if version >= 6:
            refused(lambda: os.kill(outer, 0), errno.EPERM)
            refused(lambda: os.kill(outer, 9), errno.EPERM)
        # Services of this machine, by any kind of name.
        refused(lambda: socket.socket(socket.AF_UNIX), errno.EAFNOSUPPORT)
        refused(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), errno.EAFNOSUPPORT)
        refused(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15), errno.EAFNOSUPPORT)
        refused(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        for kind in [socket.SOCK_STREAM, socket.SOCK_SEQPACKET]:
            one, two = socket.socketpair(socket.AF_UNIX, kind)
            for end in range(2):
                for name in ['\\0' + place, place + '/bus']:
                    refused(lambda: one.connect(name), errno.EISCONN, errno.EPERM, errno.EPROTOTYPE,
                            errno.ECONNREFUSED if kind != socket.SOCK_STREAM else errno.EISCONN)
                two.close()
        assert call(425, 8, bytes(256)) == errno.ENOSYS
        # Servers.
        socket.create_connection(('127.0.0.1', port)).close()
        if version >= 4: refused(lambda: socket.create_server(('127.0.0.1', 0)))
        refused(lambda: socket.socket().listen(), errno.EACCES)
        # Keys, namespaces, mounts.
        assert call(250 if x86 else 219, 0, -4, 0) == errno.EPERM
        # System V objects, also those that other processes made.
        for number, other in [(29, 194), (30, 196), (31, 195), (64, 190), (65, 193), (66, 191), (220, 192),
                              (68, 186), (69, 189), (70, 188), (71, 187)]:
            assert call(number if x86 else other, -1, 0, 0, 0) == errno.EPERM, number
        assert call(272 if x86 else 97, 0x10000000) == errno.EPERM
        assert call(56 if x86 else 220, 0x10000011, 0, 0, 0, 0) == errno.EPERM
        assert call(435, bytes(88), 88) == errno.ENOSYS
        assert call(165 if x86 else 40, None, b'/', None, 0x1000, None) == errno.EPERM
        status = dict(line.split(':\\t') for line in open('/proc/self/status') if ':\\t' in line)
        assert status['NoNewPrivs'] == '1\\n' and status['Seccomp'] == '2\\n'
        # CAP_DAC_OVERRIDE and CAP_FOWNER at most.
        assert int(status['CapPrm'], 16) & ~0b1010 == 0, status
        """

    private static let versions: [OldKernel] = (2...6).map { .landlock(version: $0) }

    @Test(arguments: versions.filter(\.isSimulated))
    func aWorkerThatWasTakenOverReachesItsContainerAlone(on kernel: OldKernel) async throws {
        guard case .landlock(let version) = kernel else { return }
        let directory = try TemporaryDirectory.required()
        let path = try directory.makeDirectory("place").path.string
        let process = try StartedProcess(
            kernel.wrapper(in: directory) + [
                "/usr/bin/python3", "-c", Self.bystander,
                try BuiltProgram.path(ofTestProgram: "unpack-service").string, path, "\(version)",
                Self.attacker,
            ],
            log: directory.path.appending("log")
        )
        try await poll("it does not end") { process.status != nil }
        let said = try text(of: directory.path.appending("log"))
        #expect(process.status == 0, "\(said)")
    }

    @Test(arguments: StagingWorld.Kind.allCases)
    func theWorkerOfADaemonIsConfinedAsAWhole(_ kind: StagingWorld.Kind) async throws {
        let world = try await StagingWorld(kind)
        try await withDaemon(world) { client in
            _ = try await world.ask(client)
            try await world.wait(forMebibytes: 1)
            let workers = try world.workers()
            #expect(!workers.isEmpty)
            for worker in workers {
                let threads = try Directory.open(FilePath("/proc/\(worker)/task")).entries()
                #expect(threads.count > 1)
                for thread in threads {
                    let status = try text(
                        of: FilePath("/proc/\(worker)/task/\(thread.name)/status")
                    )
                    #expect(status.contains("NoNewPrivs:\t1"))
                    #expect(status.contains("Seccomp:\t2"))
                }
            }
        }
    }

    @Test func aWorkerReadsNoFileThatItsJobDoesNotName() async throws {
        var installed = try await Installed()
        let location = installed.world.directory
        let (manifests, others) = (
            try location.makeDirectory("manifests"), try location.makeDirectory("others")
        )
        var pack = try SamplePack.small(.aurora)
        pack.pack.policy = .onDemand
        let archive = others.path.appending("aurora.tar.zst")
        try others.write(pack.archive, to: "aurora.tar.zst", durably: false)
        pack.pack.archive?.url = "file://\(archive)"
        let manifest = manifests.path.appending("manifest.json")
        try manifests.write(
            try installed.world.manifest(of: [pack]),
            to: "manifest.json",
            durably: false
        )
        installed.registration.manifestURLs = ["file://\(manifest)"]
        try installed.install()
        try await withDaemon(&installed) { installed, client in
            let id = try await client.stage(["aurora"], of: installed)
            try await poll("it says no reason") {
                try await client.task(id).lastProblem != nil
            }
            let task = try await client.task(id)
            #expect(task.lastProblem?.contains("aurora.tar.zst") ?? false, "\(task)")
            let staged = try installed.staged()
            #expect(staged == [:])
            // The same file that the user's own command reads.
            let ending = try await installed.run(
                "fetch",
                "aurora",
                "--app",
                "net.example.wallpaper"
            )
            #expect(ending.status == 0, "\(ending)")
        }
    }

    @Test(
        .root("other users' workers go on without"),
        arguments: StagingWorld.Kind.allCases,
        [OldKernel.withoutLandlock, .landlock(version: 1), .withoutFilters]
    )
    func rootsWorkerDoesNothingWhereTheKernelCannotConfineIt(
        _ kind: StagingWorld.Kind,
        _ kernel: OldKernel
    ) async throws {
        let world = try await StagingWorld(kind, sending: .slowly(64 << 20))
        var installed = world.installed
        try installed.move(to: kernel)
        try await withDaemon(&installed) { _, client in
            _ = try await world.ask(client)
            try await poll("the session stays") { try await client.sessions().isEmpty }
        }
        #expect(try installed.staged() == [:])
        #expect(world.bytesSent == 0)
    }
}
