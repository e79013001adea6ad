public import Logging
import StageContainer
public import StageEngine
public import StageModel
public import StagePack
public import StagingService
import Synchronization
public import SystemPackage

/// Fetches packs in the application's own process, for applications that cannot rely on the `stagepack` command.
///
/// Links libcurl and libarchive. Decodes archives on a thread that can write only to the staging area, which is not available
/// to root; `CommandFetcher` decodes them in another process, which outlives the application. Quota, history and daemon work
/// as for the command: a running daemon resumes a fetch that the application left unfinished when it died. A fetch
/// without a time limit that is cancelled ends, in the daemon, too, and the next one resumes the download.
public struct EngineFetcher: PackFetcher {
    private let target: StagingTarget
    private let options: StagerOptions
    private let logger: Logger
    private let usesDaemon: Bool

    /// Creates a fetcher of the packs of an application or a manifest.
    ///
    /// - Parameters:
    ///   - target: The source of the manifest; the container that the `PackStore` passes replaces the target's.
    ///   - options: The options for staging.
    ///   - logger: Logs failures to clean up and to write the history.
    ///   - usesDaemon: Whether a running daemon resumes a fetch that the application left unfinished when it died.
    public init(
        target: StagingTarget,
        options: StagerOptions,
        logger: Logger,
        usesDaemon: Bool = true
    ) {
        self.target = target
        self.options = options
        self.logger = logger
        self.usesDaemon = usesDaemon
    }

    /// Stages the pack unless readers use the newer copy of another container; uses the stored manifest if the
    /// server of the manifest does not answer.
    ///
    /// - Throws: `FetchFailure` with the reason; `CancellationError`.
    public func fetch(
        _ id: PackID,
        into path: FilePath,
        beside others: [FilePath],
        report: @escaping @Sendable (FetchProgress) -> Void
    ) async throws {
        let progress = Mutex<StagingProgress?>(nil)
        let service = service(for: .named([id]), in: path, beside: others) { update in
            let pack = progress.withLock { progress in
                if case .began(let plan) = update { progress = StagingProgress(plan) }
                if case .pack(let id, let event) = update { progress?.apply(event, to: id) }
                return progress?.packs.first
            }
            guard let pack else { return }
            var current = FetchProgress(pack)
            if case .held = update { current.waitingFor = "the staging is paused" }
            report(current)
        }
        let results = try await Self.wrappingErrors { () async throws(StagingFailure) in
            try await service.stage()
        }
        // Ignores a failure to fetch the manifest: the stored one may suffice for the pack.
        let pack = results.lazy.flatMap(\.packs).first { $0.id == id }
        if let failure = pack?.failure { throw Self.error(failure) }
        if pack?.outcome == .waiting {
            throw FetchFailure(
                .interrupted,
                reason: "pack '\(id)': it is paused",
                retryAdvice: .later
            )
        }
    }

    /// Fetches one file; uses the stored manifest if the manifest's server does not respond.
    ///
    /// - Throws: `PackStoreError.fileNotFound(_:)`; `FetchFailure` with the reason;
    ///   `CancellationError`.
    public func fetchFile(
        _ file: ContentPath,
        of id: PackID,
        into path: FilePath
    ) async throws {
        let service = service(for: .named([id]), in: path)
        do {
            _ = try await service.fetchFile(file, of: id)
        } catch .engine(.noSuchFile(_, .isMissing), _) {
            throw PackStoreError.fileNotFound(file.text)
        } catch {
            throw Self.error(error)
        }
    }

    /// Fetches the manifest and stores it in the container.
    ///
    /// - Throws: `FetchFailure` with the reason; `CancellationError`.
    public func fetchManifest(into path: FilePath) async throws {
        let service = service(for: .named([]), in: path)
        let results = try await Self.wrappingErrors { () async throws(StagingFailure) in
            try await service.fetchManifests()
        }
        if let problem = results.lazy.compactMap(\.manifestProblem).first {
            throw Self.error(problem)
        }
    }

    private func service(
        for packs: StagingRequest.Packs,
        in container: FilePath,
        beside others: [FilePath] = [],
        report: @escaping @Sendable (StagingUpdate) -> Void = { _ in }
    ) -> StagingService {
        var target = target.renewed
        target.container = container
        target.otherContainers = others
        var request = StagingRequest(packs, of: target, options: options)
        request.usesDaemon = usesDaemon
        if !FetchContext.hasTimeout { request.withdrawsWhenCancelled = { true } }
        return StagingService(request, logger: logger, report: report)
    }

    /// Runs `body`, and converts its failure to the error that applications get.
    private static func wrappingErrors<Value>(
        _ body: () async throws(StagingFailure) -> Value
    ) async throws -> Value {
        do throws(StagingFailure) {
            return try await body()
        } catch {
            throw Self.error(error)
        }
    }

    private static func error(_ failure: StagingFailure) -> any Error {
        failure.kind == .interrupted && Task.isCancelled
            ? CancellationError() : FetchFailure(failure)
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
        case .waitingForSharedDownload: waitingFor = "the download for another pack"
        case .waitingForPack(let id): waitingFor = "the archive of '\(id)'"
        case .queued, .receiving, .unpacking, .publishing, .ended: break
        }
    }
}
