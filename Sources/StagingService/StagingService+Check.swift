import StageEngine
import StageModel

extension StagingService {
    /// Downloads, verifies and accepts the manifests as a run does, but stores nothing.
    ///
    /// The request must be a dry run. Ignores the packs of the request, and asks no extension.
    ///
    /// - Returns: The revision of each manifest; `nil` for one in a format of the application's own.
    /// - Throws: ``StagingFailure`` if a server does not answer, its certificate is refused, or a manifest is
    ///   not accepted.
    package func checkManifests() async throws(StagingFailure) -> [Int?] {
        precondition(request.isDryRun, "a check keeps nothing")
        guard !request.isOffline else { throw .offline("the manifest has to be downloaded") }
        let reader = try target.reader()
        let sources = try target.sources(reader)
        return try await withStager(request.options) {
            (stager) async throws(StagingFailure) in
            var revisions: [Int?] = []
            for source in sources {
                let (manifest, problem) = try await self.manifest(
                    from: source,
                    in: reader,
                    by: stager
                )
                // The stored manifest does not replace the server's, since the server is to be checked.
                if let problem { throw problem }
                revisions.append(manifest.revision)
            }
            return revisions
        }
    }
}
