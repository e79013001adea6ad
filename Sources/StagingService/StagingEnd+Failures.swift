package import StageControl
import StageModel
import StagePack

extension StagingEnd {
    /// Creates the end of an attempt with these failures; `nil` if it was interrupted, so that a worker
    /// resumes it.
    package init?(of failures: [StagingFailure]) {
        if failures.contains(where: { $0.kind == .interrupted }) { return nil }
        // Prefers a failure that another attempt may resolve.
        let failure =
            failures.first { $0.retryAdvice != .never }
            ?? failures.first { $0.kind == .noSpace } ?? failures.first
        guard let failure else {
            self.init()
            return
        }
        let reason: PendingReason.Kind =
            switch failure.kind {
            case .captivePortal: .portal
            case .noSpace: .disk
            default: .backoff
            }
        self.init(
            TransferFailure(
                failure.transferKind,
                reason: failure.shortDescription,
                status: failure.advice == .passProxyCredentials ? 407 : nil
            ),
            // Other processes may free space, without any change to this task.
            pendingReason: failure.retryAdvice == .never && reason != .disk ? nil : reason
        )
    }
}

extension StagingFailure {
    /// Kind of the failure in the control protocol.
    var transferKind: TransferFailure.Kind {
        switch kind {
        case .noSpace, .containerUnusable, .systemShortage: .storage
        case .transferRefused, .manifestRefused: .refused
        case .digestMismatch, .contentRefused, .manifestInvalid, .manifestUntrusted: .wrongContent
        default: .unreachable
        }
    }
}
