import StageEngine
import StageModel

extension StagingService {
    /// Asks the servers for the manifests, and verifies and accepts them as a run does, but keeps nothing.
    ///
    /// The request has to be a dry run; its packs are not looked at, and no extension is asked.
    ///
    /// - Returns: The revision of each manifest; `nil` for one in a format of the application's own.
    /// - Throws: ``StagingFailure`` if a server does not answer, its certificate is refused, or a manifest is not accepted.
    package func checkManifests() async throws(StagingFailure) -> [Int?] {
        precondition(request.isDryRun, "a check keeps nothing")
        let reader = try target.reader()
        let sources = try target.sources(reader)
        return try await withStager(request.options, logger: logger) {
            (stager) async throws(StagingFailure) in
            var revisions: [Int?] = []
            for source in sources {
                let (manifest, problem) = try await self.manifest(source, reader, stager)
                // The stored manifest does not stand in: the server is what is checked.
                if let problem { throw problem }
                revisions.append(manifest.revision)
            }
            return revisions
        }
    }
}
