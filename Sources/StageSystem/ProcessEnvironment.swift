import CLinux
import FoundationEssentials
import Glibc

/// The environment of this process, as far as the process believes it.
///
/// The only place that reads the environment. An ordinary process believes all of it: it is the user's
/// own. A privileged process believes the variables of `stage_is_believed` and nothing else, because package hooks,
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
        stage_is_privileged() != 0
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
        var believed = variables.filter { name, value in
            unsafe "\(name)=\(value)".withCString { unsafe stage_is_believed($0) } != 0
        }
        believed["PATH"] = path
        return believed
    }

    /// The variables that name files and directories, or lead to them.
    static let pathVariables: [StaticString] = [
        "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TMPDIR",
        "STAGEPACK_SOCKET", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "STATE_DIRECTORY",
        "RUNTIME_DIRECTORY",
        "CONFIGURATION_DIRECTORY",
    ]

    /// The directories in which a privileged process looks for programs, whatever `PATH` says.
    public static let path = "/usr/sbin:/usr/bin:/sbin:/bin"

    /// Removes the variables that this process does not believe, so that no library reads them.
    ///
    /// To be called first in a program, before there is a second thread and before a library looks at
    /// its variables: OpenSSL loads code that `OPENSSL_CONF` names, libcurl writes to the file of
    /// `SSLKEYLOGFILE`, the resolver reads that of `HOSTALIASES`. Libraries that read theirs before `main`
    /// find none of them in programs that link `ProgramStart`; in others, Swift's handlers of crashes, which
    /// start the program of `SWIFT_BACKTRACE`, are removed here. What the loader has obeyed by then
    /// (`LD_PRELOAD`, `LD_LIBRARY_PATH`) cannot be undone; `su` and `sudo` remove it.
    public static func clean() {
        guard isPrivileged else { return }
        stage_clean_environment()
        unsafe _ = setenv("PATH", path, 1)
    }
}
