import CLinux
import Glibc

/// System resources that a program needs at the same time, checked before it starts a thread.
///
/// The runtimes of Swift and libdispatch trap, or retry forever, if the system refuses a thread, a descriptor or
/// memory.
package struct ResourceRequirements: Sendable {
    /// Files that can be opened in addition to the open ones.
    package var files: Int
    /// Threads that can be started in addition to the calling one.
    package var threads: Int
    /// Bytes of address space in addition to the stacks of these threads.
    package var memory: Int

    /// A resource of which too little is available.
    package enum Shortage: Equatable, Sendable {
        /// The number of files that can be opened.
        case files(Int)
        /// The number of threads that can be started.
        case threads(Int)
        /// Memory is short.
        case memory
        /// `/proc` is not mounted, or shows other processes only (proc(5)).
        case procfs
        /// The kernel, or a filter of system calls, refuses openat2(2).
        case openat2
    }

    /// Creates the requirements; one more thread is added for each processor.
    package init(files: Int, threads: Int, memory: Int) {
        self.files = files
        self.threads = threads + max(sysconf(CInt(_SC_NPROCESSORS_ONLN)), 1)
        self.memory = memory
    }

    /// Returns the first resource of which the system has too little; `nil` if all are available.
    ///
    /// Allocates the threads and files for a moment, and frees them. A thread counts as one of the processes
    /// of `ulimit -u` and of the control group. Raises the soft limit of open files first, as far as the hard
    /// limit allows.
    package func shortage() -> Shortage? {
        // The margin covers files that are open already and those that the program inherited.
        stage_raise_files(UInt64(files) + 1024)
        var available: UInt32 = 0
        let missing = unsafe stage_provision_lacks(
            UInt32(clamping: files),
            UInt32(clamping: threads),
            memory,
            &available
        )
        return switch missing {
        case STAGE_PROVISION_FILES: .files(Int(available))
        case STAGE_PROVISION_THREADS: .threads(Int(available))
        case STAGE_PROVISION_MEMORY: .memory
        case STAGE_PROVISION_PROCFS: .procfs
        case STAGE_PROVISION_OPENAT2: .openat2
        default: nil
        }
    }

    /// The messages of a program that ends by a trap, each with its newline.
    package struct TrapMessages: Sendable {
        /// The system refuses to open files.
        package var files: StaticString
        /// The system refuses threads or processes.
        package var threads: StaticString
        /// The system refuses memory.
        package var memory: StaticString
        /// `/proc` does not show the process.
        package var procfs: StaticString
        /// The system refuses nothing: the program has a defect.
        package var otherwise: StaticString

        /// Creates the messages.
        package init(
            files: StaticString,
            threads: StaticString,
            memory: StaticString,
            procfs: StaticString,
            otherwise: StaticString
        ) {
            self.files = files
            self.threads = threads
            self.memory = memory
            self.procfs = procfs
            self.otherwise = otherwise
        }
    }

    /// Installs a trap handler that prints the reason on standard error.
    ///
    /// If the system refuses a resource at that moment, the process exits with `status`; otherwise the signal
    /// ends it. Does nothing if `SWIFT_BACKTRACE` is set, which configures Swift's own reports.
    package static func explainTraps(_ messages: TrapMessages, status: Int32) {
        guard unsafe ProcessEnvironment.pointer(to: "SWIFT_BACKTRACE") == nil else { return }
        var trap = unsafe stage_trap_words()
        unsafe trap.files = messages.files.cString
        unsafe trap.threads = messages.threads.cString
        unsafe trap.memory = messages.memory.cString
        unsafe trap.procfs = messages.procfs.cString
        unsafe trap.otherwise = messages.otherwise.cString
        unsafe trap.status = status
        unsafe stage_catch_traps(&trap)
    }
}
