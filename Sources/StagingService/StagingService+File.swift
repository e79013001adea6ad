import StageContainer
import StageEngine
public import StageModel
import StageTransfer
public import SystemPackage

extension StagingService {
    /// Asks for the manifests and keeps them in their container; the request's packs are not looked at.
    ///
    /// - Returns: A result without packs for each manifest, with ``StagingResult/manifestProblem`` where the stored
    ///   one is all there is.
    /// - Throws: ``StagingFailure`` if a manifest cannot be had, and none is stored.
    public func fetchManifests() async throws(StagingFailure) -> [StagingResult] {
        let target = request.target
        guard !request.isOffline else { throw .offline("the manifest is asked for") }
        let reader = try target.reader()
        let sources = try target.sources(reader)
        return try await withStager(request.options, logger: logger) {
            (stager) async throws(StagingFailure) in
            var results: [StagingResult] = []
            for source in sources {
                let (offered, problem) = try await self.manifest(source, reader, stager)
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

    /// Fetches one file of an indexed pack; the request's packs are not looked at.
    ///
    /// The file stays until the manifest has another version of the pack. A cancelled task leaves what it
    /// received to the next one.
    ///
    /// - Returns: The path of the file.
    /// - Throws: ``StagingFailure`` if no manifest can be had or none has the pack, if the pack has no such file,
    ///   or it cannot be fetched.
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
                let (offered, _) = try await self.manifest(source, reader, stager)
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
