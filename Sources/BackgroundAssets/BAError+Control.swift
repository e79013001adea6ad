import StageControl

extension BAError {
    /// Converts the error of a request to the daemon.
    init(_ error: ControlError) {
        switch error {
        case .notRunning:
            self.init(.callerConnectionInvalid, message: "\(error): start 'stagepackd'")
        case .accessDenied: self.init(.callerConnectionNotAccepted, message: "\(error)")
        case .refused(let refusal): self.init(refusal)
        default: self.init(.callerConnectionInvalid, message: "\(error)")
        }
    }

    /// Converts the failure of a download.
    init(_ failure: TransferFailure) {
        self.init(errorCode: failure.kind.backgroundAssetsCode, message: failure.reason)
    }

    private init(_ refusal: ControlRefusal) {
        let code: BAErrorCode =
            switch refusal.code {
            case .malformed, .invalid, .tooLarge: .downloadInvalid
            case .forbidden: .callerConnectionNotAccepted
            case .quota: .downloadWouldExceedAllowance
            // Callers handle the end of a task themselves; otherwise the session is gone, or being removed.
            case .notFound, .conflict, .storage, .unavailable: .downloadFailedToStart
            }
        self.init(code, message: refusal.message)
    }
}
