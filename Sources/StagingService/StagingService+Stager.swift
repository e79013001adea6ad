import StageEngine
import StageTransfer

extension StagingService {
    /// Runs `body` with a stager, and ends the stager's threads and processes when `body` returns or throws.
    ///
    /// - Throws: ``StagingFailure`` if the system refuses a thread, and the errors of `body`.
    func withStager<Result: Sendable>(
        _ options: StagerOptions,
        perform body: (Stager) async throws(StagingFailure) -> Result
    ) async throws(StagingFailure) -> Result {
        try await StageEngine.withStager(options, logger: logger, perform: body) {
            (error) throws(StagingFailure) in
            throw StagingFailure(StageError.transfer(.storage(error)))
        }
    }
}
