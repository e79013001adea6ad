import Glibc
import StageSystem
import StageTesting
import Subprocess
import SystemPackage
import Testing

/// The `stagepack` program that the package builds, run as a process of its own.
struct Program {
    /// The exit status of a run, and its output.
    struct Ending: Equatable {
        /// The exit status; 1,000 and the signal's number if a signal ended it.
        var status: Int32
        var output: String
        var error: String
    }

    /// Control of a run in progress.
    struct Running: Sendable {
        fileprivate let process: ProcessIdentifier

        /// Sends a signal to the program.
        func send(_ signal: Int32) {
            kill(process.value, signal)
        }

        /// The most memory that the program has had so far, in bytes.
        func peakMemory() throws -> Int {
            let status = try text(of: FilePath("/proc/\(process.value)/status"))
            let line = status.split(separator: "\n").first { $0.hasPrefix("VmHWM:") }
            let count = line?.split(separator: " ").dropFirst().first.flatMap { Int($0) }
            return try #require(count) << 10
        }

        /// The numbers of the processes that the program has started and that have not ended.
        func children() throws -> [pid_t] {
            let threads = try Directory.open(FilePath("/proc/\(process.value)/task"))
            return try threads.entries().flatMap { thread in
                // A thread that has ended meanwhile has no children.
                let path = threads.path.appending("\(thread.name)/children")
                return ((try? text(of: path)) ?? "").split(separator: " ").compactMap { pid_t($0) }
            }
        }
    }

    /// The most memory that a program may take, in bytes.
    static let memoryLimit = 128 << 20

    /// The status of a run that SIGKILL ended.
    static let killed = 1000 + SIGKILL

    /// The path of the program.
    static var path: FilePath {
        get throws { try BuiltProgram.path(of: "stagepack") }
    }

    /// Variables in addition to `PATH` and `HOME`: the environment of the tests is not passed on.
    var environment: [String: String] = [:]
    /// `true` if the program may use a daemon: the system's, unless the environment names another one.
    var asksDaemon = false
    /// A program, with its arguments, that starts `stagepack`; empty if the tests start it directly.
    var wrapper: [String] = []

    /// Runs the program with the arguments until it ends; `body` watches it meanwhile.
    func run(
        _ arguments: [String],
        body: @escaping @Sendable (Running) async throws -> Void = { _ in }
    ) async throws -> Ending {
        var variables: [Environment.Key: String] = [
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/dev/null", "COLUMNS": "80",
        ]
        if !asksDaemon { variables["STAGEPACK_SOCKET"] = "" }
        for (name, value) in environment {
            variables[try #require(Environment.Key(rawValue: name))] = value
        }
        let program = try Self.path
        let command = wrapper.isEmpty ? arguments : Array(wrapper.dropFirst()) + arguments
        let result = try await Subprocess.run(
            .path(wrapper.first.map { FilePath($0) } ?? program),
            arguments: Arguments(command),
            environment: .custom(variables),
            input: .none,
            output: .string(limit: 1 << 22),
            error: .string(limit: 1 << 22)
        ) { execution in
            try await body(Running(process: execution.processIdentifier))
        }
        let status: Int32 =
            switch result.terminationStatus {
            case .exited(let status): Int32(status)
            case .signaled(let signal): 1000 + Int32(signal)
            }
        return Ending(
            status: status,
            output: result.standardOutput,
            error: result.standardError
        )
    }
}

extension Program {
    /// Runs the program with a deadline of so many seconds, and then with longer ones while its ending is not the awaited one.
    ///
    /// On a busy machine, a program may reach the state that a test needs only after a short deadline.
    func run(
        _ arguments: [String],
        deadline: Int,
        until isAwaited: (Ending) throws -> Bool
    ) async throws -> Ending {
        for seconds in [deadline, deadline * 4] {
            let ending = try await run(arguments + ["--deadline", "\(seconds)"])
            if try isAwaited(ending) { return ending }
        }
        return try await run(arguments + ["--deadline", "\(deadline * 16)"])
    }

    /// The program with a current directory of its own.
    init(in directory: Directory) throws {
        self.init(wrapper: [
            "/bin/sh", "-c", #"cd "$0" && exec "$@""#, directory.path.string,
            try Program.path.string,
        ])
    }
}
