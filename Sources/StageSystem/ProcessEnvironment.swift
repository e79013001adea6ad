import CLinux
import FoundationEssentials
import Glibc

/// The environment variables of this process, as far as the process trusts them.
///
/// This is the only code that reads the environment. An ordinary process trusts all variables: they are the
/// user's own. A privileged process trusts only the variables of `stage_accepts_variable`, because package hooks,
/// `su` and timers pass on the environment of a user who must not decide which files root reads, runs and
/// trusts. Root can set the same things on the command line.
package enum ProcessEnvironment {
    /// The variables that this process trusts.
    package static var current: [String: String] {
        trusted(ProcessInfo.processInfo.environment, isPrivileged: isPrivileged)
    }

    /// Indicates whether this process may have more rights than the user who started it.
    ///
    /// Such a process runs as root, or as another user or group.
    package static var isPrivileged: Bool {
        stage_is_privileged() != 0
    }

    /// Returns a pointer to the value of a variable, without copying it; `nil` if it is not set.
    ///
    /// For variables that every process trusts. The pointer is valid until the environment changes.
    static func pointer(to name: StaticString) -> UnsafePointer<CChar>? {
        unsafe UnsafePointer(getenv(name.cString))
    }

    /// Returns the variables that a process trusts, depending on its privileges.
    package static func trusted(
        _ variables: [String: String],
        isPrivileged: Bool
    ) -> [String: String] {
        guard isPrivileged else { return variables }
        var trusted = variables.filter { name, value in
            unsafe "\(name)=\(value)".withCString { unsafe stage_accepts_variable($0) } != 0
        }
        trusted["PATH"] = path
        return trusted
    }

    /// Variables whose values are paths, or lead to paths.
    static let pathVariables: [StaticString] = [
        "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TMPDIR",
        "STAGEPACK_SOCKET", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "STATE_DIRECTORY",
        "RUNTIME_DIRECTORY",
        "CONFIGURATION_DIRECTORY",
    ]

    /// The fixed value of `PATH` in a privileged process.
    package static let path = "/usr/sbin:/usr/bin:/sbin:/bin"

    /// Removes the variables that this process does not trust, so that no library reads them.
    ///
    /// Call it first in a program, before a second thread starts and before a library reads its variables:
    /// OpenSSL loads the code that `OPENSSL_CONF` names, libcurl writes to the file of `SSLKEYLOGFILE`, and
    /// the resolver reads the file of `HOSTALIASES`. In programs that link `ProgramStart`, the variables are
    /// removed before libraries read them, even those that do so before `main`; in others, this also removes
    /// Swift's crash handlers, which start the program of `SWIFT_BACKTRACE`. Variables that the dynamic
    /// loader has obeyed (`LD_PRELOAD`, `LD_LIBRARY_PATH`) have taken effect by then; `su` and `sudo` remove
    /// them.
    package static func clean() {
        guard isPrivileged else { return }
        stage_clean_environment()
        unsafe _ = setenv("PATH", path, 1)
    }
}
