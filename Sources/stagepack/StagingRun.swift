import StageEngine
import StageModel
import StagingService
import SystemPackage

/// A run of a command that stages packs: carries out its request, shows the progress, and returns its
/// reports.
struct StagingRun: Sendable {
    var request: StagingRequest
    let output: OutputOptions

    /// Creates a run for packs from the session's source.
    init(
        _ packs: StagingRequest.Packs,
        session: Session,
        output: OutputOptions
    ) throws(CommandFailure) {
        request = try session.request(packs)
        self.output = output
    }

    /// Stages the packs.
    ///
    /// - Throws: ``CommandFailure`` if no manifest is available, or if no manifest has a pack that the request
    ///   names.
    func run() async throws(CommandFailure) -> StagingRuns {
        do throws(StagingFailure) {
            let staged = try await withService { service async throws(StagingFailure) in
                try await service.stageManifests()
            }
            return try runs(of: staged) { $0.naming(containersOf: request.target) }
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Downloads the manifests and stores them.
    func fetchManifests() async throws(CommandFailure) -> StagingRuns {
        do throws(StagingFailure) {
            let fetched = try await withService { service async throws(StagingFailure) in
                try await service.fetchEachManifest()
            }
            return try runs(of: fetched) { $0 }
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Returns the reports of results; throws the failure if there is only one manifest.
    private func runs(
        of staged: StagedManifests,
        _ change: (StagingReport) -> StagingReport
    ) throws(StagingFailure) -> StagingRuns {
        if staged.results.isEmpty, staged.failures.count == 1 { throw staged.failures[0] }
        return StagingRuns(
            reports: staged.results.map { change(StagingReport($0)) },
            failures: staged.failures.map { CommandFailure($0) }
        )
    }

    /// Downloads one file of an indexed pack, and returns its path.
    func fetchFile(
        _ path: ContentPath,
        of id: PackID
    ) async throws(CommandFailure) -> FilePath {
        do throws(StagingFailure) {
            return try await withService { service async throws(StagingFailure) in
                try await service.fetchFile(path, of: id)
            }
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Runs `body` with the service, and ends the display of its progress.
    private func withService<Value>(
        _ body: (StagingService) async throws(StagingFailure) -> Value
    ) async throws(StagingFailure) -> Value {
        var request = request
        request.deadline = Deadline.current
        let display = StagingDisplay(output)
        defer { display.end() }
        return try await body(
            StagingService(request, logger: Log.logger) { display.take($0) }
        )
    }
}
