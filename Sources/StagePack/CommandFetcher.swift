import FoundationEssentials
public import StageModel
import StageSystem
import Subprocess
public import SystemPackage

/// Fetches packs by running the `stagepack` command: the application does not link the transfer and archive
/// libraries, and archives are decoded in another process.
///
/// The command continues if the application dies, so the pack may be staged when the application starts again.
public struct CommandFetcher: PackFetcher {
    /// Sources of the manifest for the command.
    @nonexhaustive
    public enum Source: Hashable, Sendable {
        /// The manifest at a URL.
        case manifest(url: String)
        /// The registration that the application's package installed.
        case application(ApplicationID)
        /// The manifests that an earlier `prefetch` stored in the container.
        case container
    }

    private let source: Source
    private let command: FilePath?
    private let arguments: [String]

    /// Creates a fetcher.
    ///
    /// - Parameters:
    ///   - source: The source of the manifest.
    ///   - command: The path of the `stagepack` program; `nil` searches `PATH` or, in a privileged process,
    ///     the system's directories.
    ///   - arguments: Additional options for `stagepack fetch` and `load`, such as `--limit-rate`.
    public init(
        source: Source = .container,
        command: FilePath? = nil,
        arguments: [String] = []
    ) {
        self.source = source
        self.command = command
        self.arguments = arguments
    }

    /// Runs `stagepack fetch --withdraw --beside`, and returns when the pack is published, or if readers use the newer
    /// copy of another container.
    ///
    /// Cancelling the task interrupts the command, and ends the download, in the daemon, too, unless
    /// ``PackStore/LoadOptions/timeout`` limits the time. The received bytes are
    /// kept, so a later call resumes it. This returns when the command has ended. If the application ends without
    /// that, the command continues; if a signal other than SIGINT ends the command, the daemon continues.
    ///
    /// - Throws: ``FetchFailure`` with the error of the command; `CancellationError`.
    public func fetch(
        _ id: PackID,
        into container: FilePath,
        beside others: [FilePath],
        report: @escaping @Sendable (FetchProgress) -> Void
    ) async throws {
        // Arguments are strings: another container with a path that is not UTF-8 is not searched.
        let others = others.filter { FilePath($0.string) == $0 }
        let words =
            ["fetch", id.text] + (FetchContext.hasTimeout ? [] : ["--withdraw"])
            + others.flatMap { ["--beside", $0.string] }
        guard let ending = try await runCommand(words, in: container, report: report) else {
            return
        }
        // The pack may be staged although the command failed, for example because the server did not respond
        // and the stored manifest was used.
        let pack = ending.reports.lazy.compactMap(\.packs).joined().first { $0.id == id }
        if let pack, pack.error == nil, ["staged", "present"].contains(pack.outcome) { return }
        throw ending.failure(pack?.error)
    }

    /// Runs `stagepack load --file`.
    ///
    /// Cancelling the task interrupts the command; a later call resumes the download.
    ///
    /// - Throws: ``PackStoreError/fileNotFound(_:)`` if the pack has no such file; ``FetchFailure`` with the
    ///   error of the command; `CancellationError`.
    public func fetchFile(
        _ path: ContentPath,
        of id: PackID,
        into container: FilePath
    ) async throws {
        // One argument, since a path may look like an option.
        let words = ["load", id.text, "--file=\(path)"]
        guard let ending = try await runCommand(words, in: container, report: { _ in }) else {
            return
        }
        if ending.exitStatus == .unknownFile {
            throw PackStoreError.fileNotFound(path.text)
        }
        throw ending.failure(nil)
    }

    /// Runs `stagepack fetch --manifest-only`.
    ///
    /// - Throws: ``FetchFailure`` with the error of the command; `CancellationError`.
    public func fetchManifest(into container: FilePath) async throws {
        let words = ["fetch", "--manifest-only"]
        guard let ending = try await runCommand(words, in: container, report: { _ in }) else {
            return
        }
        throw ending.failure(ending.reports.lazy.compactMap(\.manifestProblem).first)
    }

    /// Runs the command; returns `nil` if it succeeds, and otherwise its exit status and output.
    private func runCommand(
        _ words: [String],
        in container: FilePath,
        report: @escaping @Sendable (FetchProgress) -> Void
    ) async throws -> CommandEnding? {
        // Arguments are strings: a path that is not UTF-8 would be repaired and name another directory.
        guard FilePath(container.string) == container else {
            throw FetchFailure(
                .containerUnusable,
                reason: "the path of the container is not UTF-8",
                retryAdvice: .never
            )
        }
        var options = PlatformOptions()
        options.teardownSequence = [
            .send(signal: .interrupt, allowedDurationToNextStep: .seconds(20))
        ]
        do {
            let result = try await run(
                command.map { .path($0) } ?? Self.installed,
                arguments: Arguments(commandLine(words, container: container)),
                platformOptions: options,
                input: .none,
                output: .string(limit: 1 << 20),
                error: .sequence
            ) { execution in
                var message = ""
                for try await line in execution.standardError.strings() {
                    if let progress = Self.progress(line) {
                        report(progress)
                    } else if !line.hasPrefix("{") {
                        message = line
                    }
                }
                return message
            }
            try Task.checkCancellation()
            if case .exited(0) = result.terminationStatus { return nil }
            var exitStatus: ExitStatus?
            if case .exited(let status) = result.terminationStatus {
                exitStatus = ExitStatus(rawValue: status)
            }
            return CommandEnding(
                exitStatus: exitStatus,
                reports: CommandReport.reports(result.standardOutput),
                message: result.closureResult,
                status: "\(result.terminationStatus)"
            )
        } catch let error as SubprocessError where error.code == .executableNotFound {
            throw FetchFailure(reason: missingProgram, retryAdvice: .never)
        }
    }

    /// The reason of a failure to find the program.
    private var missingProgram: String {
        command.map { "the program '\($0)' does not exist" }
            ?? "the program 'stagepack' is not installed, or is not in a directory of PATH"
    }

    /// The installed `stagepack` program; a privileged process ignores the `PATH` of its caller.
    private static var installed: Executable {
        guard ProcessEnvironment.isPrivileged else { return .name("stagepack") }
        let folders = ProcessEnvironment.path.split(separator: ":").map { FilePath(String($0)) }
        let paths = folders.map { $0.appending("stagepack") }
        return .path(paths.first(where: FileStatus.isExecutable) ?? "/usr/bin/stagepack")
    }

    private func commandLine(_ words: [String], container: FilePath) -> [String] {
        let origin =
            switch source {
            case .manifest(let url): ["--manifest", url]
            case .application(let id): ["--app", id.text]
            case .container: [String]()
            }
        return words + ["--container", container.string, "--json", "--progress", "json"] + origin
            + arguments
    }

    private static func progress(_ line: String) -> FetchProgress? {
        guard line.hasPrefix("{") else { return nil }
        // Other objects are about the manifest and the daemon.
        return try? JSONDecoder().decode(FetchProgress.self, from: Data(line.utf8))
    }
}

/// Exit status and output of a command that failed.
private struct CommandEnding {
    /// The exit status; `nil` if a signal ended the command, or a later version has another status.
    var exitStatus: ExitStatus?
    var reports: [CommandReport]
    /// The last line of standard error that does not report progress.
    var message: String
    var status: String

    /// Returns the failure: `reported` or else the error in a report, or a failure from the exit status and the
    /// last message.
    func failure(_ reported: CommandReport.Failure?) -> FetchFailure {
        if let reported = reported ?? reports.lazy.compactMap(\.error).first {
            let kind = FetchFailure.Kind(ExitStatus(rawValue: reported.status))
            return FetchFailure(kind, reason: reported.message, retryAdvice: reported.retry)
        }
        let reason = message.isEmpty ? "the command ended: \(status)" : message
        return FetchFailure(.init(exitStatus), reason: reason, retryAdvice: .later)
    }
}

/// The parts of a report of `stagepack fetch --json` that a fetcher uses.
private struct CommandReport: Decodable {
    var packs: [PackReport]?
    /// The reason why the stored manifest was used instead of the server's.
    var manifestProblem: Failure?
    var error: Failure?

    struct PackReport: Decodable {
        var id: PackID
        var outcome: String
        var error: Failure?
    }

    struct Failure: Decodable {
        var message: String
        var retry: RetryAdvice
        var status: Int32
    }

    /// The output of the command.
    private struct Output: Decodable {
        var runs: [CommandReport]
    }

    /// Returns the reports in the output of the command: one per manifest, or one for a failure of the command
    /// itself.
    static func reports(_ output: String) -> [CommandReport] {
        let (decoder, data) = (JSONDecoder(), Data(output.utf8))
        if let output = try? decoder.decode(Output.self, from: data) { return output.runs }
        // A killed command has no output.
        return (try? decoder.decode(CommandReport.self, from: data)).map { [$0] } ?? []
    }
}
