import Glibc
import StageExtension
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Programs that try to reach beyond their sandbox by system calls.
@Suite(.directory, .landlock)
struct SystemCallTests {
    /// A system call, as Python, and the expected error.
    struct Attack: Sendable {
        var name: String
        var code: String
        var error: Errno

        init(_ name: String, _ code: String, _ error: Errno) {
            self.name = name
            self.code = code
            self.error = error
        }
    }

    /// Python that makes system calls by their names.
    ///
    /// `call` returns the error's number, 0 for success; `host` is the process of these tests.
    private static let prelude = """
        import ctypes, errno, fcntl, os, re, signal, socket, struct, subprocess, sys
        libc = ctypes.CDLL(None, use_errno=True)
        names = ['/usr/include/%s-linux-gnu/asm/unistd_64.h' % os.uname().machine,
                 '/usr/include/asm-generic/unistd.h']
        text = open([name for name in names if os.path.exists(name)][0]).read()
        numbers = {name: int(number) for name, number in
                   re.findall(r'#define __NR(?:3264)?_(\\w+) (\\d+)', text)}
        def call(name, *arguments):
            given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
            ctypes.set_errno(0)
            number = numbers.get(name, name)
            result = libc.syscall(ctypes.c_long(number), *given, *[ctypes.c_long(0)] * (6 - len(given)))
            return 0 if result >= 0 else ctypes.get_errno()
        def attempt(body):
            try:
                body()
            except OSError as error:
                return error.errno
            return 0
        host = \(getpid())
        supervisor = os.getppid()
        outside = b'/etc/fstab'
        limits = (ctypes.c_ulong * 2)(4, 4)
        code = (ctypes.c_char * 64)()

        """

    /// Runs the attacks, each in a process of its own, and expects their errors.
    private func expectRefused(_ attacks: [Attack]) async throws {
        let bench = try Bench()
        let lines = attacks.map {
            "    (\"\($0.name)\", lambda: \($0.code), \($0.error.rawValue)),"
        }
        let host = Bench.python(
            Self.prelude + """
                attacks = [
                \(lines.joined(separator: "\n"))
                ]
                wrong = []
                for name, attack, expected in attacks:
                    child = os.fork()
                    if child == 0: os._exit(attack())
                    found = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                    if found != expected: wrong.append((name, errno.errorcode.get(found, found)))
                if wrong: sys.exit(str(wrong))
                print('{"downloads":[]}')
                """
        )
        let outcome = await bench.outcome(host)
        #expect(outcome == .success([]))
    }

    private static let noSuchCall = Errno(rawValue: ENOSYS)
    private static let noTerminal = Errno(rawValue: ENOTTY)

    /// Calls that reach other processes.
    static let processes: [Attack] = [
        Attack("limit another process", "call('prlimit64', host, 7, limits, None)", .notPermitted),
        Attack("pin another process", "call('sched_setaffinity', host, 8, code)", .notPermitted),
        Attack(
            "schedule another process",
            "call('sched_setscheduler', host, 0, code)",
            .notPermitted
        ),
        Attack("renice another process", "call('setpriority', 0, host, 5)", .notPermitted),
        Attack("renice the user", "call('setpriority', 2, 0, 5)", .notPermitted),
        Attack("renice reading", "call('ioprio_set', 1, host, 0x6007)", .notPermitted),
        Attack("signal the host", "call('kill', host, 0)", .notPermitted),
        Attack("signal the supervisor", "call('kill', supervisor, 0)", .notPermitted),
        Attack("signal the first process", "call('kill', 1, 0)", .notPermitted),
        Attack("signal a thread", "call('tgkill', host, host, 0)", .notPermitted),
        Attack("signal by thread only", "call('tkill', host, 0)", .notPermitted),
        Attack("queue a signal", "call('rt_sigqueueinfo', host, 0, code)", .notPermitted),
        Attack(
            "have the kernel send a signal",
            "attempt(lambda: fcntl.fcntl(0, fcntl.F_SETOWN, host))",
            .notPermitted
        ),
        Attack(
            "choose the signal that the kernel sends",
            "attempt(lambda: fcntl.fcntl(0, fcntl.F_SETSIG, 9))",
            .notPermitted
        ),
        Attack("open a process", "call('pidfd_open', host, 0)", noSuchCall),
        Attack("signal an open process", "call('pidfd_send_signal', 0, 9, None, 0)", noSuchCall),
        Attack("take a descriptor", "call('pidfd_getfd', 0, 0, 0)", noSuchCall),
        Attack("read memory", "call('process_vm_readv', host, code, 0, code, 0, 0)", noSuchCall),
        Attack("write memory", "call('process_vm_writev', host, code, 0, code, 0, 0)", noSuchCall),
        Attack("trace", "call('ptrace', 0x4206, host, 0, 0)", .notPermitted),
        Attack("compare", "call('kcmp', host, host, 2, 0, 0)", noSuchCall),
        Attack("move pages", "call('move_pages', host, 0, 0, 0, 0, 0)", noSuchCall),
        Attack("outlive the supervisor", "call('prctl', 1, 0)", .invalidArgument),
        Attack("adopt orphans", "call('prctl', 36, 1)", .invalidArgument),
        Attack("become a sibling", "call('clone', 0x8000 | 17, 0, 0, 0, 0)", .notPermitted),
        Attack("leave the session", "call('setsid')", .notPermitted),
    ]

    /// Calls that reach sockets, keys and objects of the system.
    static let services: [Attack] = [
        Attack("a pair of datagrams", "call('socketpair', 1, 2, 0, code)", .permissionDenied),
        Attack("a raw pair", "call('socketpair', 1, 3, 0, code)", .permissionDenied),
        Attack("a pair of another family", "call('socketpair', 30, 1, 0, code)", .permissionDenied),
        Attack(
            "an address for a stream",
            "attempt(lambda: socket.socketpair()[0].sendto(b'a', 0, '/run/systemd/notify'))",
            .permissionDenied
        ),
        Attack(
            "an address for a stream, in the high half of the pointer",
            "call('sendto', 0, code, 1, 0, 1 << 32, 110)",
            .permissionDenied
        ),
        Attack("a connection", "call('connect', 0, code, 64)", .permissionDenied),
        Attack("a name", "call('bind', 0, code, 64)", .permissionDenied),
        Attack("a socket of keys", "call('socket', 38, 5, 0)", .permissionDenied),
        Attack("many messages", "call('sendmmsg', 0, code, 1, 0)", noSuchCall),
        Attack("the user's keyring", "call('keyctl', 0, -4, 0)", noSuchCall),
        Attack("a new key", "call('add_key', b'user', b'a', b'b', 1, -4)", noSuchCall),
        Attack("a key by name", "call('request_key', b'user', b'a', None, -4)", noSuchCall),
        Attack("shared memory", "call('shmget', 0, 4096, 0o1600)", noSuchCall),
        Attack("removed shared memory", "call('shmctl', 0, 0, 0)", noSuchCall),
        Attack("semaphores", "call('semget', 0, 1, 0o1600)", noSuchCall),
        Attack("messages", "call('msgget', 0, 0o1600)", noSuchCall),
        Attack("queues", "call('mq_open', b'a', 0o102, 0o600, 0)", noSuchCall),
    ]

    /// Calls that gain privileges, or reach kernel code that a program does not need.
    static let kernel: [Attack] = [
        Attack("a user namespace", "call('unshare', 0x10000000)", .notPermitted),
        Attack(
            "a clone in a user namespace",
            "call('clone', 0x10000011, 0, 0, 0, 0)",
            .notPermitted
        ),
        Attack("flags by pointer", "call('clone3', code, 64)", noSuchCall),
        Attack("another's namespace", "call('setns', 0, 0)", .notPermitted),
        Attack("faults in user space", "call('userfaultfd', 1)", noSuchCall),
        Attack("programs in the kernel", "call('bpf', 5, code, 64)", noSuchCall),
        Attack("counters", "call('perf_event_open', code, 0, -1, -1, 0)", noSuchCall),
        Attack("a ring", "call('io_uring_setup', 1, code)", noSuchCall),
        Attack("asynchronous reading", "call('io_setup', 1, code)", noSuchCall),
        Attack("a module", "call('init_module', code, 64, b'')", noSuchCall),
        Attack("a module in a file", "call('finit_module', 0, b'', 0)", noSuchCall),
        Attack("another kernel", "call('kexec_load', 0, 0, 0, 0)", noSuchCall),
        Attack("a mount", "call('mount', None, b'/', None, 0x1000, None)", .notPermitted),
        Attack("a mount by steps", "call('fsopen', b'tmpfs', 0)", noSuchCall),
        Attack("a copied mount", "call('open_tree', -100, b'/', 1)", noSuchCall),
        Attack("another root", "call('chroot', b'/')", .notPermitted),
        Attack("a handle", "call('name_to_handle_at', -100, b'/etc', code, code, 0)", noSuchCall),
        Attack("a file by its handle", "call('open_by_handle_at', -100, code, 0)", noSuchCall),
        Attack("quotas", "call('quotactl', 0x80000100, None, 0, code)", noSuchCall),
        Attack("swap", "call('swapon', b'/dev/null', 0)", noSuchCall),
        Attack("accounting", "call('acct', outside)", noSuchCall),
        Attack("a watch on the system", "call('fanotify_init', 0, 0)", noSuchCall),
        Attack("a watch on a directory", "call('inotify_init1', 0)", noSuchCall),
        Attack("a device", "call('mknodat', -100, b'a', 0o20666, 0x103)", .notPermitted),
        Attack("a whiteout", "call('renameat2', -100, b'a', -100, b'b', 4)", .invalidArgument),
        Attack("a file to execute in memory", "call('memfd_create', b'a', 1)", noSuchCall),
        Attack("an open file as program", "call('execveat', 0, b'', 0, 0, 0x1000)", noSuchCall),
        Attack(
            "flags of a file",
            "call('ioctl', os.open('/etc/passwd', 0), 0x40086602, code)",
            noTerminal
        ),
        Attack("verity", "call('ioctl', os.open('/etc/passwd', 0), 0x40806685, code)", noTerminal),
        Attack("a character for a terminal", "call('ioctl', 0, 0x5412, code)", noTerminal),
        Attack(
            "a lease",
            "attempt(lambda: fcntl.fcntl(os.open('/etc/passwd', 0), 1024, 0))",
            .notPermitted
        ),
        Attack(
            "notes of a directory",
            "attempt(lambda: fcntl.fcntl(os.open('/usr', 0), 1026, 1))",
            .notPermitted
        ),
        Attack("a filter of its own", "call('seccomp', 1, 8, code)", noSuchCall),
        Attack("another personality", "call('personality', 0x0400000)", .notPermitted),
        Attack("capabilities", "call('capset', code, code)", .notPermitted),
        Attack("another user", "call('setresuid', 1, 1, 1)", .notPermitted),
        Attack("opened without a right", "call('openat', -100, outside, 3)", .permissionDenied),
        Attack(
            "emptied by reading",
            "call('openat', -100, outside, os.O_TRUNC)",
            .permissionDenied
        ),
        Attack("flags by another pointer", "call('openat2', -100, outside, code, 24)", noSuchCall),
        Attack("attributes", "call('getxattr', b'/etc/passwd', b'user.a', code, 8)", .notSupported),
        Attack("a call of the x32 interface", "call(0x40000000 + 39)", noSuchCall),
    ]

    @Test func otherProcessesAreOutOfReach() async throws {
        try await expectRefused(Self.processes)
    }

    @Test func servicesAndObjectsAreOutOfReach() async throws {
        try await expectRefused(Self.services)
    }

    @Test func theKernelIsOutOfReach() async throws { try await expectRefused(Self.kernel) }

    #if arch(x86_64)
    /// Calls that this architecture has in addition to the common ones.
    static let older: [Attack] = [
        Attack("opened without a right", "call('open', outside, 3)", .permissionDenied),
        Attack("emptied by reading", "call('open', outside, os.O_TRUNC)", .permissionDenied),
        Attack("written", "call('open', outside, os.O_WRONLY)", .permissionDenied),
        Attack("created", "call('creat', outside, 0o644)", .permissionDenied),
        Attack("a device", "call('mknod', b'a', 0o20666, 0x103)", .notPermitted),
    ]

    @Test func olderCallsReachNoMore() async throws { try await expectRefused(Self.older) }
    #endif

    @Test func aCallThatNoTableNamesDoesNotExist() async throws {
        let bench = try Bench()
        let known = try CallTables().all.map { "'\($0)'" }.joined(separator: ",")
        let outcome = await bench.outcome(
            Bench.python(
                Self.prelude + """
                    known = {\(known)}
                    others = {name: number for name, number in numbers.items() if name not in known}
                    assert len(others) > 100, len(others)
                    others.update({number: number for number in range(470, 600)})
                    wrong = {name: call(number) for name, number in others.items()}
                    wrong = {name: found for name, found in wrong.items() if found != errno.ENOSYS}
                    if wrong: sys.exit('answered: %s' % wrong)
                    print('{"downloads":[]}')
                    """
            )
        )
        #expect(outcome == .success([]))
    }

    @Test func nothingReachesALocalService() async throws {
        let bench = try Bench()
        let path = bench.container.appending("service")
        let service = try DatagramSocket(at: path)
        let outcome = await bench.outcome(
            Bench.python(
                Self.prelude + """
                    path = '\(path)'
                    def datagrams():
                        socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'a', path)
                    def messages(kind):
                        one, other = socket.socketpair(socket.AF_UNIX, kind)
                        one.sendmsg([b'a'], [], 0, path)
                    attempt(datagrams)
                    for kind in [socket.SOCK_STREAM, socket.SOCK_SEQPACKET]:
                        attempt(lambda: messages(kind))
                        attempt(lambda: socket.socketpair(socket.AF_UNIX, kind)[0].connect(path))
                    print('{"downloads":[]}')
                    """
            )
        )
        #expect(outcome == .success([]))
        #expect(!service.hasReceived)
        _ = try bench.root.directory("shared")?.remove("service")
    }

    @Test func ofProcAProgramReadsNothingOfOthers() async throws {
        let bench = try Bench()
        let outcome = await bench.outcome(
            Bench.python(
                Self.prelude + """
                    assert open('/proc/self/cmdline').read()
                    assert open('/proc/%d/task/%d/status' % (os.getpid(), os.getpid())).read()
                    for path in ['/proc/%d/environ' % host, '/proc/%d/maps' % host, '/proc/1/environ']:
                        assert attempt(lambda: open(path).read()) in [errno.EACCES, errno.ENOENT], path
                    if os.getuid() != 0 or os.path.exists('/proc/1'): sys.exit('others are visible')
                    for path in ['keys', 'sys', 'timer_list', 'cmdline', str(os.getppid()), str(host)]:
                        assert not os.path.exists('/proc/' + path), path
                    others = [name for name in os.listdir('/proc') if name.isdigit()]
                    assert others == [str(os.getpid())], others
                    print('{"downloads":[]}')
                    """
            )
        )
        switch outcome {
        case .failure(.ended(_, .exited(1), standardError: "others are visible\n")):
            // Without the right to mount, the program sees the machine's `/proc`.
            #expect(geteuid() != 0, "root's containers without CAP_SYS_ADMIN cannot run this test")
        case .success, .failure: #expect(outcome == .success([]))
        }
    }

    @Test func theMachineKeepsItsProc() async throws {
        let bench = try Bench()
        #expect(await bench.outcome(Bench.shell(#"echo '{"downloads":[]}'"#)) == .success([]))
        #expect(FileStatus.exists("/proc/1/status") && FileStatus.exists("/proc/sys/kernel"))
    }

    @Test func standardInputIsNoProgram() async throws {
        let bench = try Bench()
        let outcome = await bench.outcome(
            Bench.python(
                Self.prelude + """
                    program = open('/bin/true', 'rb').read()
                    for path in ['/proc/self/fd/0', '/dev/stdin']:
                        assert attempt(lambda: open(path, 'wb').write(program)) != 0, path
                    assert attempt(lambda: os.pwrite(0, program, 0)) == errno.EPERM
                    os.chmod(0, 0o777)
                    assert attempt(lambda: os.execv('/proc/self/fd/0', ['a'])) == errno.EACCES
                    print('{"downloads":[]}')
                    """
            )
        )
        #expect(outcome == .success([]))
    }

    @Test func aProgramInADirectoryOfTheSystemReadsNothingBesideIt() async throws {
        let bench = try Bench()
        let folder = try Directory.open("/var/tmp")
        let name = FilePath("stagepack-test-\(UInt32.random(in: .min ... .max))")
        let script = """
            #!/bin/sh
            ls /var/tmp >/dev/null 2>&1 && exit 4
            echo '{"downloads":[]}'
            """
        let path = folder.path.pushing(name)
        try ProgramFile.write(script, to: path)
        let outcome = await bench.outcome(Bench.host(path.string))
        _ = try folder.remove(try #require(name.lastComponent))
        #expect(outcome == .success([]))
    }
}

/// A datagram socket at a path, such as local services have.
private final class DatagramSocket {
    private let descriptor: CInt

    init(at path: FilePath) throws {
        descriptor = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        unsafe withUnsafeMutableBytes(of: &address.sun_path) { buffer in
            for (index, byte) in path.string.utf8.enumerated() where index < buffer.count - 1 {
                unsafe buffer[index] = byte
            }
        }
        let length = socklen_t(MemoryLayout<sockaddr_un>.size)
        let status = unsafe withUnsafePointer(to: &address) { address in
            unsafe address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe bind(descriptor, address, length)
            }
        }
        try #require(status == 0)
    }

    deinit { close(descriptor) }

    /// Returns whether a datagram has arrived.
    var hasReceived: Bool {
        var byte: UInt8 = 0
        return unsafe recv(descriptor, &byte, 1, CInt(MSG_DONTWAIT)) >= 0
    }
}

/// The tables of system calls in `Sources/CLinux/calls.h`, as names.
struct CallTables {
    let allowed: Set<String>
    let checked: Set<String>
    let answered: Set<String>

    var all: Set<String> { allowed.union(checked).union(answered) }

    init() throws {
        let path = Repository.root.appending("Sources/CLinux/calls.h")
        let text = String(
            decoding: try File.open(reading: path).readAll(limit: 1 << 20),
            as: UTF8.self
        )
        func names(from start: String, to end: String) throws -> Set<String> {
            let head = try #require(text.firstRange(of: start))
            let rest = text[head.upperBound...]
            let tail = try #require(rest.firstRange(of: end))
            let names = rest[..<tail.lowerBound].matches(of: /SYS_(\w+)/).map { String($0.1) }
            return Set(names)
        }
        allowed = try names(from: "stage_allowed_calls[] = {", to: "};")
        answered = try names(from: "stage_answered_calls[] = {", to: "};")
        let signals = try names(from: "void stage_emit_signals(", to: "#endif")
        checked = try names(from: "stage_checked_calls[] = {", to: "};").union(signals)
    }
}
