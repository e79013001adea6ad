import StageTesting
import SystemPackage
import Testing

/// File systems that respond to no request except the kernel's first one, as a user can mount them (fuse(4)).
///
/// A process that waits for a response to a request that was read cannot be killed.
enum SilentMounts {
    /// A program in Python that mounts one on each file and directory that its arguments name.
    ///
    /// Writes `mounted` then, and `request` for each request that it does not answer; lives as long as its parent.
    /// With its end, requests fail.
    static let program = """
        import ctypes, os, select, struct, sys
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(1, 9)
        held = select.poll()
        for path in sys.argv[1:]:
            mode = b'40000' if os.path.isdir(path) else b'100000'
            device = os.open('/dev/fuse', os.O_RDWR)
            options = b'fd=%d,rootmode=%b,user_id=65534,group_id=65534,allow_other' % (device, mode)
            if libc.mount(b'silent', path.encode(), b'fuse', 6, options):
                sys.exit(os.strerror(ctypes.get_errno()))
            held.register(device, select.POLLIN)
        print('mounted', flush=True)
        while True:
            for device, events in held.poll():
                if not events & select.POLLIN:
                    # Not mounted any more.
                    held.unregister(device)
                    continue
                request = os.read(device, 1 << 18)
                operation, identifier = struct.unpack_from('<IQ', request, 4)
                if operation != 26: # FUSE_INIT
                    print('request', flush=True)
                    continue
                readahead = struct.unpack_from('<I', request, 48)[0]
                body = struct.pack('<IIIIHHI', 7, 31, readahead, 0, 16, 12, 1 << 16).ljust(64, b'\\0')
                os.write(device, struct.pack('<IiQ', 16 + len(body), 0, identifier) + body)
        """

    /// Mounts one on a place, for all processes; returns the process that serves it.
    ///
    /// The mount stays until it is removed. `mounts.log` in the daemon's directory has the output of the program.
    static func mount(
        on path: FilePath,
        for daemon: DaemonProcess
    ) async throws -> StartedProcess {
        let log = Self.log(of: daemon)
        let limited = ["/usr/bin/timeout", "600", "/usr/bin/python3", "-c", program]
        let mounts = try StartedProcess(limited + [path.string], log: log)
        try await poll("nothing is mounted") { try text(of: log) == "mounted\n" }
        return mounts
    }

    /// Returns the number of requests to the file systems so far.
    static func requestCount(for daemon: DaemonProcess) throws -> Int {
        try text(of: log(of: daemon)).split(separator: "\n").count(where: { $0 == "request" })
    }

    private static func log(of daemon: DaemonProcess) -> FilePath {
        daemon.directory.appending("mounts.log")
    }
}
