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
        let (kind, reason): (TransferFailure.Kind, PendingReason.Kind) =
            switch failure.kind {
            case .captivePortal: (.unreachable, .portal)
            case .noSpace: (.storage, .disk)
            case .containerUnusable, .systemShortage: (.storage, .backoff)
            case .transferRefused, .manifestRefused: (.refused, .backoff)
            case .digestMismatch, .contentRefused, .manifestInvalid, .manifestUntrusted:
                (.wrongContent, .backoff)
            default: (.unreachable, .backoff)
            }
        self.init(
            TransferFailure(
                kind,
                reason: failure.shortDescription,
                status: failure.advice == .passProxyCredentials ? 407 : nil
            ),
            // Other processes may free space, without any change to this task.
            pendingReason: failure.retryAdvice == .never && reason != .disk ? nil : reason
        )
    }
}
