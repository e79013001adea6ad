import Glibc
package import StageSystem
import SystemPackage
import Testing

/// A kernel that lacks what later ones have, as far as a program can tell.
///
/// A system call filter in front of the program answers in place of the kernel: it reports an older version of Landlock, or
/// none. The program then requests fewer restrictions, and this machine's kernel enforces only those, as the old one would.
package enum OldKernel: Hashable, Sendable, CustomTestStringConvertible {
    /// A kernel with this version of Landlock.
    case landlock(version: Int)
    /// A kernel without Landlock.
    case withoutLandlock
    /// A kernel without filters of system calls.
    case withoutFilters
    /// A kernel that does not identify the process at the other end of a socket (before Linux 6.5).
    case withoutPeerProcesses

    /// The words for a test's arguments.
    package var testDescription: String {
        switch self {
        case .landlock(let version): "version \(version) of Landlock"
        case .withoutLandlock: "no Landlock"
        case .withoutFilters: "no filters of system calls"
        case .withoutPeerProcesses: "no processes of peers"
        }
    }

    /// `true` if this machine's kernel can simulate the old one.
    package var isSimulated: Bool {
        switch self {
        case .landlock(let version): version <= Confinement.supportedVersion
        case .withoutLandlock, .withoutFilters, .withoutPeerProcesses: true
        }
    }

    /// A wrapper that runs a program on this kernel; its script is written into the directory.
    package func wrapper(in directory: Directory) throws -> [String] {
        let path = directory.path.appending("old-kernel.py")
        if try directory.status("old-kernel.py") == nil {
            try directory.file(creating: "old-kernel.py").write(Array(Self.script.utf8).span, at: 0)
        }
        let mode =
            switch self {
            case .landlock(let version): "\(version)"
            case .withoutLandlock: "0"
            case .withoutFilters: "unfiltered"
            case .withoutPeerProcesses: "unnamed"
            }
        return ["/usr/bin/python3", path.string, mode]
    }

    /// Python that installs the filter and becomes the program.
    ///
    /// Another process, which ends with it, answers questions for the version (seccomp_unotify(2)).
    private static let script = """
        import ctypes, errno, fcntl, os, signal, struct, sys
        libc = ctypes.CDLL(None, use_errno=True)
        mode, program = sys.argv[1], sys.argv[2:]
        LOAD, EQUAL, ANSWER = 0x20, 0x15, 0x06
        ALLOW, ASK, ERROR = 0x7fff0000, 0x7fc00000, 0x00050000
        SECCOMP = 317 if os.uname().machine == 'x86_64' else 277
        PRCTL = 157 if os.uname().machine == 'x86_64' else 167
        def refuse(call, error):
            return [(EQUAL, 0, 1, call), (ANSWER, 0, 0, ERROR | error)]
        code = [(LOAD, 0, 0, 0)]
        if mode == 'unfiltered':
            code += refuse(SECCOMP, errno.ENOSYS)
            code += [(EQUAL, 0, 3, PRCTL), (LOAD, 0, 0, 16), (EQUAL, 0, 1, 22),
                     (ANSWER, 0, 0, ERROR | errno.EINVAL)]
        elif mode == 'unnamed':
            # getsockopt(2) of SO_PEERPIDFD at the level SOL_SOCKET.
            call = 55 if os.uname().machine == 'x86_64' else 209
            code += [(EQUAL, 0, 5, call), (LOAD, 0, 0, 24), (EQUAL, 0, 3, 1), (LOAD, 0, 0, 32),
                     (EQUAL, 0, 1, 77), (ANSWER, 0, 0, ERROR | errno.ENOPROTOOPT)]
        elif mode == '0':
            for call in [444, 445, 446]: code += refuse(call, errno.ENOSYS)
        else:
            # The version is asked for by a flag of landlock_create_ruleset(2).
            code += [(EQUAL, 0, 3, 444), (LOAD, 0, 0, 32), (EQUAL, 0, 1, 1), (ANSWER, 0, 0, ASK)]
        code.append((ANSWER, 0, 0, ALLOW))
        filter = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in code))
        class Program(ctypes.Structure):
            _fields_ = [('length', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
        given = Program(len(code), ctypes.addressof(filter))
        # A program that judges other processes must not be confined itself; root needs no promise.
        if mode != 'unnamed': libc.prctl(38, 1, 0, 0, 0)
        listener = libc.syscall(SECCOMP, 1, 8 if mode.isdigit() and mode != '0' else 0,
                                ctypes.byref(given))
        if listener < 0: sys.exit('seccomp: %s' % os.strerror(ctypes.get_errno()))
        if listener > 0 and os.fork() == 0:
            libc.prctl(1, signal.SIGKILL, 0, 0, 0)
            os.closerange(0, listener)
            while True:
                question = bytearray(80)
                try:
                    fcntl.ioctl(listener, 0xc0502100, question)
                    answer = struct.pack('QqiI', struct.unpack_from('Q', question)[0], int(mode), 0, 0)
                    fcntl.ioctl(listener, 0xc0182101, bytearray(answer))
                except OSError: pass
        if listener > 0: os.close(listener)
        os.execv(program[0], program)
        """
}
