import CLinux
import Glibc
package import SystemPackage

/// A confinement that a process applies to itself, permanently, before it processes data from servers.
///
/// Landlock takes away access to all other files, binding of ports and, from version 6 on, signals to
/// processes outside and their abstract sockets. A system call filter (`stage_filter_worker`) takes away what
/// Landlock does not cover: sockets of local services, changes of modes and owners by path, memory of other
/// processes, keys, and parts of the kernel. Child processes inherit the confinement.
package struct ProcessSandbox: Equatable, Sendable {
    /// Files and directories that may be read; those that do not exist are skipped.
    package var readable: [FilePath]
    /// Files and directories that may be read and executed; those that do not exist are skipped.
    package var executable: [FilePath]
    /// Directories in which everything except executing is allowed; they must exist.
    package var writable: [FilePath]

    /// Creates a sandbox from the files that stay accessible.
    package init(readable: [FilePath], executable: [FilePath], writable: [FilePath]) {
        self.readable = readable
        self.executable = executable
        self.writable = writable
    }

    /// The first version of Landlock that allows renaming files between directories (Linux 5.19).
    private static let firstVersion = 2

    /// The restrictions that the kernel supports.
    package static var supported: Sandbox.Restrictions {
        Sandbox.Restrictions(
            files: Confinement.supportedVersion >= firstVersion,
            calls: Confinement.supportsFilter
        )
    }

    /// Confines the calling thread, which must be the only one of its process, permanently.
    ///
    /// Disables new privileges, and drops all capabilities except those for files of other users
    /// (`CAP_DAC_OVERRIDE`, `CAP_FOWNER`), which Landlock limits.
    ///
    /// - Returns: The restrictions that are in force: those of ``supported``.
    /// - Throws: ``FileError`` if the process has other threads, a directory of ``writable`` cannot be
    ///   opened, or the kernel supports a restriction and refuses to apply it.
    package func enter() throws(FileError) -> Sandbox.Restrictions {
        guard try Directory.open("/proc/self/task").entries().count == 1 else {
            throw FileError("confine", path: "/proc/self", errno: .resourceBusy)
        }
        let restrictions = Self.supported
        try Directory.attempt("confine", at: "/proc/self") { stage_no_new_privileges() }
        if restrictions.files {
            let ruleset = try files.ruleset(allowsConnections: true)
            try Directory.attempt("confine", at: "/proc/self") {
                stage_landlock_restrict(ruleset.descriptor)
            }
        }
        try Directory.attempt("confine", at: "/proc/self") {
            stage_keep_capabilities(1 << UInt32(CAP_DAC_OVERRIDE) | 1 << UInt32(CAP_FOWNER))
        }
        if restrictions.calls {
            try Directory.attempt("confine", at: "/proc/self") { stage_filter_worker() }
        }
        return restrictions
    }

    /// Keeps other processes of the user from tracing this process and from its open files and its environment.
    ///
    /// Processes that were quicker have them already.
    package static func forbidTracing() { stage_forbid_tracing() }

    /// The files as a sandbox without resource limits.
    private var files: Sandbox {
        Sandbox(
            readable: readable,
            executable: executable,
            writable: writable,
            addressSpace: .max,
            fileSize: .max,
            cpuSecondLimit: .max
        )
    }
}
