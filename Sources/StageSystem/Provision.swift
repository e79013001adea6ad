import CLinux
import Glibc

/// The resources that a program needs of the system at once, looked for before it starts a thread.
///
/// The runtimes of Swift and of libdispatch end the process by a trap, or try again for ever, where the system
/// refuses a thread, a descriptor or memory.
public struct Provision: Sendable {
    /// The files that can be opened beside those that are open.
    public var files: Int
    /// The threads that can be started beside the one that asks.
    public var threads: Int
    /// The bytes of address space beside the stacks of these threads.
    public var memory: Int

    /// A resource that the system does not give.
    public enum Shortage: Equatable, Sendable {
        /// So many files can be opened.
        case files(Int)
        /// So many threads can be started.
        case threads(Int)
        /// There is not enough memory.
        case memory
        /// `/proc` is not mounted, or is that of other processes (proc(5)).
        case procfs
    }

    /// Creates a need of `threads`, and of one more for each processor.
    public init(files: Int, threads: Int, memory: Int) {
        self.files = files
        self.threads = threads + max(sysconf(CInt(_SC_NPROCESSORS_ONLN)), 1)
        self.memory = memory
    }

    /// Returns what the system does not give now; `nil` if it gives everything.
    ///
    /// Takes the threads and files for a moment, and gives them back. A thread is one of the processes that
    /// `ulimit -u` and the control group count. The soft limit of files is raised before, as far as the hard one
    /// allows.
    public func shortage() -> Shortage? {
        // What is open already is few; what a program inherits may be more.
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
        default: nil
        }
    }

    /// The lines of a program that ends by a trap, each with its end.
    public struct TrapWords: Sendable {
        /// The system refuses to open files.
        public var files: StaticString
        /// The system refuses threads and processes.
        public var threads: StaticString
        /// The system refuses memory.
        public var memory: StaticString
        /// `/proc` does not show the process.
        public var procfs: StaticString
        /// The system refuses nothing: the program is wrong.
        public var otherwise: StaticString

        /// Creates the words.
        public init(
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

    /// Has the process, where it ends by a trap, say why on standard error; it ends with `status` where the system
    /// refuses it something at that moment, else by the signal.
    ///
    /// An environment that says how Swift is to report traps is obeyed.
    public static func explainTraps(_ words: TrapWords, status: Int32) {
        guard unsafe ProcessEnvironment.pointer(to: "SWIFT_BACKTRACE") == nil else { return }
        var trap = unsafe stage_trap_words()
        unsafe trap.files = words.files.cString
        unsafe trap.threads = words.threads.cString
        unsafe trap.memory = words.memory.cString
        unsafe trap.procfs = words.procfs.cString
        unsafe trap.otherwise = words.otherwise.cString
        unsafe trap.status = status
        unsafe stage_catch_traps(&trap)
    }
}
