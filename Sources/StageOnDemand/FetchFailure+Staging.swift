import StagePack
import StagingService

extension FetchFailure {
    /// Creates the failure that an application is told of.
    init(_ failure: StagingFailure) {
        self.init(Kind(failure.kind), reason: failure.description, retry: failure.retry)
    }
}

extension FetchFailure.Kind {
    /// The same kinds as the exit statuses of the command stand for.
    fileprivate init(_ kind: StagingFailure.Kind) {
        self =
            switch kind {
            case .manifestUnavailable: .manifestUnavailable
            case .manifestInvalid, .manifestRefused: .manifestInvalid
            case .manifestUntrusted: .manifestUntrusted
            case .unknownPack: .unknownPack
            case .transferFailed: .unreachable
            case .transferRefused: .refused
            case .digestMismatch, .contentRefused: .contentInvalid
            case .captivePortal: .loginRequired
            case .noSpace: .outOfSpace
            case .containerUnusable: .containerUnusable
            case .pinned: .pinned
            case .offline, .deadlineExceeded, .registrationChanged, .interrupted: .interrupted
            case .restricted, .extensionFailed, .unknownFile, .inUse, .notStaged, .noPrevious,
                .invalidRequest, .systemShortage:
                .other
            }
    }
}
