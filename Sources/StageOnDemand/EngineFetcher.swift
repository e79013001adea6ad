public import Logging
import StageContainer
public import StageEngine
public import StageModel
public import StagePack
import StageTransfer
import Synchronization
public import SystemPackage

/// Fetches packs inside the application, for one that cannot rely on the `stagepack` command.
///
/// Links libcurl and libarchive. Archives are decoded on a thread that can write to the staging area
/// only, but in the application's own process, which is refused to root; ``CommandFetcher`` decodes them
/// in another one and outlives the application.
public struct EngineFetcher: PackFetcher {
    private let source: ManifestSource
    private let options: StagerOptions
    private let logger: Logger

    /// Creates a fetcher of the packs of one manifest.
    ///
    /// - Parameters:
    ///   - source: Where the manifest is asked for, and what it must be.
    ///   - options: How packs are staged.
    ///   - logger: Told what could not be tidied up.
    public init(source: ManifestSource, options: StagerOptions, logger: Logger) {
        self.source = source
        self.options = options
        self.logger = logger
    }

    /// Stages the pack, with the stored manifest where the server of the manifest does not answer.
    ///
    /// - Throws: ``FetchFailure`` with the reason; `CancellationError`.
    public func fetch(
        _ id: PackID,
        into path: FilePath,
        report: @escaping @Sendable (FetchProgress) -> Void
    ) async throws {
        do {
            try await withStager(options, logger: logger) { (stager) async throws(StageError) in
                try await fetch(id, into: path, stager, report)
            }
        } catch .cancelled {
            throw CancellationError()
        } catch {
            throw FetchFailure(error)
        }
    }

    /// Fetches one file, with the stored manifest where the server of the manifest does not answer.
    ///
    /// - Throws: ``PackStoreError/fileNotFound(_:)``; ``FetchFailure`` with the reason;
    ///   `CancellationError`.
    public func fetchFile(
        _ file: ContentPath,
        of id: PackID,
        into path: FilePath
    ) async throws {
        do {
            try await withStager(options, logger: logger) { (stager) async throws(StageError) in
                let container = try container(path)
                let manifest = try await manifest(stager, container)
                _ = try await stager.fetchFile(
                    file,
                    of: id,
                    from: manifest,
                    in: container,
                    applicationVersion: source.applicationVersion
                )
            }
        } catch .cancelled {
            throw CancellationError()
        } catch .noSuchFile(_, .isMissing) {
            throw PackStoreError.fileNotFound(file.text)
        } catch {
            throw FetchFailure(error)
        }
    }

    /// Asks for the manifest and keeps it.
    ///
    /// - Throws: ``FetchFailure`` with the reason; `CancellationError`.
    public func fetchManifest(into path: FilePath) async throws {
        do {
            try await withStager(options, logger: logger) { (stager) async throws(StageError) in
                let container = try container(path)
                let stored = try storedManifest(container)
                _ = try await newManifest(stager, container, stored)
            }
        } catch .cancelled {
            throw CancellationError()
        } catch {
            throw FetchFailure(error)
        }
    }

    private func fetch(
        _ id: PackID,
        into path: FilePath,
        _ stager: Stager,
        _ report: @escaping @Sendable (FetchProgress) -> Void
    ) async throws(StageError) {
        let container = try container(path)
        let manifest = try await manifest(stager, container)
        guard manifest.manifest[id] != nil else { throw .unknownPack(id) }
        var planner = try Planner(manifest: manifest.manifest, container: container)
        planner.applicationVersion = source.applicationVersion
        let plan = try planner.plan(for: .packs([id]), in: container.reader)
        if case .refuse(let refusal) = plan.entries.first?.decision {
            throw StageError(refusal, of: id, manifest: source.urls.first ?? "")
        }
        _ = try container.evict(plan.evictions)
        let progress = Mutex(StagingProgress(plan))
        let outcomes = await stager.stage(plan, of: manifest, in: container) { id, event in
            let pack = progress.withLock { progress in
                progress.apply(event, to: id)
                return progress.packs.first
            }
            if let pack { report(FetchProgress(pack)) }
        }
        if case .failed(let error) = outcomes[id] { throw error }
    }

    private func container(_ path: FilePath) throws(StageError) -> Container {
        do throws(ContainerError) {
            return try Container.make(path)
        } catch {
            throw .container(error)
        }
    }

    private func manifest(
        _ stager: Stager,
        _ container: Container
    ) async throws(StageError) -> AcceptedManifest {
        let stored = try storedManifest(container)
        do throws(StageError) {
            return try await newManifest(stager, container, stored)
        } catch {
            guard case .manifestUnavailable = error, let stored else { throw error }
            return try AcceptedManifest(stored: stored, for: source)
        }
    }

    /// The manifest as the server has it, which is kept.
    private func newManifest(
        _ stager: Stager,
        _ container: Container,
        _ stored: StoredManifest?
    ) async throws(StageError) -> AcceptedManifest {
        let manifest = try await stager.manifest(from: source, stored: stored)
        if !manifest.isUnchanged { try store(manifest, container) }
        return manifest
    }

    private func store(
        _ manifest: AcceptedManifest,
        _ container: Container
    ) throws(StageError) {
        let application = manifest.manifest.application
        let before: StoredManifest?
        do throws(ContainerError) {
            before = try container.storedManifest(for: application)
        } catch {
            throw .container(error)
        }
        try manifest.checkRevision(after: before)
        do throws(ContainerError) {
            try container.store(manifest.record, for: application)
        } catch {
            throw .container(error)
        }
    }

    private func storedManifest(_ container: Container) throws(StageError) -> StoredManifest? {
        do throws(ContainerError) {
            for application in try container.reader.applications() {
                if let record = try container.storedManifest(for: application),
                    source.urls.contains(record.url)
                {
                    return record
                }
            }
            return nil
        } catch {
            throw .container(error)
        }
    }
}

extension FetchProgress {
    fileprivate init(_ pack: PackProgress) {
        self.init(
            received: pack.received,
            downloadSize: pack.downloadSize,
            unpacked: pack.unpacked,
            installedSize: pack.installedSize
        )
        switch pack.phase {
        case .waiting(let reason, _): waitingFor = reason
        case .waitingForOther: waitingFor = "another process"
        case .queued, .receiving, .unpacking, .publishing, .ended: break
        }
    }
}

extension StageError {
    /// Creates the error that the refusal of a single pack is, in a plan without quota and restrictions.
    fileprivate init(_ refusal: Plan.Refusal, of id: PackID, manifest url: String) {
        self =
            switch refusal {
            case .noSpace(let needed, let available), .exceedsQuota(let needed, let available),
                .exceedsAllowance(_, let needed, let available):
                .noSpace(needed: needed, available: available)
            case .disallowedDomain(let hosts):
                .transfer(.unacceptable(url: url, .domain(hosts.joined(separator: ", "))))
            case .pinned(let pin): .container(.pinned(id, version: pin.version))
            case .otherVersion(let required, let installed):
                .manifestRefused(
                    url: url,
                    .otherVersion(required: required, installed: installed)
                )
            }
    }
}
