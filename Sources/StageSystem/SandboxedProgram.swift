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
        deadline: Duration,
        outputLimit: Int = 1 << 20,
        errorLimit: Int = 4 << 10
    ) {
        self.path = path
        self.arguments = arguments
        self.environment = environment
        self.directory = directory
        self.sandbox = sandbox
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
    }

    /// Starts the program with `input` as its standard input, and waits until it has ended.
    ///
    /// Blocks the calling thread. Whatever the program started ends with it: processes cannot leave
    /// its process group where the filter of system calls is in force.
    ///
    /// - Throws: ``FileError`` if it could not be started.
    public func run(
        input: [UInt8],
        killSwitch: KillSwitch = KillSwitch()
    ) throws(FileError) -> Outcome {
        let ruleset = try sandbox.ruleset()
        let source = try Self.memoryFile(holding: input)
        let output = try Pipe()
        let errors = try Pipe()
        let report = try Pipe()
        let process = try start(
            streams: (source.descriptor.rawValue, output.writing, errors.writing),
            ruleset: ruleset,
            report: report
        )
        killSwitch.arm(process)
        // Ends of pipes that only the child writes to: else they would never end.
        output.closeWriting()
        errors.closeWriting()
        report.closeWriting()
        defer { Self.end(process, killSwitch) }
        let end = ContinuousClock.now + deadline
        let restrictions = try restrictions(of: process, from: report, until: end)
        var watch = ProgramWatch(
            process: process,
            output: StreamReader(output, limit: outputLimit),
            errors: StreamReader(errors, limit: errorLimit)
        )
        var ending = watch.wait(until: end)
        if killSwitch.wasPulled { ending = .killed }
        return Outcome(
            ending: ending,
            output: watch.output.bytes,
            errorTail: watch.errors.bytes,
            restrictions: restrictions
        )
    }

    /// Kills what is left of the group, and reaps its leader.
    private static func end(_ process: pid_t, _ killSwitch: KillSwitch) {
        // Before the leader is reaped its number is taken, so the group is the program's.
        _ = kill(-process, SIGKILL)
        _ = kill(process, SIGKILL)
        killSwitch.disarm()
        var status: CInt = 0
        while unsafe waitpid(process, &status, 0) < 0, errno == EINTR {}
        // The others have got the signal and are on their way out; wait a moment for those that the
        // system reaps, so that they write nothing more.
        let deadline = ContinuousClock.now + .milliseconds(100)
        while kill(-process, 0) == 0, ContinuousClock.now < deadline { _ = poll(nil, 0, 1) }
    }

    /// Makes a file without a name: a program that does not read it keeps nobody waiting, and one that
    /// closes it breaks no pipe.
    private static func memoryFile(holding bytes: [UInt8]) throws(FileError) -> File {
        let file = File(
            adopting: FileDescriptor(
                rawValue: try Directory.attempt("create", "standard input") { stage_memory_file() }
            ),
            path: "standard input"
        )
        try file.write(bytes.span, at: 0)
        return file
    }

    /// Starts the child; its own steps are told by the report.
    private func start(
        streams: (input: CInt, output: CInt, errors: CInt),
        ruleset: borrowing Sandbox.Ruleset,
        report: Pipe
    ) throws(FileError) -> pid_t {
        let strings = CStrings([path.string] + arguments)
        let variables = CStrings(environment.sorted { $0.key < $1.key }.map { "\($0)=\($1)" })
        let descriptor = ruleset.descriptor
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
                        address_space: sandbox.addressSpace,
                        file_size: sandbox.fileSize,
                        processor_seconds: sandbox.processorSeconds,
                        open_files: Sandbox.openFiles
                    )
                    return unsafe stage_start_sandboxed(&start, pipe)
                }
            }
        }
    }

    /// Waits until the child has become the program or given up, and returns what it said.
    private func restrictions(
        of process: pid_t,
        from report: Pipe,
        until deadline: ContinuousClock.Instant
    ) throws(FileError) -> Sandbox.Restrictions {
        var value = stage_sandbox_report()
        let size = MemoryLayout<stage_sandbox_report>.size
        while true {
            var next = stage_sandbox_report()
            let count = unsafe read(report.reading, &next, size)
            if count == size {
                value = next
            } else if count < 0, errno == EAGAIN || errno == EINTR {
                var wish = pollfd(fd: report.reading, events: Int16(POLLIN), revents: 0)
                let left = deadline - .now
                // A program on a file system that does not answer cannot be loaded, nor waited for.
                if left <= .zero { _ = kill(-process, SIGKILL) }
                unsafe _ = poll(&wish, 1, left > .zero ? left.milliseconds : 1)
            } else {
                break
            }
        }
        guard value.step == 0 else {
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
