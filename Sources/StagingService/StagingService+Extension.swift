import StageContainer
import StageEngine
import StageModel

extension StagingService {
    /// The part of the application's extension, where it has one and an event is to be decided on.
    func extensionRun(
        _ selection: PackSelection,
        _ manifest: AcceptedManifest,
        _ planner: Planner,
        _ container: Container?
    ) throws(StagingFailure) -> ExtensionRun? {
        guard case .event(let request, _) = selection else { return nil }
        // An event that is not complete is what the extension is asked about, until it is.
        let event = request == .periodic ? planner.pending ?? request : request
        return try ExtensionRun(target.registration, manifest, planner, event, container, logger)
    }

    /// Asks the extension; `nil` where there is none.
    ///
    /// - Throws: only that the run was interrupted.
    func ask(
        _ program: ExtensionRun?,
        _ manifest: Manifest
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
