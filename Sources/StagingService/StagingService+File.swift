import StageContainer
import StageEngine
public import StageModel
import StageTransfer
public import SystemPackage

extension StagingService {
    /// Downloads the manifests and stores them in their container; ignores the packs of the request.
    ///
    /// - Returns: A result without packs for each manifest. Its ``StagingResult/manifestProblem`` is set if
    ///   the download failed and the stored manifest is used.
    /// - Throws: ``StagingFailure`` if a manifest cannot be downloaded and none is stored.
    public func fetchManifests() async throws(StagingFailure) -> [StagingResult] {
        let target = request.target
        guard !request.isOffline else { throw .offline("the manifest is asked for") }
        let reader = try target.reader()
        let sources = try target.sources(reader)
        return try await withStager(request.options, logger: logger) {
            (stager) async throws(StagingFailure) in
            var results: [StagingResult] = []
            for source in sources {
                let (offered, problem) = try await self.manifest(
                    from: source,
                    in: reader,
                    by: stager
                )
                let path = try target.container(for: offered.manifest)
                let (_, manifest) = try openContainer(path, storing: offered, from: source)
                var result = StagingResult(
                    container: path,
                    manifest: manifest,
                    plan: Plan(entries: [])
                )
                result.manifestProblem = problem
                result.manifestVerifiedAt = source.trust?.stored.record?.verifiedAt
                results.append(result)
            }
            return results
        }
    }

    /// Downloads one file of an indexed pack; ignores the packs of the request.
    ///
    /// Keeps the file until the manifest offers another version of the pack. After a cancellation, the next
    /// call resumes from the received bytes.
    ///
    /// - Returns: The path of the file.
    /// - Throws: ``StagingFailure`` if no manifest is available or none has the pack, if the pack has no such
    ///   file, or if the download fails.
    public func fetchFile(
        _ path: ContentPath,
        of id: PackID
    ) async throws(StagingFailure) -> FilePath {
        let target = request.target
        guard !request.isDryRun else {
            throw .invalidRequest("a file is fetched by itself: there is no dry run of that")
        }
        let reader = try target.reader()
        let sources = try target.sources(reader)
        return try await withStager(request.options, logger: logger) {
            (stager) async throws(StagingFailure) in
            for source in sources {
                let (offered, _) = try await self.manifest(from: source, in: reader, by: stager)
                guard offered.manifest[id] != nil else { continue }
                guard !request.isOffline else { throw .offline("file '\(path)' is not here") }
                let (container, manifest) = try openContainer(
                    try target.container(for: offered.manifest),
                    storing: offered,
                    from: source
                )
                do throws(StageError) {
                    return try await stager.fetchFile(
                        path,
                        of: id,
                        from: manifest,
                        in: container,
                        applicationVersion: target.installedVersion
                    )
                } catch {
                    throw .engine(error, about: .pack(id))
                }
            }
            throw StagingFailure(StageError.unknownPack(id))
        }
    }
}
