import CLinux
import Glibc
public import SystemPackage

/// The files that a process leaves itself before it works on what servers send, when it confines itself for
/// good.
///
/// Landlock takes all other files from it, the binding of ports, and where it can (version 6) signals to processes
/// outside and their abstract sockets. A filter of system calls (`stage_filter_worker`) takes what Landlock does
/// not know: sockets of this machine's services, modes and owners by path, other processes' memory, keys, and
/// parts of the kernel. What the process starts has no more than it.
public struct ProcessSandbox: Equatable, Sendable {
    /// The files and directories that may be read; those that do not exist are passed over.
    public var readable: [FilePath]
    /// The files and directories that may be read and executed; those that do not exist are passed over.
    public var executable: [FilePath]
    /// The directories in which everything but executing is allowed; they have to exist.
    public var writable: [FilePath]

    /// Creates a sandbox from the files that it leaves.
    public init(readable: [FilePath], executable: [FilePath], writable: [FilePath]) {
        self.readable = readable
        self.executable = executable
        self.writable = writable
    }

    /// The first version of Landlock that lets files be renamed from one directory to another (Linux 5.19).
    private static let firstVersion = 2

    /// The restrictions that the kernel has.
    public static var supported: Sandbox.Restrictions {
        Sandbox.Restrictions(
            files: Confinement.supportedVersion >= firstVersion,
            calls: Confinement.supportsFilter
        )
    }

    /// Confines the calling thread, which must be the only one of its process, for good.
    ///
    /// Gives up new privileges, and of the capabilities all but those to files of other users (`CAP_DAC_OVERRIDE`,
    /// `CAP_FOWNER`), which Landlock limits.
    ///
    /// - Returns: The restrictions that are in force: those of ``supported``.
    /// - Throws: ``FileError`` if the process has other threads, a directory of ``writable`` cannot be opened, or
    ///   the kernel has a restriction and refuses it.
    public func enter() throws(FileError) -> Sandbox.Restrictions {
        guard try Directory.open("/proc/self/task").entries().count == 1 else {
            throw FileError("confine", "/proc/self", .resourceBusy)
        }
        let restrictions = Self.supported
        try Directory.attempt("confine", "/proc/self") { stage_no_new_privileges() }
        if restrictions.files {
            let ruleset = try files.ruleset(allowsConnections: true)
            try Directory.attempt("confine", "/proc/self") {
                stage_landlock_restrict(ruleset.descriptor)
            }
        }
        try Directory.attempt("confine", "/proc/self") {
            stage_keep_capabilities(1 << UInt32(CAP_DAC_OVERRIDE) | 1 << UInt32(CAP_FOWNER))
        }
        if restrictions.calls {
            try Directory.attempt("confine", "/proc/self") { stage_filter_worker() }
        }
        return restrictions
    }

    /// The files, without limits on what is used.
    private var files: Sandbox {
        Sandbox(
            readable: readable,
            executable: executable,
            writable: writable,
            addressSpace: .max,
            fileSize: .max,
            processorSeconds: .max
        )
    }
}
