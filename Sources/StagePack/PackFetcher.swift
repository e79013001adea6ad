public import StageModel
public import SystemPackage

/// Fetches packs, files and manifests into a container for a ``PackStore``.
///
/// ``CommandFetcher`` runs the `stagepack` command, so that an application does not link the transfer and
/// archive libraries. The module `StageOnDemand` contains a fetcher that runs the engine inside the
/// application.
public protocol PackFetcher: Sendable {
    /// Stages the pack in the container unless readers would use the copy in another container, which is pinned
    /// or newer, and returns when it is published.
    ///
    /// Cancelling the task ends the download, and the next call resumes it. If the caller has set a time limit, a running daemon
    /// may continue the download instead. An implementation returns only after its own work has ended, so that the pack can be
    /// removed then.
    ///
    /// - Parameters:
    ///   - id: The pack.
    ///   - container: The directory of the container; created if it does not exist.
    ///   - others: The other containers that readers search; empty to stage the pack regardless of other copies.
    ///   - report: Called with the progress, in order.
    /// - Throws: ``FetchFailure`` with the reason, of the kind ``FetchFailure/Kind/pinned`` if the copy in another
    ///   container is pinned to another version; `CancellationError` if the task was cancelled.
    func fetch(
        _ id: PackID,
        into container: FilePath,
        beside others: [FilePath],
        report: @escaping @Sendable (FetchProgress) -> Void
    ) async throws

    /// Fetches one file of an unstaged pack, and returns when it is among the single files of the container.
    ///
    /// The default implementation always throws, for fetchers that support complete packs only.
    ///
    /// - Throws: ``PackStoreError/fileNotFound(_:)`` if the pack has no such file; ``FetchFailure`` with
    ///   the reason; `CancellationError` if the task was cancelled.
    func fetchFile(_ path: ContentPath, of id: PackID, into container: FilePath) async throws

    /// Downloads the manifest and stores it in the container; fetches no pack.
    ///
    /// - Throws: ``FetchFailure`` with the reason, also if the server does not respond and an earlier manifest
    ///   is stored; `CancellationError` if the task was cancelled.
    func fetchManifest(into container: FilePath) async throws
}

/// The circumstances of a fetch that a ``PackStore`` asks for.
package enum FetchContext {
    /// `true` if the caller waits for a limited time: a running daemon then continues a fetch that is cancelled.
    @TaskLocal package static var hasTimeout = false
}

extension PackFetcher {
    /// Stages the pack in the container regardless of copies in other containers.
    ///
    /// - Throws: The errors of ``fetch(_:into:beside:report:)``.
    public func fetch(
        _ id: PackID,
        into container: FilePath,
        report: @escaping @Sendable (FetchProgress) -> Void
    ) async throws {
        try await fetch(id, into: container, beside: [], report: report)
    }

    /// Throws, for fetchers that do not support single files.
    ///
    /// - Throws: ``FetchFailure``, always.
    public func fetchFile(
        _ path: ContentPath,
        of id: PackID,
        into container: FilePath
    ) async throws {
        throw FetchFailure(
            reason: "the application's fetcher fetches packs as a whole only",
            retryAdvice: .never
        )
    }
}

/// Progress of fetching a pack.
public struct FetchProgress: Equatable, Sendable, Codable {
    /// The bytes of the pack that have been received or reused.
    public var received: ByteCount
    /// The bytes to transfer for the pack.
    public var downloadSize: ByteCount
    /// The bytes of files that are written.
    public var unpacked: ByteCount
    /// The total size of the files, in bytes.
    public var installedSize: ByteCount
    /// A description of the pack's current wait; `nil` if it is not waiting.
    public var waitingFor: String?

    /// Creates the progress from its parts.
    public init(
        received: ByteCount,
        downloadSize: ByteCount,
        unpacked: ByteCount,
        installedSize: ByteCount
    ) {
        self.received = received
        self.downloadSize = downloadSize
        self.unpacked = unpacked
        self.installedSize = installedSize
        waitingFor = nil
    }
}
