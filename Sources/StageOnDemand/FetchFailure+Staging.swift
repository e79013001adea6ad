import StagePack
import StagingService

extension FetchFailure {
    /// Creates the failure that an application is told of.
    init(_ failure: StagingFailure) {
        self.init(
            Kind(failure.kind.exitStatus),
            reason: failure.description,
            retryAdvice: failure.retryAdvice
        )
    }
}
