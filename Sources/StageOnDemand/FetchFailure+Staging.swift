import StagePack
import StagingService

extension FetchFailure {
    /// Converts a failure of `StagingService`.
    init(_ failure: StagingFailure) {
        self.init(
            Kind(failure.kind.exitStatus),
            reason: failure.description,
            retryAdvice: failure.retryAdvice
        )
    }
}
