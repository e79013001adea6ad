public import Logging
public import StageModel
import StageSystem
public import SystemPackage

/// Host that runs a downloader extension: one sandboxed process per message, with a deadline.
///
/// A call returns soon after the deadline even if the program hangs. By then all its processes have ended and its
/// scratch folder is removed. A folder that takes longer than ``removalTime`` to remove is renamed within its parent
/// instead; one that cannot be removed is left, and logged. The program may write to the group's shared folder only,
/// and has no network access. A host that runs as root refuses to start a program which the kernel cannot confine.
public struct ExtensionHost: Sendable {
    /// The extension's program.
    public let program: Registration.Program
    /// Time and resource limits of each run.
    public let limits: ExtensionLimits
    private let logger: Logger

    /// Creates a host for a program.
    public init(
        program: Registration.Program,
        limits: ExtensionLimits = ExtensionLimits(),
        logger: Logger
    ) {
        self.program = program
        self.limits = limits
        self.logger = logger
    }

    /// Asks the extension what to download.
    ///
    /// - Returns: The downloads, all of which are permitted.
    /// - Throws: ``ExtensionError``. The policies of the manifest decide then.
    public func downloads(
        for request: ExtensionRequest
    ) async throws(ExtensionError) -> [ExtensionDownload] {
        try accepted(try await answer(to: .downloads(request)), for: request)
    }

    /// Notifies the extension of a completed download.
    ///
    /// - Parameters:
    ///   - download: The download, as the host accepted it.
    ///   - file: The file in the request's scratch folder, which is removed afterwards unless the extension moves it;
    ///     or the directory of a staged pack, which the extension may read.
    ///   - request: The request that led to the download.
    /// - Throws: ``ExtensionError``, which does not affect the download.
    public func finished(
        _ download: ExtensionDownload,
        file: FilePath,
        for request: ExtensionRequest
    ) async throws(ExtensionError) {
        _ = try await answer(to: .finished(request, download, file: file), readable: [file])
    }

    /// Notifies the extension of a failed download.
    ///
    /// - Returns: The downloads that the extension requests instead, as in ``downloads(for:)``.
    public func failed(
        _ download: ExtensionDownload,
        with failure: ExtensionFailure,
        for request: ExtensionRequest
    ) async throws(ExtensionError) -> [ExtensionDownload] {
        try accepted(try await answer(to: .failed(request, download, failure)), for: request)
    }

    /// Asks the extension how to answer an authentication challenge.
    public func answer(
        to challenge: ExtensionChallenge,
        for download: ExtensionDownload,
        of request: ExtensionRequest
    ) async throws(ExtensionError) -> ExtensionChallengeAnswer {
        guard
            case .challenge(let answer) = try await answer(
                to: .challenge(request, download, challenge)
            )
        else { return .performDefaultHandling }
        return answer
    }

    private func accepted(
        _ answer: ExtensionAnswer,
        for request: ExtensionRequest
    ) throws(ExtensionError) -> [ExtensionDownload] {
        guard case .downloads(let downloads) = answer else { return [] }
        do throws(ExtensionRules.Violation) {
            return try ExtensionRules(request).accepted(downloads)
        } catch {
            throw .notAllowed(
                program: program.path,
                download: error.download,
                error.refusal
            )
        }
    }

    /// Runs the program once, and decodes its output.
    private func answer(
        to message: ExtensionMessage,
        readable: [FilePath] = []
    ) async throws(ExtensionError) -> ExtensionAnswer {
        let outcome = try await run(message, readable: readable)
        let text = String(decoding: outcome.errorTail, as: UTF8.self)
        log(outcome, standardError: text, of: message)
        switch outcome.ending {
        case .ended(.exited(0)): break
        case .ended(let ending):
            throw .ended(program: program.path, ending, standardError: text)
        case .deadlineExceeded:
            throw .deadlineExceeded(program: program.path, limits.timeLimit, standardError: text)
        case .tooMuchOutput:
            throw .tooMuchOutput(
                program: program.path,
                limit: ByteCount(ExtensionAnswer.byteLimit)
            )
        case .diskNearlyFull:
            throw .diskNearlyFull(program: program.path)
        case .killed:
            throw .cancelled(program: program.path)
        case .notConfined:
            throw .notConfined(program: program.path, outcome.restrictions)
        }
        do throws(ManifestError) {
            return try ExtensionAnswer(json: outcome.output, to: message)
        } catch {
            throw .invalidAnswer(program: program.path, error)
        }
    }

    private func run(
        _ message: ExtensionMessage,
        readable: [FilePath]
    ) async throws(ExtensionError) -> SandboxedProgram.Outcome {
        let request = message.request
        let sandboxed = SandboxedProgram(
            path: FilePath(program.path),
            arguments: program.arguments,
            environment: Self.environment(scratch: request.scratch),
            directory: request.scratch,
            sandbox: sandbox(for: request, readable: readable),
            timeLimit: limits.timeLimit,
            outputLimit: ExtensionAnswer.byteLimit
        )
        let killSwitch = KillSwitch()
        let run = await withTaskCancellationHandler {
            await Self.run(sandboxed, input: message.json(), killSwitch: killSwitch)
        } onCancel: {
            killSwitch.pull()
        }
        if let fault = run.leftover {
            logger.warning(
                "the scratch folder of the downloader extension is left",
                metadata: [
                    "extension.program": "\(program.path)", "extension.error": "\(fault)",
                ]
            )
        }
        do throws(FileError) {
            return try run.outcome.get()
        } catch {
            throw .notStarted(program: program.path, error)
        }
    }

    /// Creates the scratch folder, runs the program, and removes the folder on every exit.
    ///
    /// Returns the outcome of the program, and the error of the removal if the folder is left.
    private static func run(
        _ program: SandboxedProgram,
        input: [UInt8],
        killSwitch: KillSwitch
    ) async -> (outcome: Result<SandboxedProgram.Outcome, FileError>, leftover: FileError?) {
        await withBlockingThread {
            let scratch: Directory
            do throws(FileError) {
                scratch = try Directory.make(program.directory, permissions: .ownerOnly)
            } catch {
                return (.failure(error), nil)
            }
            let outcome = Result { () throws(FileError) in
                try program.run(input: input, killSwitch: killSwitch)
            }
            do throws(FileError) {
                try remove(scratch, killSwitch: killSwitch)
                return (outcome, nil)
            } catch {
                return (outcome, error)
            }
        }
    }

    /// Time limit for removing a scratch folder, which a program can fill with millions of files.
    public static let removalTime = Duration.seconds(2)

    /// Removes a scratch folder, or renames it if removal takes too long or the task is cancelled.
    private static func remove(
        _ directory: Directory,
        killSwitch: KillSwitch
    ) throws(FileError) {
        guard let name = directory.path.lastComponent else { return }
        let parent = try Directory.open(directory.path.removingLastComponent())
        let end = SuspendingClock.now + removalTime
        do throws(FileError) {
            try parent.removeTree(name) { killSwitch.wasPulled || SuspendingClock.now >= end }
        } catch {
            let mark = String(UInt64.random(in: 0...UInt64.max), radix: 36)
            guard error.errno == .interrupted,
                let aside = FilePath.Component("\(name.string).removed-\(mark)")
            else { throw error }
            try parent.rename(name, toUnused: aside, in: parent)
        }
    }

    private func log(
        _ outcome: SandboxedProgram.Outcome,
        standardError: String,
        of message: ExtensionMessage
    ) {
        var logger = logger
        logger[metadataKey: "extension.program"] = "\(program.path)"
        logger[metadataKey: "extension.message"] = "\(message.kind.rawValue)"
        if outcome.restrictions != .all, outcome.ending != .notConfined {
            logger.warning(
                "the downloader extension is not fully confined",
                metadata: [
                    "extension.files-confined": "\(outcome.restrictions.files)",
                    "extension.calls-filtered": "\(outcome.restrictions.calls)",
                ]
            )
        }
        logger.debug(
            "the downloader extension has ended",
            metadata: ["extension.ending": "\(outcome.ending)"]
        )
        // If the extension failed, the error contains the text.
        guard case .ended(.exited(0)) = outcome.ending, !standardError.isEmpty else { return }
        logger.notice(
            "the downloader extension has printed a text",
            metadata: ["extension.standard-error": "\(standardError.forDisplay(atMost: 4096))"]
        )
    }
}

extension FilePermissions {
    /// Permissions of private directories.
    fileprivate static let ownerOnly = FilePermissions(rawValue: 0o700)
}
