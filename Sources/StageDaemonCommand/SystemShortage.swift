import Glibc
import StageModel
import StageSystem

/// Check for the resources that the daemon needs to start, with the messages for missing ones.
enum SystemShortage {
    /// Required resources: descriptors for the daemon itself, four for each transfer, and as many again for clients;
    /// and threads.
    ///
    /// libdispatch traps if descriptors run out. With these it does not happen, since clients get at most half of
    /// them.
    private static let need = ResourceRequirements(files: 256, threads: 12, memory: 128 << 20)

    /// Exit status if the system refuses a resource (`EX_OSERR`).
    private static let status: Int32 = 71

    /// Ends the program if a required resource is missing.
    ///
    /// Otherwise prepares messages for traps that a later shortage causes.
    static func endIfAny() {
        guard let shortage = need.shortage() else {
            return ResourceRequirements.explainTraps(trapWords, status: status)
        }
        let message =
            switch shortage {
            case .files(let count):
                "only \(count.quantity(of: "more file")) can be opened, and \(need.files) are needed: raise the limit "
                    + "('ulimit -n', LimitNOFILE= of the service)"
            case .threads(let count):
                "only \(count.quantity(of: "thread")) can be started, and \(need.threads) are needed: raise the limit "
                    + "('ulimit -u', TasksMax= of the service)"
            case .memory:
                "the system refused to allocate the required memory: raise the limit "
                    + "('ulimit -v', LimitAS= of the service)"
            case .procfs:
                "'/proc' does not show this process: mount it ('mount -t proc proc /proc')"
            case .openat2:
                "the system refuses openat2(2): it needs Linux 5.6 or later; the filter of system calls of a container has "
                    + "to permit it, and a service must not set 'RestrictSUIDSGID='"
            }
        DaemonCommand.report(message)
        Glibc.exit(status)
    }

    private static let trapWords = ResourceRequirements.TrapMessages(
        files: """
            stagepackd: error: the system refused to open another file: raise the limit ('ulimit -n', LimitNOFILE= of \
            the service)

            """,
        threads: """
            stagepackd: error: the system refused to start another thread: raise the limit ('ulimit -u', TasksMax= of \
            the service)

            """,
        memory: """
            stagepackd: error: the system refused to allocate memory: raise the limit ('ulimit -v', LimitAS= or \
            MemoryMax= of the service)

            """,
        procfs: """
            stagepackd: error: '/proc' no longer shows this process: mount it ('mount -t proc proc /proc')

            """,
        otherwise:
            "stagepackd: error: internal error: report it, with the messages above\n"
    )
}
