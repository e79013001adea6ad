import StageControl

extension BAError {
    /// Converts the error of a request to the daemon.
    init(_ error: ControlError) {
        switch error {
        case .notRunning:
            self.init(.callerConnectionNotAccepted, message: "\(error): start 'stagepackd'")
        case .accessDenied: self.init(.callerConnectionNotAccepted, message: "\(error)")
        case .refused(let refusal): self.init(refusal)
        default: self.init(.callerConnectionInvalid, message: "\(error)")
        }
    }

    private init(_ refusal: ControlRefusal) {
        let code: BAErrorCode =
            switch refusal.code {
            case .malformed, .invalid, .tooLarge: .downloadInvalid
            case .forbidden: .callerConnectionNotAccepted
            case .notFound, .conflict: .downloadDoesNotExist
            case .quota: .downloadWouldExceedAllowance
            case .storage, .unavailable: .downloadFailedToStart
            }
        self.init(code, message: refusal.message)
    }
}
