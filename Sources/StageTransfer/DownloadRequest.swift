public import StageModel
public import SystemPackage

/// Content to bring into a file.
public struct DownloadRequest: Sendable {
    /// Absolute http, https and file URLs of the same content, the preferred first.
    public var mirrors: [String]
    /// The exact size of the content.
    public var size: ByteCount
    /// What the content is supposed to be.
    public var promise = ContentPromise.archive
    /// Where the content may come from, redirects included; `nil` stands for everywhere.
    public var allowedDomains: AllowedDomains?
    /// Orders downloads that wait for a connection: higher comes first.
    public var priority = 0
    /// Whether `verify` knows the content by a digest, so that bytes may be continued from any mirror
    /// and without a strong validator.
    public var isContentAddressed = false
    /// Whether content that is missing may be there soon, as after a fresh release.
    public var toleratesMissing = false
    /// Further header fields, each as one line, for the servers that are asked first: where a redirect
    /// leads to another origin they are left out.
    public var fields: [String] = []
    /// Tells whether the complete file at a path is the content that was asked for.
    ///
    /// It throws if that cannot be told: what was received stays, and no mirror is blamed.
    public var verify: @concurrent @Sendable (FilePath) async throws(TransferError) -> Bool
    /// Hears what happens, in order, on the engine's thread: it must return at once.
    public var report: @Sendable (TransferEvent) -> Void

    /// Creates a request from what it cannot do without.
    public init(
        mirrors: [String],
        size: ByteCount,
        verify: @concurrent @escaping @Sendable (FilePath) async throws(TransferError) -> Bool,
        report: @escaping @Sendable (TransferEvent) -> Void = { _ in }
    ) {
        self.mirrors = mirrors
        self.size = size
        self.verify = verify
        self.report = report
    }
}

/// What a finished download cost.
public struct DownloadReceipt: Equatable, Sendable {
    /// The bytes of bodies that were received, failed attempts included.
    public var bytesReceived: ByteCount
    /// The bytes that were there when the download began and did not have to be received again.
    public var bytesReused: ByteCount
    /// The URL, of those asked for, that completed the content; `nil` if all of it was there already.
    public var url: String?
    /// How many attempts there were; 0 if all of the content was there already.
    public var attempts: Int
    /// How long it took.
    public var duration: Duration
}

/// Something that happens during a transfer.
public enum TransferEvent: Equatable, Sendable {
    /// Nothing moves for a reason; the duration says how long at most, where that is known.
    case waiting(WaitReason, Duration?)
    /// A server is asked.
    case connecting(url: String)
    /// Bytes from `resumingAt` on will follow, in the file at `path`, which holds those before it.
    ///
    /// A new number of the generation means that nothing of the one before counts any more.
    case accepted(generation: Int, path: FilePath, resumingAt: ByteCount)
    /// The file of the current generation holds this many bytes of the content.
    case received(ByteCount)
    /// The content is asked for from its first byte.
    case restarted(RestartReason)
    /// A mirror did not deliver.
    case mirrorFailed(url: String, TransferError)

    /// Why nothing moves.
    public enum WaitReason: Equatable, Sendable {
        /// All connections are in use.
        case connection
        /// Everything failed; the next attempt is due later.
        case backoff
        /// A server asked to be left alone.
        case server
    }

    /// Why what was held is of no use.
    public enum RestartReason: Equatable, Sendable {
        /// The server has another version.
        case contentChanged
        /// The server answers requests for ranges in a way that cannot be relied on.
        case unreliableRanges
        /// The content was not what was promised.
        case wrongDigest
    }
}
