import CLinux
import Glibc
package import SystemPackage

/// An untrusted program that runs in a ``Sandbox``, with given input, a deadline and limits.
package struct SandboxedProgram: Sendable {
    /// The absolute path of the executable.
    package var path: FilePath
    /// The arguments, without the program name.
    package var arguments: [String]
    /// The complete environment.
    package var environment: [String: String]
    /// The working directory.
    package var directory: FilePath
    /// The files that the program may access, and its resource limits.
    package var sandbox: Sandbox
    /// The restrictions without which the program is not started.
    package var required: Sandbox.Restrictions
    /// The longest run time; the time in which the machine is suspended does not count.
    package var timeLimit: Duration
    /// The maximum number of bytes of the standard output.
    package var outputLimit: Int

    /// The number of bytes that are kept from the end of the program's standard error.
    private static let errorLimit = 4 << 10

    /// Creates a program with its limits.
    package init(
        path: FilePath,
        arguments: [String],
        environment: [String: String],
        directory: FilePath,
        sandbox: Sandbox,
        required: Sandbox.Restrictions = .required,
        timeLimit: Duration,
        outputLimit: Int = 1 << 20
    ) {
        self.path = path
        self.arguments = arguments
        self.environment = environment
        self.directory = directory
        self.sandbox = sandbox
        self.required = required
        self.timeLimit = timeLimit
        self.outputLimit = outputLimit
    }

    /// The reason why a program ended.
    package enum Ending: Hashable, Sendable {
        /// The program ended by itself, or another process killed it.
        case ended(ChildProcess.Ending)
        /// The program was killed at its deadline.
        case deadlineExceeded
        /// The program was killed because it wrote more than ``outputLimit``.
        case tooMuchOutput
        /// The ``KillSwitch`` was pulled.
        case killed
        /// The program was killed, or not started, because a file system that it writes to is nearly full.
        case diskNearlyFull
        /// The program was not started: the kernel lacks a required restriction.
        case notConfined
    }

    /// The result of running a program.
    package struct Outcome: Hashable, Sendable {
        /// The reason why the program ended.
        package var ending: Ending
        /// The standard output of the program.
        package var output: [UInt8]
        /// The end of the standard error of the program.
        package var errorTail: [UInt8]
        /// The restrictions that the kernel applied.
        package var restrictions: Sandbox.Restrictions

        /// The outcome of a program that was not started because the kernel lacks a required restriction.
        static func notConfined(_ restrictions: Sandbox.Restrictions) -> Outcome {
            Outcome(ending: .notConfined, output: [], errorTail: [], restrictions: restrictions)
        }

        /// The outcome of a program that was not started because its file system is nearly full.
        static let diskNearlyFull = Outcome(
            ending: .diskNearlyFull,
            output: [],
            errorTail: [],
            restrictions: .all
        )
    }

    /// Starts the program with `input` as its standard input, and waits until it has ended.
    ///
    /// Blocks the calling thread. All processes of the program end before this returns, and when the calling
    /// process dies: a supervisor process kills the program's process group, which its processes cannot leave
    /// while the system call filter is in force.
    ///
    /// Kills the program within a tenth of a second after free space falls below the ``SpaceReserve`` of a
    /// file system that it may write to. Its files cannot exceed the space that was free when it started.
    ///
    /// - Throws: ``FileError`` if it could not be started.
    package func run(
        input: [UInt8],
        killSwitch: KillSwitch = KillSwitch()
    ) throws(FileError) -> Outcome {
        let ruleset = try sandbox.ruleset()
        guard ruleset.descriptor >= 0 || !required.files else { return .notConfined(.none) }
        let reserves = try sandbox.reserves()
        let writable = try reserves.writableBytes()
        guard writable > 0 else { return .diskNearlyFull }
        let source = try Self.memoryFile(holding: input)
        let output = try Pipe()
        let errors = try Pipe()
        let report = try Pipe()
        let supervisor = try start(
            streams: (source.descriptor.rawValue, output.writing, errors.writing),
            ruleset: ruleset,
            fileSize: min(sandbox.fileSize, UInt64(writable)),
            report: report
        )
        killSwitch.arm(supervisor)
        // A reader sees the end of a pipe only after all its writing ends are closed, this process's among them.
        output.closeWriting()
        errors.closeWriting()
        report.closeWriting()
        defer { Self.end(supervisor, disarming: killSwitch) }
        let end = SuspendingClock.now + timeLimit
        let restrictions = try restrictions(from: report, until: end)
        guard restrictions?.isSuperset(of: required) ?? true else {
            return .notConfined(restrictions ?? .none)
        }
        var watch = ProgramWatch(
            supervisor: supervisor,
            output: StreamReader(output, limit: outputLimit),
            errors: StreamReader(errors, limit: Self.errorLimit),
            reserves: reserves
        )
        var ending = watch.wait(until: end)
        if killSwitch.wasPulled { ending = .killed }
        return Outcome(
            ending: ending,
            output: watch.output.bytes,
            errorTail: watch.errors.bytes,
            restrictions: restrictions ?? .none
        )
    }

    /// The time that a supervisor may take to kill the processes of its program: longer than
    /// `stage_end_group` waits for processes that do not die.
    private static let killTimeout = Duration.seconds(10)

    /// Asks the supervisor to kill the rest of the program, waits for it, and reaps it.
    private static func end(_ supervisor: pid_t, disarming killSwitch: KillSwitch) {
        // An unreaped process keeps its process id, so the signal cannot reach another process.
        stage_signal_child(supervisor, 0, SIGTERM)
        killSwitch.disarm()
        let end = stage_open_process(supervisor)
        defer { if end >= 0 { close(end) } }
        let deadline = SuspendingClock.now + killTimeout
        while stage_has_ended(supervisor) == 0, SuspendingClock.now < deadline {
            var pollRequest = pollfd(fd: end, events: Int16(POLLIN), revents: 0)
            let pause: Duration = end >= 0 ? deadline - .now : .milliseconds(1)
            unsafe _ = poll(&pollRequest, 1, pause.wholeMilliseconds)
        }
        // A supervisor that has not ended by now is stopped (SIGSTOP); its child dies with it.
        stage_signal_child(supervisor, 0, SIGKILL)
        _ = ChildProcess.Ending(of: supervisor, isKept: false)
    }

    /// Creates a sealed file in memory as standard input: unlike a pipe, it blocks no process if the program
    /// does not read it and breaks none if the program closes it, and the program cannot write and execute
    /// it.
    private static func memoryFile(holding bytes: [UInt8]) throws(FileError) -> File {
        let file = File(
            adopting: FileDescriptor(
                rawValue: try Directory.attempt("create", at: "standard input") {
                    stage_memory_file()
                }
            ),
            path: "standard input"
        )
        try file.write(bytes.span, at: 0)
        let descriptor = file.descriptor.rawValue
        try Directory.attempt("seal", at: "standard input") { stage_seal(descriptor) }
        return file
    }

    /// Starts the child process; `report` receives the results of its setup.
    private func start(
        streams: (input: CInt, output: CInt, errors: CInt),
        ruleset: borrowing Sandbox.Ruleset,
        fileSize: UInt64,
        report: Pipe
    ) throws(FileError) -> pid_t {
        let strings = CStrings([path.string] + arguments)
        let variables = CStrings(environment.sorted { $0.key < $1.key }.map { "\($0)=\($1)" })
        let descriptor = ruleset.descriptor
        let confinesSignals = ruleset.confinesSignals
        let pipe = report.writing
        return try Directory.attempt("start", at: path) {
            unsafe path.withPlatformString { program in
                unsafe directory.withPlatformString { directory in
                    var start = unsafe stage_sandbox(
                        program: program,
                        arguments: strings.pointers,
                        environment: variables.pointers,
                        directory: directory,
                        input: streams.input,
                        output: streams.output,
                        errors: streams.errors,
                        ruleset: descriptor,
                        confines_signals: confinesSignals ? 1 : 0,
                        requires_filter: required.calls ? 1 : 0,
                        address_space: sandbox.addressSpace,
                        file_size: fileSize,
                        processor_seconds: sandbox.cpuSecondLimit,
                        open_files: Sandbox.openFiles
                    )
                    return unsafe stage_start_sandboxed(&start, pipe)
                }
            }
        }
    }

    /// Waits until the child executes the program or fails, and returns the restrictions that it reports;
    /// `nil` if it was killed before or did neither in time, for example on a file system that hangs.
    private func restrictions(
        from report: Pipe,
        until deadline: SuspendingClock.Instant
    ) throws(FileError) -> Sandbox.Restrictions? {
        var value: stage_sandbox_report?
        let size = MemoryLayout<stage_sandbox_report>.size
        while true {
            var next = stage_sandbox_report()
            let count = unsafe read(report.reading, &next, size)
            if count == size {
                value = next
            } else if count < 0, errno == EAGAIN || errno == EINTR {
                let left = deadline - .now
                guard left > .zero else { return nil }
                var pollRequest = pollfd(fd: report.reading, events: Int16(POLLIN), revents: 0)
                unsafe _ = poll(&pollRequest, 1, left.wholeMilliseconds)
            } else {
                break
            }
        }
        // Killed before it sent a report.
        guard let value else { return nil }
        guard value.step == 0 || value.step == STAGE_STEP_CALLS.rawValue else {
            throw FileError(
                Self.operation(value.step),
                path: path,
                errno: Errno(rawValue: value.error)
            )
        }
        return Sandbox.Restrictions(
            files: value.restricts_files != 0,
            calls: value.filters_calls != 0
        )
    }

    /// Returns the failed setup step, as a verb.
    private static func operation(_ step: Int32) -> String {
        switch UInt32(bitPattern: step) {
        case STAGE_STEP_STREAMS.rawValue: "connect the streams of"
        case STAGE_STEP_LIMITS.rawValue: "limit"
        case STAGE_STEP_DIRECTORY.rawValue: "find the directory of"
        case STAGE_STEP_PRIVILEGES.rawValue: "take the privileges of"
        case STAGE_STEP_FILES.rawValue: "confine"
        default: "start"
        }
    }
}
