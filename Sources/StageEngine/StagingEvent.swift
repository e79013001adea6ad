public import StageModel

/// What happens to a pack on its way.
public enum StagingEvent: Equatable, Sendable {
    /// Another process or task works on the pack; this one waits for it.
    case waitingForOther
    /// Another task of this process fetches the archive or the bundle, which other packs use as well; this one waits for it.
    case waitingForSharedDownload
    /// The pack has the same archive as another pack of the run, which is downloaded once for both.
    case sharesArchive(with: PackID)
    /// The transfer waits before it goes on.
    case waiting(reason: String, seconds: Double)
    /// It is decided in which way the content of an indexed pack comes here: in the one of the fewest bytes.
    ///
    /// Told where there is an archive beside the index, and again where that turns out to be of no use.
    case chose(TransferChoice)
    /// A server is asked.
    case connecting(url: String)
    /// So many bytes of the archive are here; `reused` of them were from an earlier run.
    case received(ByteCount, reused: ByteCount)
    /// The transfer begins again, because what is here cannot be continued.
    case restarted(reason: String)
    /// A mirror did not deliver.
    case mirrorFailed(url: String, reason: String)
    /// The archive is complete and its digest is right.
    case verified
    /// So many bytes of files are written.
    case unpacked(ByteCount)
    /// The pack is unpacked and waits for the disk.
    case publishing
    /// The pack has ended.
    case ended(StagingOutcome)
}

/// How a pack ended.
public enum StagingOutcome: Equatable, Sendable {
    /// It was fetched and published.
    case staged(StagingFigures)
    /// Another process or task had published it in the meantime.
    case alreadyStaged
    /// It was not published, and what was there before is as it was.
    case failed(StageError)
}

/// What staging a pack took.
public struct StagingFigures: Equatable, Sendable {
    /// Bytes that came over the wire, those of retries included.
    public var transferred: ByteCount
    /// Bytes of the archive that an earlier run had left.
    public var reused: ByteCount
    /// The URL that served the archive; `nil` if an earlier run had left all of it.
    public var source: String?

    /// Creates the figures from their parts.
    public init(transferred: ByteCount, reused: ByteCount, source: String?) {
        self.transferred = transferred
        self.reused = reused
        self.source = source
    }
}
