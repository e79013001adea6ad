import StageContainer
import StageControl
import StageEngine
import StageModel
import StageOrigin
import StagePack
import StageSystem
import StageTransfer
import StagingService
import SystemPackage

// The texts of hints are in StagingAdvice+Text.swift.

extension CommandFailure {
    /// Creates the failure for a command line that cannot be carried out.
    static func usage(_ message: String) -> CommandFailure {
        CommandFailure(status: .usage, message: message, hint: nil, retryAdvice: .never)
    }

    /// Returns the status of the failure to read a file that the command line names: the command line is wrong if there is no such file.
    static func status(ofArgument error: FileError) -> ExitStatus {
        let isAbsent = error.errno == .noSuchFileOrDirectory || error.errno == .notDirectory
        return isAbsent || error.isNotRegularFile ? .usage : .packagingFailed
    }

    /// Creates the failure to read a file that the command line names.
    init(argument error: FileError) {
        self.init(
            status: Self.status(ofArgument: error),
            message: error.description,
            hint: nil,
            retryAdvice: .never
        )
    }

    /// Creates the failure that the command line reports for a failure of staging.
    init(_ failure: StagingFailure) {
        self.init(
            status: failure.kind.exitStatus,
            message: failure.description
                + (failure.kind == .manifestUntrusted ? "; what is staged stays in use" : ""),
            hint: failure.hintForRegistration
                ?? failure.advice?.text(after: failure.retryAfter, about: failure.pack),
            retryAdvice: failure.retryAdvice,
            requestedManifest: failure.requestedManifest?.description,
            unknownPack: failure.unknownPack
        )
    }

    /// Creates the failure for an error of the engine; `pack` is the pack that it concerns.
    init(_ error: StageError, pack: PackID? = nil) {
        self.init(StagingFailure.engine(error, about: pack.map { .pack($0) }))
    }

    /// Creates the failure for an error of the container.
    init(_ error: ContainerError) {
        self.init(.container(error))
    }

    /// Creates the failure of a transfer of the daemon, with the status that a command's own transfer has for that reason.
    init(_ failure: TransferFailure) {
        let isTransient = failure.status.map { ResponseSummary.isTransient($0) } ?? false
        let (status, retryAdvice): (ExitStatus, RetryAdvice) =
            switch failure.kind {
            case .unreachable, .timedOut, .untrusted, .cannotResume, .other:
                (.transferFailed, .later)
            case .refused: (isTransient ? .transferFailed : .transferRefused, .later)
            case .unacceptable: (.transferRefused, .never)
            case .wrongContent: (.digestMismatch, .later)
            // The daemon waits where its disk is full.
            case .storage, .lost: (.containerUnusable, .later)
            }
        self.init(
            status: status,
            message: failure.reason,
            hint: nil,
            retryAdvice: retryAdvice
        )
    }

    /// Returns the result of `body`, and converts its failure.
    static func wrapping<Result>(
        _ body: () throws(StagingFailure) -> Result
    ) throws(CommandFailure) -> Result {
        do throws(StagingFailure) {
            return try body()
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Creates the failure for an error of the development origin.
    init(_ error: OriginError) {
        let hint: String? =
            switch error {
            case .directory: nil
            case .address: "pass another --port, or 0 for any"
            case .host: "pass a name or an address of this machine with --host"
            }
        self.init(status: .usage, message: error.description, hint: hint, retryAdvice: .never)
    }
}
