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
    /// - Throws: ``StagingFailure`` if a manifest cannot be downloaded and none is stored; the others are stored all
    ///   the same.
    public func fetchManifests() async throws(StagingFailure) -> [StagingResult] {
        let fetched = try await fetchEachManifest()
        if let failure = fetched.failures.first { throw failure }
        return fetched.results
    }

    /// Downloads and stores the manifests, as ``fetchManifests()``, and returns the failures beside the results.
    package func fetchEachManifest() async throws(StagingFailure) -> StagedManifests {
        let target = request.target
        guard !request.isOffline else { throw .offline("the manifest has to be downloaded") }
        let reader = try target.reader()
        let sources = try target.sources(reader)
        return try await withStager(request.options) {
            (stager) async throws(StagingFailure) in
            var fetched = StagedManifests()
            for source in sources {
                do throws(StagingFailure) {
                    fetched.results.append(
                        try await fetchManifest(from: source, in: reader, by: stager)
                    )
                } catch {
                    fetched.failures.append(error)
                    if error.endsRun { break }
                }
            }
            return fetched
        }
    }

    private func fetchManifest(
        from source: ManifestSource,
        in reader: ContainerReader?,
        by stager: Stager
    ) async throws(StagingFailure) -> StagingResult {
        let (offered, problem) = try await manifest(from: source, in: reader, by: stager)
        let path = try target.container(for: offered.manifest)
        let manifest = try await store(offered, in: try makeContainer(path), from: source)
        var result = StagingResult(
            container: path,
            manifest: manifest,
            plan: Plan(entries: [])
        )
        result.manifestProblem = problem
        result.manifestVerifiedAt = source.trust?.stored.record?.verifiedAt
        return result
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
        return try await withStager(request.options) {
            (stager) async throws(StagingFailure) in
            var failure: StagingFailure?
            for source in sources {
                do throws(StagingFailure) {
                    let fetched = try await fetchFile(
                        path,
                        of: id,
                        from: source,
                        in: reader,
                        by: stager
                    )
                    if let fetched { return fetched }
                } catch {
                    // Another manifest may have the pack.
                    failure = failure ?? error
                    if error.endsRun { break }
                }
            }
            throw failure ?? .unknownPack(id, after: nil)
        }
    }

    /// Downloads one file of an indexed pack; returns `nil` if the manifest of the source does not have the pack.
    private func fetchFile(
        _ path: ContentPath,
        of id: PackID,
        from source: ManifestSource,
        in reader: ContainerReader?,
        by stager: Stager
    ) async throws(StagingFailure) -> FilePath? {
        let (offered, problem) = try await manifest(from: source, in: reader, by: stager)
        guard offered.manifest[id] != nil else {
            if let problem { throw .unknownPack(id, after: problem) }
            return nil
        }
        guard !request.isOffline else { throw .offline("file '\(path)' is not in the container") }
        let container = try makeContainer(try target.container(for: offered.manifest))
        let manifest = try await store(offered, in: container, from: source)
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
}

extension StagingFailure {
    /// True if the run ends, and with it the work for other manifests.
    var endsRun: Bool { kind == .interrupted || kind == .deadlineExceeded }
}
