package import StageModel

extension FetchFailure.Kind {
    /// Creates the kind for the exit status that a command ends with, or would end with; `other` for `nil`.
    package init(_ status: ExitStatus?) {
        self =
            switch status {
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
            case .unfinished, .interrupted: .interrupted
            default: .other
            }
    }
}
