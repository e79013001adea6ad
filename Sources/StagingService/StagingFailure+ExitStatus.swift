package import StageModel

extension StagingFailure.Kind {
    /// The exit status of a command that ends with a failure of the kind.
    ///
    /// Applications that link the service use the same values as those that start the command.
    package var exitStatus: ExitStatus {
        switch self {
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
        case .registrationChanged: .unfinished
        case .interrupted: .interrupted
        }
    }
}
