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
    /// Whether the server need not be asked where the stored manifest has what is wanted.
    var trustsStoredManifest = false

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
        var planner = Planner(manifest: manifest.manifest)
        do throws(ContainerError) {
            guard !isDryRun else {
                try planner.read(try ContainerReader.open(path), nil)
                var report = report(planner, select, path)
                report.manifestProblem = problem.map(FailureReport.init)
                return report
            }
            let container = try Container.make(path)
            if !manifest.isUnchanged {
                try container.store(manifest.record, for: manifest.manifest.application)
            }
            try planner.read(container.reader, container)
            let plan = planner.plan(for: select(planner))
            var report = StagingReport(
                container: path.string,
                manifest: manifest.manifest,
                plan: plan
            )
            report.manifestProblem = problem.map(FailureReport.init)
            report.add(await stage(plan, manifest, container, stager))
            return report
        } catch {
            throw CommandFailure(error)
        }
    }

    private func report(
        _ planner: Planner,
        _ select: (Planner) -> PackSelection,
        _ path: FilePath
    ) -> StagingReport {
        StagingReport(
            container: path.string,
            manifest: planner.manifest,
            plan: planner.plan(for: select(planner))
        )
    }

    private func stage(
        _ plan: Plan,
        _ manifest: AcceptedManifest,
        _ container: Container,
        _ stager: Stager
    ) async -> [PackID: StagingOutcome] {
        guard !plan.packsToStage.isEmpty else { return [:] }
        if session.isOffline {
            let failure = StageError.transfer(
                .unreachable(url: manifest.record.url, detail: "offline")
            )
            let ids = plan.packsToStage.map { ($0.id, StagingOutcome.failed(failure)) }
            return Dictionary(uniqueKeysWithValues: ids)
        }
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
        do throws(StageError) {
            if session.isOffline || trustsStoredManifest, let stored {
                return (try AcceptedManifest(stored: stored), nil)
            }
            if session.isOffline {
                throw .manifestUnavailable(
                    .unreachable(url: source.urls.first ?? "", detail: "offline")
                )
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

extension Planner {
    /// Reads what the container holds; free space only where something is to be written.
    fileprivate mutating func read(
        _ reader: ContainerReader?,
        _ container: Container?
    ) throws(ContainerError) {
        for pack in manifest.packs {
            guard let content = try reader?.currentGeneration(of: pack.id)?.content else {
                continue
            }
            staged[pack.id] = StagedVersion(
                version: content.version,
                archiveDigest: content.archiveDigest
            )
        }
        if let root = reader?.root {
            do throws(FileError) {
                freeSpace = ByteCount(try root.freeSpace().bytes)
            } catch {
                throw .file(error)
            }
        }
        if let container { downloaded = try container.downloadedSizes() }
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
