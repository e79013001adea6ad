public import StageModel

/// Events while a pack is staged.
@nonexhaustive
public enum StagingEvent: Equatable, Sendable {
    /// This task waits for another process or task that works on the pack.
    case waitingForOther
    /// This task waits for another task of the process that downloads a shared archive or patch.
    case waitingForSharedDownload
    /// The pack shares its archive with another pack of the run, which downloads it for both.
    case sharesArchive(with: PackID)
    /// The transfer is paused for a delay.
    case waiting(reason: String, seconds: Double)
    /// The way to transfer an indexed pack has been chosen: the one with the fewest bytes.
    ///
    /// Reported if the pack has an archive or a patch beside its objects, and again if the choice changes because the
    /// chosen way fails.
    case chose(TransferChoice)
    /// The transfer sends a request to a server.
    case connecting(url: String)
    /// The number of bytes of the pack that are on this machine; `reused` of them are from earlier runs or
    /// versions.
    case received(ByteCount, reused: ByteCount)
    /// The transfer starts again from the beginning, because the partial content cannot be resumed.
    case restarted(reason: String)
    /// A mirror failed.
    case mirrorFailed(url: String, reason: String)
    /// The content is complete and matches its digests.
    case verified
    /// The number of bytes of files that are written.
    case unpacked(ByteCount)
    /// The content is ready, and is being synced to disk and published.
    case publishing
    /// Staging the pack has ended.
    case ended(StagingOutcome)
}

/// Outcomes of staging a pack.
@nonexhaustive
public enum StagingOutcome: Equatable, Sendable {
    /// The pack was downloaded and published.
    case staged(StagingFigures)
    /// Another process or task had published the pack in the meantime.
    case alreadyStaged
    /// The pack was not published, and the current generation, if any, is unchanged.
    case failed(StageError)
}

/// Transfer figures of staging a pack.
public struct StagingFigures: Equatable, Sendable {
    /// Bytes received over the network, including retries.
    public var transferred: ByteCount
    /// Bytes of the pack that were on this machine before: from an earlier run, from a generation that the container
    /// keeps or, for an index, from the staged version.
    public var reused: ByteCount
    /// A URL that served content; `nil` if no archive, index or bundle was transferred.
    public var source: String?

    /// Creates the figures from their parts.
    public init(transferred: ByteCount, reused: ByteCount, source: String?) {
        self.transferred = transferred
        self.reused = reused
        self.source = source
    }
}
