import FoundationEssentials
public import StageModel
import StageSystem
import Subprocess
public import SystemPackage

/// Fetches packs by running the `stagepack` command, so that an application links no transfer or
/// archive library and what decodes archives is another process.
///
/// The command goes on when the application dies: the pack is there when it starts again.
public struct CommandFetcher: PackFetcher {
    /// Where the command learns which packs there are.
    public enum Source: Hashable, Sendable {
        /// The manifest at a URL.
        case manifest(url: String)
        /// The registration that the application's package installed.
        case application(ApplicationID)
        /// The manifests that the container knows from an earlier `prefetch`.
        case container
    }

    private let source: Source
    private let command: FilePath?
    private let arguments: [String]

    /// Creates a fetcher.
    ///
    /// - Parameters:
    ///   - source: Where the command learns which packs there are.
    ///   - command: The `stagepack` program; `nil` looks for it in `PATH`, for root in the system's folders.
    ///   - arguments: Further options of `stagepack fetch` and `load`, such as `--limit-rate`.
    public init(
        source: Source = .container,
        command: FilePath? = nil,
        arguments: [String] = []
    ) {
        self.source = source
        self.command = command
        self.arguments = arguments
    }

    /// Runs `stagepack fetch` and returns when the pack is published.
    ///
    /// A cancelled task interrupts the command, which leaves what it received to be continued.
    ///
    /// - Throws: ``FetchFailure`` with what the command said; `CancellationError`.
    public func fetch(
        _ id: PackID,
        into container: FilePath,
        report: @escaping @Sendable (FetchProgress) -> Void
    ) async throws {
        let words = ["fetch", id.text]
        guard let ending = try await runCommand(words, container, report) else { return }
        // The pack may be there and something else have failed: the manifest was the stored one,
        // because its server did not answer.
        let pack = ending.reports.lazy.compactMap(\.packs).joined().first { $0.id == id }
        if let pack, pack.error == nil, ["staged", "present"].contains(pack.outcome) { return }
        throw ending.failure(pack?.error)
    }

    /// Runs `stagepack load --file`.
    ///
    /// A cancelled task interrupts the command, which leaves what it received to be continued.
    ///
    /// - Throws: ``PackStoreError/fileNotFound(_:)`` if the pack has no such file; ``FetchFailure`` with
    ///   what the command said; `CancellationError`.
    public func fetchFile(
        _ path: ContentPath,
        of id: PackID,
        into container: FilePath
    ) async throws {
        // One word, since a path may begin as an option does.
        let words = ["load", id.text, "--file=\(path)"]
        guard let ending = try await runCommand(words, container, { _ in }) else { return }
        if ending.exitStatus == Self.unknownFile {
            throw PackStoreError.fileNotFound(path.text)
        }
        throw ending.failure(nil)
    }

    /// The command's exit status where a pack has no such file.
    private static let unknownFile = 16

    /// Runs `stagepack fetch --manifest-only`.
    ///
    /// - Throws: ``FetchFailure`` with what the command said; `CancellationError`.
    public func fetchManifest(into container: FilePath) async throws {
        let words = ["fetch", "--manifest-only"]
        guard let ending = try await runCommand(words, container, { _ in }) else { return }
        throw ending.failure(ending.reports.lazy.compactMap(\.manifestProblem).first)
    }

    /// Runs the command, and returns how it ended, or `nil` if it succeeded.
    private func runCommand(
        _ words: [String],
        _ container: FilePath,
        _ report: @escaping @Sendable (FetchProgress) -> Void
    ) async throws -> CommandEnding? {
        // What is not UTF-8 is mended on the way, and would be another directory.
        guard FilePath(container.string) == container else {
            throw FetchFailure(
                .containerUnusable,
                reason: "the path of the container is not UTF-8",
                retry: .never
            )
        }
        var options = PlatformOptions()
        options.teardownSequence = [
            .send(signal: .interrupt, allowedDurationToNextStep: .seconds(5))
        ]
        let result = try await run(
            command.map { .path($0) } ?? Self.installed,
            arguments: Arguments(commandLine(words, container)),
            platformOptions: options,
            input: .none,
            output: .string(limit: 1 << 20),
            error: .sequence
        ) { execution in
            var message = ""
            for try await line in execution.standardError.strings() {
                if let progress = Self.progress(line) { report(progress) } else { message = line }
            }
            return message
        }
        try Task.checkCancellation()
        if case .exited(0) = result.terminationStatus { return nil }
        var exitStatus: Int?
        if case .exited(let status) = result.terminationStatus { exitStatus = Int(status) }
        return CommandEnding(
            exitStatus: exitStatus,
            reports: CommandReport.reports(result.standardOutput),
            message: result.closureResult,
            status: "\(result.terminationStatus)"
        )
    }

    /// The `stagepack` program of this machine; a privileged process looks past the `PATH` of its caller.
    private static var installed: Executable {
        guard ProcessEnvironment.isPrivileged else { return .name("stagepack") }
        let folders = ProcessEnvironment.path.split(separator: ":").map { FilePath(String($0)) }
        let paths = folders.map { $0.appending("stagepack") }
        return .path(paths.first(where: FileStatus.isExecutable) ?? "/usr/bin/stagepack")
    }

    private func commandLine(_ words: [String], _ container: FilePath) -> [String] {
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
        // A line that is no progress is a message.
        return try? JSONDecoder().decode(FetchProgress.self, from: Data(line.utf8))
    }
}

/// How a command ended that did not succeed.
private struct CommandEnding {
    /// What it exited with; `nil` if a signal ended it.
    var exitStatus: Int?
    var reports: [CommandReport]
    /// The last line of standard error that is no progress.
    var message: String
    var status: String

    /// What the command said of the failure: `told` where it said that much, else what there is.
    func failure(_ told: CommandReport.Failure?) -> FetchFailure {
        if let told = told ?? reports.lazy.compactMap(\.error).first {
            let kind = FetchFailure.Kind(exitStatus: told.status)
            return FetchFailure(kind, reason: told.message, retry: told.retry)
        }
        let kind = exitStatus.map(FetchFailure.Kind.init(exitStatus:)) ?? .other
        let reason = message.isEmpty ? "the command ended: \(status)" : message
        return FetchFailure(kind, reason: reason, retry: .later)
    }
}

extension FetchFailure.Kind {
    /// Creates the kind that an exit status of the command stands for (stagepack(1)).
    fileprivate init(exitStatus: Int) {
        self =
            switch exitStatus {
            case 10: .manifestUnavailable
            case 11, 12: .manifestInvalid
            case 17: .manifestUntrusted
            case 13: .unknownPack
            case 20: .unreachable
            case 21: .refused
            case 22, 30: .contentInvalid
            case 23: .loginRequired
            case 40: .outOfSpace
            case 41: .containerUnusable
            case 43: .pinned
            case 75, 130: .interrupted
            default: .other
            }
    }
}

/// What a fetcher reads of a report that `stagepack fetch --json` prints.
private struct CommandReport: Decodable {
    var packs: [PackReport]?
    /// Why the stored manifest was used instead of the server's.
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
        var status: Int
    }

    /// The object that the command prints.
    private struct Output: Decodable {
        var runs: [CommandReport]
    }

    /// What the command printed: a report for each manifest, or one of the command's own failure.
    static func reports(_ output: String) -> [CommandReport] {
        let (decoder, data) = (JSONDecoder(), Data(output.utf8))
        if let output = try? decoder.decode(Output.self, from: data) { return output.runs }
        // A command that was killed printed nothing.
        return (try? decoder.decode(CommandReport.self, from: data)).map { [$0] } ?? []
    }
}
