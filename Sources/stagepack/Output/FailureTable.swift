import StageContainer
import StageEngine
import StageModel
import StageOrigin
import StagePack
import StagingService

// The one place where failures become exit statuses. A new kind of failure is a compile error here; the words of
// hints are in StagingAdvice+Text.swift.

extension CommandFailure {
    /// A command line that cannot be carried out as it is written.
    static func usage(_ message: String) -> CommandFailure {
        CommandFailure(status: .usage, message: message, hint: nil, retry: .never)
    }

    /// Creates the failure that the user is told of.
    init(_ failure: StagingFailure) {
        self.init(
            status: ExitStatus(failure.kind),
            message: failure.description,
            hint: failure.advice?.text(after: failure.retryAfter, about: failure.pack),
            retry: failure.retry,
            place: failure.place?.description,
            unknownPack: failure.unknownPack
        )
    }

    /// Creates the failure that an error of the engine is; `pack` is the pack that it is about.
    init(_ error: StageError, pack: PackID? = nil) {
        self.init(StagingFailure.engine(error, about: pack.map { .pack($0) }))
    }

    /// Creates the failure that an error of the container is.
    init(_ error: ContainerError) {
        self.init(.container(error))
    }

    /// Returns what `body` returns, its failure as the user is told of it.
    static func wrapping<Result>(
        _ body: () throws(StagingFailure) -> Result
    ) throws(CommandFailure) -> Result {
        do throws(StagingFailure) {
            return try body()
        } catch {
            throw CommandFailure(error)
        }
    }

    /// What a failure of the development origin means to the user.
    init(_ error: OriginError) {
        let hint: String? =
            switch error {
            case .directory: nil
            case .address: "pass another --port, or 0 for any"
            }
        self.init(status: .usage, message: error.description, hint: hint, retry: .never)
    }
}

extension ExitStatus {
    /// Creates the status that stands for a kind of failure.
    init(_ kind: StagingFailure.Kind) {
        self =
            switch kind {
            case .manifestUnavailable: .manifestUnavailable
            case .manifestInvalid: .manifestInvalid
            case .manifestRefused: .manifestRefused
            case .manifestUntrusted: .manifestUntrusted
            case .unknownPack: .unknownPack
            case .restricted: .restricted
            case .extensionFailed: .extensionFailed
            case .unknownFile: .unknownFile
            case .transferFailed: .transferFailed
            case .transferRefused: .transferRefused
            case .digestMismatch: .digestMismatch
            case .captivePortal: .captivePortal
            case .contentRefused: .contentRefused
            case .noSpace: .noSpace
            case .containerUnusable: .containerUnusable
            case .inUse: .inUse
            case .pinned: .pinned
            case .notStaged: .notStaged
            case .noPrevious: .noPrevious
            case .invalidRequest: .usage
            case .systemShortage: .systemShortage
            case .offline: .unfinished
            case .deadlineExceeded: .unfinished
            case .interrupted: .interrupted
            }
    }
}
