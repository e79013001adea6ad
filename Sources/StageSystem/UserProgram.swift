import CLinux
import Glibc
package import SystemPackage

/// A program that is started for a user in a session of its own; of this process's open files it inherits at
/// most a socket, and its other streams are `/dev/null`.
///
/// It keeps running when this process ends.
package struct UserProgram: Sendable {
    /// The absolute path of the executable.
    package var path: FilePath
    /// Its arguments, without its name.
    package var arguments: [String]
    /// Its complete environment.
    package var environment: [String: String]
    /// Its working directory, which the user must be allowed to enter.
    package var directory: FilePath
    /// The user that it runs as, `nil` for the user of this process; another user needs the capabilities to
    /// change users and groups.
    package var user: UserIdentity?
    /// The control group that it joins before it starts, `nil` for that of this process.
    package var controlGroup: ControlGroup?
    /// The socket that is its standard input and output; `nil` for `/dev/null`.
    package var channel: MessageSocket?

    /// Creates a program from its parts.
    package init(
        path: FilePath,
        arguments: [String],
        environment: [String: String],
        directory: FilePath,
        user: UserIdentity?,
        controlGroup: ControlGroup? = nil
    ) {
        self.path = path
        self.arguments = arguments
        self.environment = environment
        self.directory = directory
        self.user = user
        self.controlGroup = controlGroup
    }

    /// Starts the program and waits until it ends.
    ///
    /// When the task is cancelled, the program's process group gets SIGTERM, and SIGKILL after `grace`. After
    /// the program has ended then, the rest of the group is killed.
    ///
    /// - Throws: ``FileError`` if the program could not be started.
    package func run(grace: Duration) async throws(FileError) -> ChildProcess.Ending {
        let request = try WakeSignal()
        let result = await withTaskCancellationHandler {
            await withBlockingThread {
                Result { () throws(FileError) in try run(grace: grace, request: request) }
            }
        } onCancel: {
            request.raise()
        }
        return try result.get()
    }

    /// Blocks until the program has ended; raising `request` asks it to end.
    private func run(
        grace: Duration,
        request: WakeSignal
    ) throws(FileError) -> ChildProcess.Ending {
        let report = try Pipe()
        let process = try start(report)
        report.closeWriting()
        let wasEnded = wait(for: process, grace: grace, request: request)
        // The leader is not reaped yet, so its process id still denotes the program's group.
        if wasEnded { stage_signal_child(process, 1, SIGKILL) }
        let ending = ChildProcess.Ending(of: process, isKept: false)
        var failure = stage_user_report()
        let size = MemoryLayout<stage_user_report>.size
        guard unsafe read(report.reading, &failure, size) == size else { return ending }
        throw FileError(
            Self.operation(failure.step),
            path: path,
            errno: Errno(rawValue: failure.error)
        )
    }

    private func start(_ report: Pipe) throws(FileError) -> pid_t {
        let strings = CStrings([path.string] + arguments)
        let variables = CStrings(environment.sorted { $0.key < $1.key }.map { "\($0)=\($1)" })
        let groups = user?.groups ?? []
        let pipe = report.writing
        let joined = try controlGroup?.openProcesses()
        // Closing loses no data: this process has not written to it.
        defer { try? joined?.close() }
        return try Directory.attempt("start", at: path) {
            unsafe path.withPlatformString { program in
                unsafe directory.withPlatformString { directory in
                    unsafe groups.withUnsafeBufferPointer { groups in
                        var start = unsafe stage_user_program(
                            program: program,
                            arguments: strings.pointers,
                            environment: variables.pointers,
                            directory: directory,
                            channel: channel?.descriptor.rawValue ?? -1,
                            control_group: joined?.rawValue ?? -1,
                            changes_user: user == nil ? 0 : 1,
                            user: user?.user ?? 0,
                            group: user?.group ?? 0,
                            groups: groups.baseAddress,
                            group_count: groups.count
                        )
                        return unsafe stage_start_as_user(&start, pipe)
                    }
                }
            }
        }
    }

    /// Waits until the program has ended, and returns whether it was asked to end.
    private func wait(for process: pid_t, grace: Duration, request: WakeSignal) -> Bool {
        let end = stage_open_process(process)
        defer { if end >= 0 { close(end) } }
        var deadline: ContinuousClock.Instant?
        while stage_has_ended(process) == 0 {
            let left = deadline.map { $0 - .now }
            if let left, left <= .zero { stage_signal_child(process, 1, SIGKILL) }
            var pollRequests = [
                pollfd(fd: end, events: Int16(POLLIN), revents: 0),
                pollfd(
                    fd: deadline == nil ? request.descriptor.rawValue : -1,
                    events: Int16(POLLIN),
                    revents: 0
                ),
            ]
            // Polls for the end where the kernel has no pidfd.
            let pause = left.map { max($0, .milliseconds(1)).wholeMilliseconds }
            let interval: CInt = 20
            unsafe _ = poll(
                &pollRequests,
                2,
                end >= 0 ? pause ?? -1 : min(pause ?? interval, interval)
            )
            if deadline == nil, pollRequests[1].revents != 0 {
                stage_signal_child(process, 1, SIGTERM)
                deadline = .now + grace
            }
        }
        return deadline != nil
    }

    /// Returns the failed setup step, as a verb.
    private static func operation(_ step: Int32) -> String {
        switch UInt32(bitPattern: step) {
        case STAGE_USER_STEP_STREAMS.rawValue: "connect the streams of"
        case STAGE_USER_STEP_USER.rawValue: "change the user of"
        case STAGE_USER_STEP_GROUP.rawValue: "limit"
        case STAGE_USER_STEP_DIRECTORY.rawValue: "enter the directory of"
        default: "start"
        }
    }
}
