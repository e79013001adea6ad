import CLinux
import Glibc
public import SystemPackage

/// A program that is started in a ``Sandbox``, given its input, and not trusted to end by itself.
public struct SandboxedProgram: Sendable {
    /// The absolute path of the executable.
    public var path: FilePath
    /// Its arguments, without its name.
    public var arguments: [String]
    /// Its environment, all of it.
    public var environment: [String: String]
    /// The directory it starts in.
    public var directory: FilePath
    /// What it may touch and use.
    public var sandbox: Sandbox
    /// The restrictions without which it is not started.
    public var required: Sandbox.Restrictions
    /// How long it may run.
    public var deadline: Duration
    /// The most bytes that it may write to standard output.
    public var outputLimit: Int
    /// How many of the last bytes that it writes to standard error are kept.
    public var errorLimit: Int

    /// Creates a program with its limits.
    public init(
        path: FilePath,
        arguments: [String],
        environment: [String: String],
        directory: FilePath,
        sandbox: Sandbox,
        required: Sandbox.Restrictions = .required,
        deadline: Duration,
        outputLimit: Int = 1 << 20,
        errorLimit: Int = 4 << 10
    ) {
        self.path = path
        self.arguments = arguments
        self.environment = environment
        self.directory = directory
        self.sandbox = sandbox
        self.required = required
        self.deadline = deadline
        self.outputLimit = outputLimit
        self.errorLimit = errorLimit
    }

    /// Why a program does not run any more.
    public enum Ending: Hashable, Sendable {
        /// It ended by itself, or was killed by somebody else.
        case ended(ChildProcess.Ending)
        /// It was killed when its time was up.
        case deadlineExceeded
        /// It was killed when it had written more than it may.
        case tooMuchOutput
        /// The ``KillSwitch`` was pulled.
        case killed
        /// It was killed, or not started, since nearly nothing is left of a file system that it writes to.
        case diskNearlyFull
        /// It was not started: the kernel takes less from it than is required.
        case notConfined
    }

    /// What became of a program.
    public struct Outcome: Hashable, Sendable {
        /// Why it does not run any more.
        public var ending: Ending
        /// What it wrote to standard output.
        public var output: [UInt8]
        /// The last of what it wrote to standard error.
        public var errorTail: [UInt8]
        /// What the kernel took from it.
        public var restrictions: Sandbox.Restrictions

        /// The outcome of a program that was not started for what the kernel cannot take.
        static func notConfined(_ restrictions: Sandbox.Restrictions) -> Outcome {
            Outcome(ending: .notConfined, output: [], errorTail: [], restrictions: restrictions)
        }

        /// The outcome of a program that was not started since it would have nowhere to write.
        static let diskNearlyFull = Outcome(
            ending: .diskNearlyFull,
            output: [],
            errorTail: [],
            restrictions: .all
        )
    }

    /// Starts the program with `input` as its standard input, and waits until it has ended.
    ///
    /// Blocks the calling thread. Whatever the program started ends before this returns, and when the
    /// calling process dies: a supervisor, a process between the two, kills the program's group, which
    /// processes cannot leave where the filter of system calls is in force.
    ///
    /// A tenth of a second after less than its ``SpaceReserve`` is free of a file system that the program
    /// may write to, it is killed. No file of it can be larger than what was free when it started.
    ///
    /// - Throws: ``FileError`` if it could not be started.
    public func run(
        input: [UInt8],
        killSwitch: KillSwitch = KillSwitch()
    ) throws(FileError) -> Outcome {
        let ruleset = try sandbox.ruleset()
        guard ruleset.descriptor >= 0 || !required.files else { return .notConfined(.none) }
        let reserves = try sandbox.reserves()
        let room = try reserves.room()
        guard room > 0 else { return .diskNearlyFull }
        let source = try Self.memoryFile(holding: input)
        let output = try Pipe()
        let errors = try Pipe()
        let report = try Pipe()
        let supervisor = try start(
            streams: (source.descriptor.rawValue, output.writing, errors.writing),
            ruleset: ruleset,
            fileSize: min(sandbox.fileSize, UInt64(room)),
            report: report
        )
        killSwitch.arm(supervisor)
        // Ends of pipes that only the child writes to: else they would never end.
        output.closeWriting()
        errors.closeWriting()
        report.closeWriting()
        defer { Self.end(supervisor, killSwitch) }
        let end = ContinuousClock.now + deadline
        let restrictions = try restrictions(from: report, until: end)
        guard restrictions?.include(required) ?? true else {
            return .notConfined(restrictions ?? .none)
        }
        var watch = ProgramWatch(
            supervisor: supervisor,
            output: StreamReader(output, limit: outputLimit),
            errors: StreamReader(errors, limit: errorLimit),
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

    /// The time that a supervisor may take to kill the processes of its program: longer than it waits for
    /// processes that do not die (`stage_end_group`).
    private static let patience = Duration.seconds(10)

    /// Has the supervisor kill what is left of the program, and reaps it.
    private static func end(_ supervisor: pid_t, _ killSwitch: KillSwitch) {
        // Until it is reaped its number is taken, so no other process gets the signal.
        _ = kill(supervisor, SIGTERM)
        killSwitch.disarm()
        let end = stage_open_process(supervisor)
        defer { if end >= 0 { close(end) } }
        let deadline = ContinuousClock.now + patience
        while stage_has_ended(supervisor) == 0, ContinuousClock.now < deadline {
            var wish = pollfd(fd: end, events: Int16(POLLIN), revents: 0)
            let pause: Duration = end >= 0 ? deadline - .now : .milliseconds(1)
            unsafe _ = poll(&wish, 1, pause.milliseconds)
        }
        // One that does not answer was stopped; its child dies with it.
        _ = kill(supervisor, SIGKILL)
        var status: CInt = 0
        while unsafe waitpid(supervisor, &status, 0) < 0, errno == EINTR {}
    }

    /// Makes a file without a name that nothing can be written to: a program that does not read it keeps
    /// no process waiting, one that closes it breaks no pipe, and none can execute what it put there.
    private static func memoryFile(holding bytes: [UInt8]) throws(FileError) -> File {
        let file = File(
            adopting: FileDescriptor(
                rawValue: try Directory.attempt("create", "standard input") { stage_memory_file() }
            ),
            path: "standard input"
        )
        try file.write(bytes.span, at: 0)
        let descriptor = file.descriptor.rawValue
        try Directory.attempt("seal", "standard input") { stage_seal(descriptor) }
        return file
    }

    /// Starts the child; its own steps are told by the report.
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
        return try Directory.attempt("start", path) {
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
                        processor_seconds: sandbox.processorSeconds,
                        open_files: Sandbox.openFiles
                    )
                    return unsafe stage_start_sandboxed(&start, pipe)
                }
            }
        }
    }

    /// Waits until the child has become the program or given up, and returns what it said; `nil` if
    /// it was killed before or did neither in time, as on a file system that does not answer.
    private func restrictions(
        from report: Pipe,
        until deadline: ContinuousClock.Instant
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
                var wish = pollfd(fd: report.reading, events: Int16(POLLIN), revents: 0)
                unsafe _ = poll(&wish, 1, left.milliseconds)
            } else {
                break
            }
        }
        // Killed before it could say anything.
        guard let value else { return nil }
        guard value.step == 0 || value.step == STAGE_STEP_CALLS.rawValue else {
            throw FileError(Self.operation(value.step), path, Errno(rawValue: value.error))
        }
        return Sandbox.Restrictions(
            files: value.restricts_files != 0,
            calls: value.filters_calls != 0
        )
    }

    /// What the child was doing, as a verb.
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
