import StageContainer
import StageEngine
import StageModel

extension StagingService {
    /// Creates the run of the application's extension; returns `nil` if it has none, or if the packs were
    /// selected by name.
    func extensionRun(
        for selection: PackSelection,
        of manifest: AcceptedManifest,
        by planner: Planner,
        in container: Container?
    ) throws(StagingFailure) -> ExtensionRun? {
        guard case .event(let request, _) = selection else { return nil }
        // A periodic run asks the extension about the last event until that event is complete.
        let event = request == .periodic ? planner.pending.next ?? request : request
        return try ExtensionRun(
            of: target.registration,
            manifest: manifest,
            planner: planner,
            event: event,
            container: container,
            logger: logger
        )
    }

    /// Asks the extension for its downloads; returns `nil` if there is no extension.
    ///
    /// - Throws: ``StagingFailure`` only if the run was interrupted.
    func ask(
        _ program: ExtensionRun?,
        about manifest: Manifest
    ) async throws(StagingFailure) -> Result<ExtensionRun.Choice, StagingFailure>? {
        guard let program else { return nil }
        do throws(StagingFailure) {
            return .success(try await program.choose(manifest))
        } catch {
            if error.kind == .interrupted { throw error }
            return .failure(error)
        }
    }
}
