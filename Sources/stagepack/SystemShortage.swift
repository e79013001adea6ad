import StageModel
import StagePack
import StageSystem

/// Check for the resources that the program needs to start, with the messages for missing ones.
enum SystemShortage {
    /// The resources that every command needs.
    ///
    /// With less, the runtime libraries trap or wait forever; with these, a large run that needs more fails
    /// with an error.
    private static let need = ResourceRequirements(files: 48, threads: 8, memory: 128 << 20)

    private static func hint(for shortage: ResourceRequirements.Shortage) -> String {
        switch shortage {
        case .procfs: "mount it: 'mount -t proc proc /proc'"
        case .openat2: openat2Hint
        case .files, .threads, .memory: limitHint
        }
    }

    /// The recommended action if a limit is too low.
    static let limitHint =
        "raise the limits of open files, processes and memory: see 'ulimit -a', and 'pids.max' and 'memory.max' "
        + "of the container or service"

    /// The recommended action if openat2(2) is refused.
    private static let openat2Hint =
        "it needs Linux 5.6 or later; the filter of system calls of a container has to permit it, and a service must not "
        + "set 'RestrictSUIDSGID='"

    /// Exits if a required resource is missing.
    ///
    /// Otherwise prepares messages for traps that a later shortage causes; in a hook, the guard prints them.
    static func endIfAny(isHook: Bool) {
        guard let shortage = need.shortage() else {
            if !isHook {
                ResourceRequirements.explainTraps(
                    trapWords,
                    status: ExitStatus.systemShortage.rawValue
                )
            }
            return
        }
        let failure = CommandFailure(
            status: .systemShortage,
            message: message(for: shortage),
            hint: hint(for: shortage),
            retryAdvice: .later
        )
        failure.endProgram(isHook: isHook)
    }

    private static func message(for shortage: ResourceRequirements.Shortage) -> String {
        switch shortage {
        case .files(let count):
            "only \(count.quantity(of: "more file")) can be opened, and \(need.files) are needed"
        case .threads(let count):
            "only \(count.quantity(of: "thread")) can be started, and \(need.threads) are needed"
        case .memory:
            "the system refused to allocate the required memory"
        case .procfs:
            "'/proc' does not show this process"
        case .openat2:
            "the system refuses openat2(2), which keeps paths inside their directories"
        }
    }

    /// The messages of the guard of a hook.
    static let hookWords = HookGuard.Messages(
        late: """
            stagepack: hook: the run did not stop at its deadline and was killed; the next periodic run retries

            """,
        diedOf: "stagepack: hook: the run was ended by signal ",
        died: """
            , as happens without enough memory, processes or open files: see 'ulimit -a', and 'pids.max' and \
            'memory.max' of the container or service; the next periodic run retries

            """,
        alone: """
            stagepack: hook: nothing staged: the system refused to start a process: see 'ulimit -u', and 'pids.max' \
            and 'memory.max' of the container or service; the next periodic run retries

            """,
        interrupted: "stagepack: hook: interrupted; the next periodic run retries\n",
        statuses: (
            late: ExitStatus.unfinished.rawValue,
            died: ExitStatus.systemShortage.rawValue,
            interrupted: ExitStatus.interrupted.rawValue
        )
    )

    private static let trapWords = ResourceRequirements.TrapMessages(
        files: """
            stagepack: error: the system refused to open another file
            hint: raise the limit: see 'ulimit -n'

            """,
        threads: """
            stagepack: error: the system refused to start another thread or process
            hint: raise the limit: see 'ulimit -u', and 'pids.max' of the container or service

            """,
        memory: """
            stagepack: error: the system refused to allocate memory
            hint: raise the limit: see 'ulimit -v', and 'memory.max' of the container or service

            """,
        procfs: """
            stagepack: error: '/proc' no longer shows this process
            hint: mount it: 'mount -t proc proc /proc'

            """,
        otherwise: """
            stagepack: error: internal error
            hint: report it, with the messages above

            """
    )
}
