import ArgumentParser
import FoundationEssentials
import StageControl
import StageDigest
import StageModel
import StagePack
import StageSystem
import SystemPackage

struct TasksAddCommand: ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "add",
        abstract: "Have the daemon download a file.",
        discussion: """
            Prints the transfer, which outlives this command and the session of its user. The same \
            URL and digest again are the same transfer, until it fails, is cancelled, or its file is \
            moved away. 'stagepack tasks' prints the path of the finished file. With '--output-path' the command waits for the file and moves it there; interrupted, it \
            leaves the transfer to the daemon, and the same command again waits for it. While the daemon is restarted, as by an upgrade of \
            its package, it connects again for up to 30 seconds. The file gets the mode of any new file, which the umask determines.
            """
    )

    @Argument(help: "The http or https URL.") var url: String

    @Option(
        help: ArgumentHelp(
            "The SHA-256 digest that the file must have, in hexadecimal.",
            valueName: "digest"
        ),
        transform: Self.digest
    )
    var sha256: Digest?

    @Option(
        help: ArgumentHelp("The size that the file must have.", valueName: "size"),
        transform: ByteSize.parse
    )
    var size: ByteCount?

    @Option(
        name: [.customShort("o"), .customLong("output-path")],
        help: ArgumentHelp(
            "Wait for the download, and move the file to this path; an existing file is replaced.",
            valueName: "file"
        ),
        completion: .file()
    )
    var output: String?

    @Flag(help: "Wait for an unmetered network and mains power.") var discretionary = false
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    /// The session of downloads that no command waits for; the names of the command's other sessions begin with it.
    static let session = "stagepack.tasks"

    private static let quotaHint =
        "'stagepack tasks clear' removes downloads that have ended, which count for the limits"

    /// The session of the download.
    private var session: String {
        discretionary ? "\(Self.session).discretionary" : Self.session
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        try checkURL()
        let token = [url, sha256?.description ?? ""].joined(separator: " ")
        var request = TransferRequest(
            token: Digest(of: Array(token.utf8)).description,
            kind: .download,
            url: url
        )
        request.sha256 = sha256?.description
        request.size = size
        var configuration = SessionConfiguration()
        configuration.isDiscretionary = discretionary
        configuration.sendsLaunchEvents = false
        if let output {
            return try await collect(request, configuration, to: FilePath(output).absolute)
        }
        let (session, settings, added) = (session, configuration, request)
        let task = try await Daemon.ask(quotaHint: Self.quotaHint) {
            client throws(ControlError) in
            try await client.makeSession(session, configuration: settings)
            let earlier = try await client.tasks(in: session)
            let new = added.replacing(earlier, in: client.downloads)
            let ids = try await client.createTasks([new], in: session)
            return try await client.task(ids[0])
        }
        Console.print(change: TaskReport(task: task), asJSON: json)
        return .success
    }

    /// Refuses a URL that the daemon refuses, without the number of a transfer that does not exist.
    private func checkURL() throws(CommandFailure) {
        let scheme = url.prefix { $0 != ":" }.lowercased()
        guard ["http", "https"].contains(scheme) else {
            throw .usage("expected an http or https URL, found '\(url.withoutUser.forDisplay())'")
        }
        guard url.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            var failure = CommandFailure.usage(
                "expected a URL without spaces and characters that are not ASCII, found "
                    + "'\(url.withoutUser.forDisplay())'"
            )
            failure.hint = "write them percent-encoded: a space is '%20'"
            throw failure
        }
        do throws(ValueError) {
            _ = try URLReference(url).checkOrigin()
        } catch {
            throw .usage("\(error)")
        }
    }

    /// Waits for the download, and moves its file to `path`.
    private func collect(
        _ request: TransferRequest,
        _ settings: SessionConfiguration,
        to path: FilePath
    ) async throws(CommandFailure) -> ExitStatus {
        let download = CollectedDownload(
            session: "\(session).\(request.token.prefix(32))",
            settings: settings,
            request: request,
            path: path
        )
        try download.checkPath()
        let client = try await Daemon.client()
        let (result, interruption) = await withInterruption(after: nil) {
            () async -> Result<CollectedDownload.Ending, ControlError> in
            do throws(ControlError) {
                return .success(try await download.collect(from: client))
            } catch {
                return .failure(error)
            }
        }
        switch result {
        case .success(let ending):
            var report = TaskReport(task: try ending.get())
            report.location = path.string
            Console.print(change: report, asJSON: json)
            return .success
        case .failure where interruption != nil:
            throw CommandFailure(interruptedAt: download.addition.state)
        case .failure(let error): throw CommandFailure(error, quotaHint: Self.quotaHint)
        }
    }

    private static func digest(_ text: String) throws -> Digest {
        do throws(ValueError) {
            return try Digest(hexadecimal: text)
        } catch {
            throw ValidationError(error.description)
        }
    }
}

extension CommandFailure {
    /// Creates the failure of a command that was interrupted, with what it knows of the daemon's task.
    fileprivate init(interruptedAt addition: CollectedDownload.Addition.State) {
        let command = HintSource.thisCommand()
        let (message, hint): (String, String?) =
            switch addition {
            case .notRequested:
                (
                    "interrupted before the daemon was asked for the download",
                    command.map { "run \($0) to download the file" }
                )
            case .requested:
                (
                    "interrupted before the daemon confirmed the download, which it may continue",
                    command.map { "run \($0) to wait for the file, or to download it" }
                )
            case .confirmed:
                (
                    "interrupted: the daemon continues the download",
                    command.map { "run \($0) to wait for the file" }
                )
            }
        self.init(status: .interrupted, message: message, hint: hint, retryAdvice: .now)
    }
}

extension TransferRequest {
    /// Returns the request with its token, or with a new one if the task with that token has no file any more.
    ///
    /// The daemon responds to a known token with the existing task, which would not download again.
    fileprivate func replacing(
        _ earlier: [TransferTask],
        in downloads: DownloadDirectory?
    ) -> TransferRequest {
        let ended = Set(earlier.filter { $0.hasNoFile(in: downloads) }.map(\.request.token))
        var request = self
        var number = 1
        while ended.contains(request.token) {
            number += 1
            request.token = Digest(of: Array("\(token) \(number)".utf8)).description
        }
        return request
    }
}

extension TransferTask {
    /// Returns whether the download failed, was cancelled, or has completed and its file was moved away.
    func hasNoFile(in downloads: DownloadDirectory?) -> Bool {
        switch state {
        case .failed, .cancelled: true
        case .completed: TaskReport(self, in: downloads).location == nil
        case .suspended, .waiting, .running: false
        }
    }
}
