package import ArgumentParser
import Foundation
import Glibc
import Logging
import ProgramStart
import StageControl
import StageDaemon
import StageSystem
import StageTransfer
package import SystemPackage
import UnixSignals

/// The daemon as a program: parses its options, runs the ``Daemon``, and reports how it ended.
///
/// The program is `stagepack` under the name `stagepackd`, so that the code which both share is installed
/// only once.
package struct DaemonCommand: AsyncParsableCommand {
    /// True if this process was started under the daemon's name.
    package static var isInvokedAsDaemon: Bool {
        guard let name = CommandLine.arguments.first else { return false }
        return FilePath(name).lastComponent == "stagepackd"
    }

    /// The name, the help and the version.
    package static let configuration = CommandConfiguration(
        commandName: "stagepackd",
        abstract: "Carry out transfers that outlive their clients.",
        discussion: """
            As root it serves all users of the machine, otherwise the user it runs as. It stays in \
            the foreground, and logs to standard error.

            SIGHUP reads the configuration again. SIGTERM ends it, and keeps everything that was \
            received: the next start resumes.
            """,
        version: STAGEPACK_VERSION
    )

    @Option(help: ArgumentHelp("The state directory.", valueName: "path"))
    var state: String?

    @Option(
        help: ArgumentHelp(
            "Where clients connect, unless the service manager has opened a socket.",
            valueName: "path"
        )
    )
    var socket: String?

    @Option(help: ArgumentHelp("The configuration file, JSON.", valueName: "path"))
    var config: String?

    @Flag(help: "Log what happens, not only failures.")
    var foreground = false

    /// Creates the command that the parser fills in.
    package init() {}

    /// Runs the daemon until a signal ends it.
    package static func main() async {
        StandardStreams.openMissing()
        ProcessEnvironment.clean()
        SystemShortage.endIfAny()
        if let fault = CommandLineEncoding.fault() {
            report("\(fault)", hint: fault.hint)
            Glibc.exit(EX_USAGE)
        }
        await main(nil)
    }

    /// Runs the daemon with the parsed options.
    ///
    /// - Throws: `ExitCode`, once the reason is on standard error.
    package func run() async throws {
        let environment = ProcessEnvironment.current
        let paths = DaemonPaths(environment: environment, isSystem: geteuid() == 0)
        var logger = Logger(label: "stagepackd") { LineLogHandler(label: $0) }
        logger.logLevel = foreground ? .info : .notice
        // Private files are created with explicit modes; users need access through the other directories. Handlers
        // inherit this mask.
        umask(0o022)
        raiseFileLimit()
        HeapMemory.limitArenas()
        await EventLoops.start()
        // Makes the paths absolute, since clients get paths in the state directory, and handlers the path of the socket.
        let file = FilePath(config ?? paths.configuration).absolute
        let isRequired = config != nil
        do throws(DaemonError) {
            let daemon = Daemon(
                state: FilePath(state ?? paths.state).absolute,
                socket: FilePath(socket ?? paths.socket).absolute,
                configuration: try Self.settings(file, isRequired: isRequired),
                version: Self.configuration.version,
                worker: Self.worker,
                logger: logger
            )
            try await Self.run(daemon) { () throws(DaemonError) in
                try Self.settings(file, isRequired: isRequired)
            }
        } catch {
            Self.report("\(error)", hint: error.hint)
            throw ExitCode(error.status)
        }
    }

    /// Writes an error to standard error.
    ///
    /// If that fails, the exit status still reports it.
    static func report(_ message: String, hint: String? = nil) {
        let isJournal = JournalStream.isConnected(
            to: .standardError,
            environment: ProcessEnvironment.current
        )
        guard !isJournal else {
            let logger = Logger(label: "stagepackd") { LineLogHandler(label: $0) }
            let metadata: Logger.Metadata = hint.map { ["hint": "\($0)"] } ?? [:]
            return logger.critical(
                "The daemon cannot run",
                metadata: metadata.merging(["error": "\(message)"]) { $1 }
            )
        }
        let lines = "stagepackd: error: \(message)\n" + (hint.map { "hint: \($0)\n" } ?? "")
        _ = try? FileDescriptor.standardError.writeAll(lines.utf8)
    }

    /// Path of the program that stages packs for users: this one under its other name.
    private static var worker: FilePath? {
        let link = try? Directory.open("/proc/self").link("exe")
        return link.map { FilePath($0).removingLastComponent().appending("stagepack") }
    }

    /// Raises the limit of open files to the maximum, since many clients need many descriptors.
    private func raiseFileLimit() {
        var limit = rlimit()
        let files = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        guard unsafe getrlimit(files, &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        // The daemon also works with fewer descriptors.
        unsafe _ = setrlimit(files, &limit)
    }

    /// Runs the daemon until it receives SIGTERM or SIGINT; SIGHUP reloads the configuration.
    private static func run(
        _ daemon: Daemon,
        settings: @escaping @Sendable () throws(DaemonError) -> DaemonConfiguration
    ) async throws(DaemonError) {
        let signals = await UnixSignalsSequence(trapping: .sigterm, .sigint, .sighup)
        let (reloads, reload) = AsyncStream.makeStream(of: DaemonConfiguration.self)
        let result = await withTaskGroup(of: Result<Void, DaemonError>?.self) { group in
            group.addTask {
                await Result { () async throws(DaemonError) in
                    try await daemon.run(reloads: reloads)
                }
            }
            group.addTask {
                for await signal in signals {
                    guard signal == .sighup else { return nil }
                    if let changed = read(settings, after: daemon.configuration) {
                        reload.yield(changed)
                    }
                }
                return nil
            }
            var result: Result<Void, DaemonError> = .success(())
            for await ending in group {
                if let ending { result = ending }
                group.cancelAll()
            }
            return result
        }
        try result.get()
    }

    /// Reads the configuration again, and logs the result; `nil` if the present one stays.
    private static func read(
        _ settings: () throws(DaemonError) -> DaemonConfiguration,
        after start: DaemonConfiguration
    ) -> DaemonConfiguration? {
        // A separate log handler suppresses no repeated message: each signal gets its line in the log.
        let logger = Logger(label: "stagepackd") { LineLogHandler(label: $0) }
        do throws(DaemonError) {
            let changed = try settings()
            let names = changed.membersForRestart(after: start).joined(separator: ", ")
            logger.notice(
                "Configuration read",
                metadata: names.isEmpty ? [:] : ["configuration.afterRestart": "\(names)"]
            )
            return changed
        } catch {
            logger.error("The configuration stays", metadata: ["error": "\(error)"])
            return nil
        }
    }

    /// A configuration file of a daemon.
    package struct ConfigurationFile: Sendable {
        /// The path.
        package var path: FilePath
        /// `true` for the file of the system's daemon, `false` for that of the user's own.
        package var isSystem: Bool
        /// The error with which the daemon would end; `nil` if there is none.
        package var fault: String?
    }

    /// Checks the configuration files of the system's daemon and of the user's own: those that exist, and that this user may read.
    package static func configurationFiles(
        environment: [String: String]
    ) -> [ConfigurationFile] {
        let isRoot = geteuid() == 0
        return (isRoot ? [true] : [true, false]).compactMap { isSystem in
            let paths = DaemonPaths(
                environment: isSystem ? [:] : environment,
                isSystem: isSystem
            )
            let path = FilePath(paths.configuration)
            guard FileStatus.exists(path) else { return nil }
            do {
                if isRoot || !isSystem {
                    _ = try DaemonConfiguration(contentsOf: path)
                } else {
                    // Other users may lack access to the file and to the files that it names.
                    guard let json = try? File.open(readingRegular: path).readAll(limit: 1 << 20)
                    else { return nil }
                    _ = try DaemonConfiguration(json: json, path: path)
                }
                return ConfigurationFile(path: path, isSystem: isSystem)
            } catch {
                return ConfigurationFile(path: path, isSystem: isSystem, fault: "\(error)")
            }
        }
    }

    private static func settings(
        _ path: FilePath,
        isRequired: Bool
    ) throws(DaemonError) -> DaemonConfiguration {
        guard isRequired || FileStatus.exists(path) else { return DaemonConfiguration() }
        return try DaemonConfiguration(contentsOf: path)
    }
}

extension Result {
    /// Stores the result or the error of an asynchronous closure.
    fileprivate init(_ body: () async throws(Failure) -> Success) async {
        do throws(Failure) {
            self = .success(try await body())
        } catch {
            self = .failure(error)
        }
    }
}

extension DaemonError {
    /// Exit status of the program (sysexits.h).
    fileprivate var status: Int32 {
        switch self {
        case .configuration, .journalOfOtherVersion: 78
        case .alreadyRunning: 75
        case .file, .journal, .refused: 74
        case .socket: 71
        }
    }
}
