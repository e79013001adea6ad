import FoundationEssentials
import Glibc

/// The environment of this process, as far as the process believes it.
///
/// The only place that reads the environment. An ordinary process believes all of it: it is the user's
/// own. A privileged process believes the variables of ``rules`` and nothing else, because package hooks,
/// `su` and timers pass on the environment of a user who may not decide what root reads, runs and
/// trusts. The same things can be named on root's own command line.
public enum ProcessEnvironment {
    /// The variables that this process believes.
    public static var current: [String: String] {
        believed(ProcessInfo.processInfo.environment, isPrivileged: isPrivileged)
    }

    /// Whether this process can do more than the user who started it may be able to: it acts as root, or
    /// as another user or group than the one that started it.
    public static var isPrivileged: Bool {
        geteuid() == 0 || getuid() != geteuid() || getgid() != getegid()
    }

    /// Returns where the value of a variable is, without memory for a copy of it; `nil` if it is not set.
    ///
    /// For variables that every process believes, and for the time in which nothing changes the environment.
    static func pointer(to name: StaticString) -> UnsafePointer<CChar>? {
        unsafe UnsafePointer(getenv(name.cString))
    }

    /// Returns the variables that a process believes, by the rules for its privilege.
    public static func believed(
        _ variables: [String: String],
        isPrivileged: Bool
    ) -> [String: String] {
        guard isPrivileged else { return variables }
        var believed = variables.filter { name, value in rules[name]?(value) ?? false }
        believed["PATH"] = path
        return believed
    }

    /// The directories in which a privileged process looks for programs, whatever `PATH` says.
    public static let path = "/usr/sbin:/usr/bin:/sbin:/bin"

    /// Removes the variables that this process does not believe, so that no library reads them.
    ///
    /// To be called first in a program, before there is a second thread and before a library looks at
    /// its variables: OpenSSL loads code that `OPENSSL_CONF` names, libcurl writes to the file of
    /// `SSLKEYLOGFILE`, the resolver reads that of `HOSTALIASES`. What was read before is undone: Swift's
    /// handlers for crashes, which start the program of `SWIFT_BACKTRACE`. What the loader has obeyed by
    /// then (`LD_PRELOAD`, `LD_LIBRARY_PATH`) cannot be undone; `su` and `sudo` remove it.
    public static func clean() {
        guard isPrivileged else { return }
        let believed = current
        for name in ProcessInfo.processInfo.environment.keys where believed[name] == nil {
            unsafe _ = unsetenv(name)
        }
        unsafe _ = setenv("PATH", path, 1)
        for signal in [SIGQUIT, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP] {
            _ = Glibc.signal(signal, SIG_DFL)
        }
    }

    /// The variables that a privileged process believes, each with what its value must be.
    ///
    /// The reason of each is in the table of `README.md`.
    private static let rules: [String: @Sendable (String) -> Bool] = {
        let any: @Sendable (String) -> Bool = { _ in true }
        var rules = Dictionary(
            uniqueKeysWithValues: [
                // They keep a run from the network, or shorten it.
                "STAGEPACK_OFFLINE", "STAGEPACK_HOOK_DEADLINE", "DPKG_MAINTSCRIPT_NAME",
                // Digests and TLS hold whatever a proxy does; this machine is never asked through one.
                "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy",
                "NO_PROXY",
                // The service manager's (sd_notify(3), sd_listen_fds(3)).
                "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS",
                "LISTEN_FDNAMES",
                // How output is laid out.
                "TERM", "COLUMNS",
            ]
            .map { ($0, any) }
        )
        // No daemon is asked; that another one is, is not the environment's to say.
        rules["STAGEPACK_SOCKET"] = { $0.isEmpty }
        // The daemon's own, for the handlers that it starts: a daemon ignores a launch that it does not
        // know.
        rules["STAGEPACK_SESSION"] = { $0.utf8.count <= 1024 }
        rules["STAGEPACK_LAUNCH"] = { $0.utf8.count <= 64 }
        return rules
    }()
}
