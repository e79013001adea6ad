package import Glibc
package import StageControl
import StageSystem
import Synchronization
package import SystemPackage
package import Testing

/// The `stagepackd` program that the package builds, with a state directory, a socket and a
/// configuration of the running test's own.
///
/// ```swift
/// @Suite(.directory, .daemon) struct SomeTests {
///     @Test func aTaskOutlivesTheDaemon() async throws {
///         let daemon = try DaemonProcess.required()
///         try await daemon.start()
///         // … daemon.client …
///         try await daemon.kill()
///         try await daemon.start()
///     }
/// }
/// ```
package final class DaemonProcess: Sendable {
    /// The program could not be started, or did not exit.
    package struct Failure: Error, CustomStringConvertible {
        /// The message.
        package var description: String

        /// Creates a failure from its words.
        package init(description: String) { self.description = description }
    }

    /// The daemon of the running test.
    @TaskLocal package static var current: DaemonProcess?

    /// The daemon of the running test, which must have the trait `.daemon`.
    package static func required() throws -> DaemonProcess {
        try #require(current, "the test needs the trait '.daemon'")
    }

    /// The directory of all files of the daemon.
    package let directory: FilePath
    private let child = Mutex<StartedProcess?>(nil)

    /// Creates the daemon of a directory, which does not run yet.
    package init(in directory: FilePath) { self.directory = directory }

    /// The path of the daemon's socket.
    package var socket: FilePath { directory.appending("control.sock") }
    /// The daemon's state directory.
    package var state: FilePath { directory.appending("state") }
    /// The file with the daemon's output.
    package var log: FilePath { directory.appending("daemon.log") }
    /// A client of the daemon, with a timeout that permits an unoptimised daemon on a busy machine.
    package var client: ControlClient {
        var client = ControlClient(path: socket.string)
        client.timeout = .seconds(120)
        return client
    }

    /// The number of the process that the tests started: the daemon, or the program that started it.
    package var process: Int32? { child.withLock { $0?.id } }

    /// Writes the configuration, as JSON, for later starts of the daemon.
    package func configure(_ json: String) throws {
        try Directory.open(directory)
            .write(Array(json.utf8), to: "config.json", durably: false)
    }

    /// Makes the daemon's directory accessible for other users, as it is below `/var/lib`.
    package func letOthersPass() throws {
        for path in [directory, directory.removingLastComponent()] {
            let name = try #require(path.lastComponent)
            try Directory.open(path.removingLastComponent()).changeMode(
                of: name,
                to: [.ownerReadWriteExecute, .groupReadExecute, .otherReadExecute]
            )
        }
    }

    /// Creates a directory of the test in which all users may create files, as in `/tmp`, and returns its path.
    ///
    /// Other users can reach it after ``letOthersPass()``.
    package func makeOpenDirectory() throws -> FilePath {
        let path = directory.appending("open")
        try Directory.make(path).setMode(FilePermissions(rawValue: 0o1777))
        return path
    }

    /// Starts the daemon, by another program if one is named, and does not wait for it.
    package func launch(by wrapper: [String] = [], _ more: String...) throws {
        var command = wrapper
        command += [try Self.program.string, "--foreground", "--state", state.string]
        command += ["--socket", socket.string]
        if FileStatus.exists(directory.appending("config.json")) {
            command += ["--config", directory.appending("config.json").string]
        }
        let process = try StartedProcess(command + more, log: log)
        child.withLock { $0 = process }
    }

    /// Starts the daemon, and returns once it responds.
    package func start(by wrapper: [String] = []) async throws {
        try launch(by: wrapper)
        let deadline = ContinuousClock.now + .seconds(120)
        while !answers {
            // A process that the killed daemon was starting may hold the lock of the state directory for longer than
            // the daemon waits.
            if status == 75, ContinuousClock.now < deadline { try launch(by: wrapper) }
            guard status == nil, ContinuousClock.now < deadline else {
                let ending = "\(status.map(String.init) ?? "none")"
                throw Failure(description: "no daemon, status \(ending): \(try said())")
            }
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    private var answers: Bool {
        // An error means that the daemon does not respond yet.
        (try? client.answer(to: .status, timeout: .seconds(5))) != nil
    }

    /// The ending of the daemon, in the form of ``StartedProcess/status``; `nil` while it runs.
    package var status: Int32? { child.withLock { $0?.status } }

    /// Sends the daemon a signal.
    package func send(_ signal: Int32) { child.withLock { $0?.send(signal) } }

    /// Ends the daemon with a signal, and returns its ``status`` once it has ended.
    @discardableResult
    package func kill(_ signal: Int32 = SIGKILL) async throws -> Int32 {
        send(signal)
        return try await end()
    }

    /// Waits for the end of the daemon.
    package func end(within timeout: Duration = .seconds(120)) async throws -> Int32 {
        let deadline = ContinuousClock.now + timeout
        while true {
            if let status {
                child.withLock { $0 = nil }
                return status
            }
            guard ContinuousClock.now < deadline else {
                throw Failure(description: "the daemon does not end: \(try said())")
            }
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    /// Kills the daemon if it runs.
    package func abandon() { child.withLock { $0 = nil } }

    /// Returns the standard error output of all runs of the daemon.
    package func said() throws -> String { try text(of: log) }

    /// The path of the program.
    package static var program: FilePath {
        get throws { try BuiltProgram.path(of: "stagepackd") }
    }
}

/// A process that is killed with its group, and reaped, when the last reference to it is released.
package final class StartedProcess: Sendable {
    /// The number of the process, and of its group.
    package let id: pid_t
    private let ending = Mutex<Int32?>(nil)

    /// Starts a program, the first of `command`, with its output appended to the file `log`.
    package init(_ command: [String], log: FilePath) throws {
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawn_file_actions_init(&actions)
        defer { unsafe _ = posix_spawn_file_actions_destroy(&actions) }
        unsafe posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        let flags = O_WRONLY | O_CREAT | O_APPEND
        unsafe posix_spawn_file_actions_addopen(&actions, 1, log.string, flags, 0o666)
        unsafe posix_spawn_file_actions_adddup2(&actions, 1, 2)
        var attributes = posix_spawnattr_t()
        unsafe posix_spawnattr_init(&attributes)
        defer { unsafe _ = posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        unsafe sigemptyset(&none)
        unsafe posix_spawnattr_setsigmask(&attributes, &none)
        unsafe posix_spawnattr_setpgroup(&attributes, 0)
        let kind = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP
        unsafe posix_spawnattr_setflags(&attributes, Int16(kind))
        var strings: [UnsafeMutablePointer<CChar>?] = unsafe command.map { unsafe strdup($0) }
        unsafe strings.append(nil)
        let variables = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/dev/null"]
        var environment: [UnsafeMutablePointer<CChar>?] = unsafe variables.map {
            unsafe strdup($0)
        }
        unsafe environment.append(nil)
        defer {
            for index in unsafe strings.indices { unsafe free(strings[index]) }
            for index in unsafe environment.indices { unsafe free(environment[index]) }
        }
        var process = pid_t()
        let status = unsafe posix_spawn(
            &process,
            command[0],
            &actions,
            &attributes,
            strings,
            environment
        )
        guard status == 0 else {
            throw DaemonProcess.Failure(
                description: "'\(command[0])' cannot run: \(Errno(rawValue: status))"
            )
        }
        id = process
    }

    deinit {
        // A killed tracer leaves the traced process running, so the whole group is killed.
        Glibc.kill(-id, SIGKILL)
        while ending.withLock({ $0 }) == nil, reap(0) == nil {}
    }

    /// Sends a signal to the process.
    package func send(_ signal: Int32) { if status == nil { Glibc.kill(id, signal) } }

    /// The exit status, or 1,000 and the signal's number; `nil` while it runs.
    package var status: Int32? { ending.withLock { $0 } ?? reap(WNOHANG) }

    /// Blocks the thread until the process has ended, and returns its ``status``.
    package func end() -> Int32 {
        while true {
            if let status = reap(0) { return status }
        }
    }

    private func reap(_ options: CInt) -> Int32? {
        ending.withLock { ending in
            if let ending { return ending }
            var status: CInt = 0
            guard unsafe waitpid(id, &status, options) == id else { return nil }
            let signal = status & 0x7F
            ending = signal == 0 ? (status >> 8) & 0xFF : 1000 + signal
            // Kills the remaining processes of the group.
            Glibc.kill(-id, SIGKILL)
            return ending
        }
    }
}

/// Runs each test with a daemon of its own, which the test starts.
package struct DaemonTrait: TestTrait, SuiteTrait, TestScoping {
    /// The tests of a suite inherit the trait.
    package let isRecursive = true

    /// Runs the test, and ends its daemon on every exit.
    package func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @concurrent @Sendable () async throws -> Void
    ) async throws {
        guard testCase != nil else { return try await function() }
        let daemon = DaemonProcess(in: try TemporaryDirectory.required().path)
        defer { daemon.abandon() }
        try await DaemonProcess.$current.withValue(daemon) { try await function() }
    }
}

extension Trait where Self == DaemonTrait {
    /// Gives each test a daemon in ``DaemonProcess/required()``; to follow the trait `.directory`.
    package static var daemon: Self { Self() }
}
