import Logging
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTransfer
import SystemPackage

/// What the commands that stage packs do: ask for the manifests, plan, and carry out the plans.
struct StagingRun: Sendable {
    let session: Session
    let output: OutputOptions
    /// Whether to stop at the plan.
    var isDryRun = false

    /// Makes a plan for each manifest and carries it out; `select` tells what is wanted.
    func run(
        _ select: @Sendable (Planner) -> PackSelection
    ) async throws(CommandFailure) -> [StagingReport] {
        let options = try session.stagerOptions()
        let reader = try session.reader()
        let sources = try session.sources(reader)
        return try await withStager(options, logger: Log.logger) {
            (stager) async throws(CommandFailure) in
            var reports: [StagingReport] = []
            for source in sources {
                reports.append(try await stage(source, reader, stager, select))
            }
            return reports
        }
    }

    private func stage(
        _ source: ManifestSource,
        _ reader: ContainerReader?,
        _ stager: Stager,
        _ select: @Sendable (Planner) -> PackSelection
    ) async throws(CommandFailure) -> StagingReport {
        let (manifest, problem) = try await manifest(source, reader, stager)
        let path = try session.container(for: manifest.manifest)
        guard !isDryRun else {
            let planner = try planner(manifest, path)
            return report(planner, planner.plan(for: select(planner)), path, problem)
        }
        let container = try openContainer(path, storing: manifest)
        let planner = try planner(manifest, container)
        let plan = planner.plan(for: select(planner))
        var report = report(planner, plan, path, problem)
        if session.isOffline {
            report.refuseOffline()
        } else {
            report.add(await stage(plan, manifest, container, stager))
        }
        return report
    }

    private func report(
        _ planner: Planner,
        _ plan: Plan,
        _ path: FilePath,
        _ problem: CommandFailure?
    ) -> StagingReport {
        var report = StagingReport(
            container: path.string,
            manifest: planner.manifest,
            plan: plan
        )
        report.manifestProblem = problem.map(FailureReport.init)
        return report
    }

    /// Opens the container, makes it where it is missing, and keeps the manifest in it.
    private func openContainer(
        _ path: FilePath,
        storing manifest: AcceptedManifest
    ) throws(CommandFailure) -> Container {
        do throws(ContainerError) {
            let container = try Container.make(path)
            if !manifest.isUnchanged {
                try container.store(manifest.record, for: manifest.manifest.application)
            }
            return container
        } catch {
            throw CommandFailure(error)
        }
    }

    private func planner(
        _ manifest: AcceptedManifest,
        _ container: Container
    ) throws(CommandFailure) -> Planner {
        do throws(StageError) {
            return try Planner(manifest: manifest.manifest, container: container)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// The planner of a dry run, which makes nothing.
    private func planner(
        _ manifest: AcceptedManifest,
        _ path: FilePath
    ) throws(CommandFailure) -> Planner {
        do throws(StageError) {
            return try Planner(manifest: manifest.manifest, containerAt: path)
        } catch {
            throw CommandFailure(error)
        }
    }

    private func stage(
        _ plan: Plan,
        _ manifest: AcceptedManifest,
        _ container: Container,
        _ stager: Stager
    ) async -> [PackID: StagingOutcome] {
        guard !plan.packsToStage.isEmpty else { return [:] }
        let display = ProgressDisplay(plan, output)
        return await display.whileShown {
            await stager.stage(plan, of: manifest, in: container) { display.take($0, $1) }
        }
    }

    /// The manifest: the server's, or the stored one where the server is not asked or does not answer.
    private func manifest(
        _ source: ManifestSource,
        _ reader: ContainerReader?,
        _ stager: Stager
    ) async throws(CommandFailure) -> (AcceptedManifest, CommandFailure?) {
        let stored =
            try reader.map { reader throws(CommandFailure) in
                try session.stored(reader).first { source.urls.contains($0.url) }
            } ?? nil
        if session.isOffline, stored == nil { throw .offline("the manifest is not here") }
        do throws(StageError) {
            if session.isOffline, let stored {
                return (try AcceptedManifest(stored: stored), nil)
            }
            let manifest = try await stager.manifest(from: source, stored: stored) { event in
                ManifestProgress.tell(event, output)
            }
            return (manifest, nil)
        } catch {
            let failure = CommandFailure(error)
            guard case .manifestUnavailable = error, let stored else { throw failure }
            do throws(StageError) {
                return (try AcceptedManifest(stored: stored), failure)
            } catch {
                throw CommandFailure(error)
            }
        }
    }
}

extension StagingRun {
    /// Stages packs that are named; that no manifest has one of them is an error.
    func run(
        _ ids: Set<PackID>,
        _ select: @Sendable (Set<PackID>) -> PackSelection
    ) async throws(CommandFailure) -> [StagingReport] {
        let reports = try await run { _ in select(ids) }
        let known = Set(reports.flatMap { $0.packs.map(\.id) })
        if let unknown = ids.subtracting(known).min() {
            throw CommandFailure(.unknownPack(unknown))
        }
        return reports
    }
}
