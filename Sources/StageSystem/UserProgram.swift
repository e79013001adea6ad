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
    /// The arguments, without the program name.
    package var arguments: [String]
    /// The complete environment.
    package var environment: [String: String]
    /// The working directory, which the user must be allowed to enter.
    package var directory: FilePath
    /// The user that the program runs as, `nil` for the user of this process; another user needs the capabilities to
    /// change users and groups.
    package var user: UserIdentity?
    /// The control group that the process joins before the program starts, `nil` for that of this process.
    package var controlGroup: ControlGroup?
    /// The socket that is the standard input and output; `nil` for `/dev/null`.
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

    /// The result of a run.
    package enum Outcome: Equatable, Sendable {
        /// The program has ended.
        case ended(ChildProcess.Ending)
        /// The program still runs, five seconds after SIGKILL.
        case unkillable(UnkillableProcess)
    }

    /// Starts the program and waits until it ends.
    ///
    /// When the task is cancelled, the program's process group gets SIGTERM, and SIGKILL after `grace`. After
    /// the program has ended then, the rest of the group is killed. If it has not ended five seconds later, it is
    /// returned as ``Outcome/unkillable(_:)``.
    ///
    /// - Throws: ``FileError`` if the program could not be started.
    package func run(grace: Duration) async throws(FileError) -> Outcome {
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
    ) throws(FileError) -> Outcome {
        let report = try Pipe()
        let process = try start(report)
        report.closeWriting()
        switch wait(for: process, grace: grace, request: request) {
        case .endedByItself: break
        // The leader is not reaped yet, so its process id still denotes the program's group.
        case .endedOnRequest: stage_signal_child(process, 1, SIGKILL)
        case .stillRuns: return .unkillable(UnkillableProcess(process))
        }
        let ending = ChildProcess.Ending(of: process, isKept: false)
        var failure = stage_user_report()
        let size = MemoryLayout<stage_user_report>.size
        guard unsafe read(report.reading, &failure, size) == size else { return .ended(ending) }
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

    /// State of a program after the wait for its end.
    private enum WaitResult {
        case endedByItself
        case endedOnRequest
        /// SIGKILL did not end it.
        case stillRuns
    }

    /// Time for which a killed process may run on.
    private static let killTimeout = Duration.seconds(5)

    /// Waits until the program has ended, and kills it if `request` asks for its end and `grace` is over.
    private func wait(for process: pid_t, grace: Duration, request: WakeSignal) -> WaitResult {
        let end = stage_open_process(process)
        defer { if end >= 0 { close(end) } }
        var deadline: SuspendingClock.Instant?
        while stage_has_ended(process) == 0 {
            let left = deadline.map { $0 - .now }
            if let left, left <= .zero {
                guard left + Self.killTimeout > .zero else { return .stillRuns }
                stage_signal_child(process, 1, SIGKILL)
            }
            var pollRequests = [
                pollfd(fd: end, events: Int16(POLLIN), revents: 0),
                pollfd(
                    fd: deadline == nil ? request.descriptor.rawValue : -1,
                    events: Int16(POLLIN),
                    revents: 0
                ),
            ]
            // A killed process gets the signal again, as its group may have begun meanwhile.
            let pause = left.map { $0 > .zero ? $0 : .milliseconds(100) }
            // Polls for the end where the kernel has no pidfd.
            let interval: CInt = 20
            let time = pause.map { max($0, .milliseconds(1)).wholeMilliseconds }
            unsafe _ = poll(
                &pollRequests,
                2,
                end >= 0 ? time ?? -1 : min(time ?? interval, interval)
            )
            if deadline == nil, pollRequests[1].revents != 0 {
                stage_signal_child(process, 1, SIGTERM)
                deadline = .now + grace
            }
        }
        return deadline == nil ? .endedByItself : .endedOnRequest
    }

    /// Indicates whether an error of ``run(grace:)`` is due to the program or its directory, and not to this process
    /// or the system.
    package static func isDueToProgram(_ error: FileError) -> Bool {
        let steps = [STAGE_USER_STEP_DIRECTORY, STAGE_USER_STEP_PROGRAM]
        return !error.isRefusedByLimit
            && steps.contains { operation(Int32(bitPattern: $0.rawValue)) == error.operation }
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
