public import StageModel
public import SystemPackage

/// Brings a pack into a container when the application asks for one that is not staged.
///
/// ``CommandFetcher`` runs the `stagepack` command, so that an application links no transfer or archive
/// library; the module `StageOnDemand` has one that runs the engine inside the application.
public protocol PackFetcher: Sendable {
    /// Stages the pack in the container, and returns when it is published.
    ///
    /// What was received when the task is cancelled stays, and is continued by the next call.
    ///
    /// - Throws: ``FetchFailure`` with the reason; `CancellationError` if the task was cancelled.
    func fetch(
        _ id: PackID,
        into container: FilePath,
        report: @escaping @Sendable (FetchProgress) -> Void
    ) async throws

    /// Fetches one file of a pack that is not staged, and returns when it is among the single files of
    /// the container.
    ///
    /// A fetcher that does without it fetches packs as a whole only.
    ///
    /// - Throws: ``PackStoreError/fileNotFound(_:)`` if the pack has no such file; ``FetchFailure`` with
    ///   the reason; `CancellationError` if the task was cancelled.
    func fetchFile(_ path: ContentPath, of id: PackID, into container: FilePath) async throws

    /// Asks the server for the manifest and keeps it in the container; fetches no pack.
    ///
    /// - Throws: ``FetchFailure`` with the reason, also where the server does not answer and a manifest is
    ///   kept from before; `CancellationError` if the task was cancelled.
    func fetchManifest(into container: FilePath) async throws
}

extension PackFetcher {
    /// Refuses.
    ///
    /// - Throws: ``FetchFailure``.
    public func fetchFile(
        _ path: ContentPath,
        of id: PackID,
        into container: FilePath
    ) async throws {
        throw FetchFailure(
            reason: "the application's fetcher fetches packs as a whole only",
            retry: .never
        )
    }
}

/// How far the fetch of a pack has come.
public struct FetchProgress: Equatable, Sendable, Codable {
    /// The bytes of the archive that are here.
    public var received: ByteCount
    /// The size of the archive.
    public var downloadSize: ByteCount
    /// The bytes of files that are written.
    public var unpacked: ByteCount
    /// The size of the files.
    public var installedSize: ByteCount
    /// What is being waited for, if anything.
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
