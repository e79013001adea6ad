public import StageModel
public import SystemPackage

/// Content to bring into a file.
public struct DownloadRequest: Sendable {
    /// Absolute http, https and file URLs of the same content, the preferred first.
    public var mirrors: [String]
    /// The exact size of the content; `nil` stands for whatever the server sends.
    ///
    /// The server's own word then counts: a body that ends before the length it was announced with, or
    /// before its last chunk, is never a success. One with neither length nor chunks is complete when
    /// the connection ends, as HTTP has it (RFC 9112, section 6.3): that it was cut short cannot be
    /// told. Only content whose length the server announced, under a strong validator or a digest, is
    /// continued by a later attempt; what an earlier download completed is asked for again unless the
    /// server confirms that it is all there is.
    public var size: ByteCount?
    /// The method of the request, in capitals.
    ///
    /// What is asked for by another than `GET` is received from its first byte each time, and may be
    /// answered with any status of success. `HEAD` brings no content. A redirect changes it as browsers do: 303, and after `POST` also 301 and 302, lead to a `GET`.
    public var method = "GET"
    /// Whether the server acts on the request once, however often it gets it (RFC 9110, section 9.2.2); `nil`
    /// leaves it to the method, of which POST and PATCH are not.
    ///
    /// A request that is not idempotent is sent once: a failure after that ends the download.
    public var isIdempotent: Bool?
    /// What the content is supposed to be.
    public var promise = ContentPromise.archive
    /// Where the content may come from, redirects included; `nil` stands for everywhere.
    public var allowedDomains: AllowedDomains?
    /// Whether redirects may lead from https to http, because `verify` knows the content by a digest that was signed.
    public var allowsPlainRedirects = false
    /// The origins that are asked with the user's names, passwords and tokens, and that may be on this machine
    /// or its link; `nil` stands for all.
    ///
    /// Other origins are told nothing of the user's and are asked only where the address of the connection is
    /// of another machine, redirects included.
    public var trustedOrigins: TrustedOrigins?
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
    /// Further header fields, each as one line, for the origin of the first mirror alone.
    public var confidentialFields: [String] = []
    /// Returns the header fields, each as one line, of the request that a redirect leads to, from the head of the redirect
    /// and the next URL; `nil` stands for ``fields`` up to the first one that leads to another origin.
    ///
    /// Called on the engine's thread; it must return at once.
    public var fieldsAfterRedirect: (@Sendable (ResponseSummary, String) -> [String])?
    /// Whether a 401 or 407 of the origin of the first mirror ends the download without its body, and what was received
    /// stays, although ``acceptsErrorResponses`` is set.
    public var leavesChallenges = false
    /// After how long without a byte from the server an attempt fails; `nil` stands for the engine's
    /// ``StallRule``.
    public var requestTimeout: Duration?
    /// Whether every answer is content, whatever its status.
    ///
    /// Excepted are redirects, the statuses that lead to
    /// another attempt, and 511, with which a captive portal answers in the server's place.
    ///
    /// The body of an error is taken from the first mirror that answers with one, replaces the partial file, and is
    /// never continued; `verify` is not asked, and ``size`` is not its size.
    public var acceptsErrorResponses = false
    /// Whether, with ``acceptsErrorResponses``, the statuses 408, 425, 429, 500, 502, 503 and 504 are content, too.
    ///
    /// Otherwise they lead to another attempt, unless the request must not be sent twice or the server asks for
    /// a pause of ``RetryPolicy/longestPause``.
    public var acceptsTransientResponses = false
    /// Whether content in a content coding that libcurl knows is decoded, although none is asked for.
    ///
    /// It is then received from its first byte each time: ranges are of the encoded form. Otherwise it is refused.
    public var decodesContent = false
    /// Holds the request back in both directions, its time limit with it, while ``Backlog/hold(_:)`` says so; nothing is
    /// added to it.
    public var backlog: Backlog?
    /// Whether a page for a person in the server's place is recognised: by a redirect from http to another host, and by
    /// the status 511.
    public var detectsPortals = true
    /// Whether a server that does not speak TLS 1.3 is refused; else 1.2 will do.
    public var requiresNewestTLS = false
    /// How many times all mirrors failed in earlier downloads of the content, from where waits go on
    /// growing.
    ///
    /// They do not count as attempts of this one.
    public var failuresBefore = 0
    /// Throws what ends the download if its file may not have so many bytes.
    ///
    /// It is asked before the file grows, and every 4 MiB again, on the engine's thread: about all of the
    /// content where the server says how large that is, and otherwise about up to 4 MiB more than there is.
    public var permitSize: (@Sendable (ByteCount) throws(TransferError) -> Void)?
    /// Tells whether the complete file at a path is the content that was asked for.
    ///
    /// It throws if that cannot be told: what was received stays, and no mirror is blamed.
    public var verify: @concurrent @Sendable (FilePath) async throws(TransferError) -> Bool
    /// Hears what happens, in order, on the engine's thread, ``TransferEvent/checkpointed(_:)``
    /// excepted: it must return at once.
    public var report: @Sendable (TransferEvent) -> Void

    /// Creates a request from what it cannot do without.
    public init(
        mirrors: [String],
        size: ByteCount?,
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
    /// The status of the answer that brought the last bytes; `nil` if none did: the content was
    /// there already, or came from a file URL.
    public var status: Int?
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
    /// A server that has some of an upload's body is asked to take more of it, in the same attempt.
    case continuing(url: String)
    /// A server's answer, which is no redirect, has begun; what follows from it is told next.
    case responded(ResponseSummary)
    /// Bytes from `resumingAt` on will follow, in the file at `path`, which holds those before it.
    ///
    /// A new number of the generation means that nothing of the one before counts any more.
    case accepted(generation: Int, path: FilePath, resumingAt: ByteCount)
    /// The file of the current generation holds this many bytes of the content.
    case received(ByteCount)
    /// So many bytes of the current generation survive a power cut, and another process goes on there.
    ///
    /// It is reported on a thread that is not the engine's, at any time between ``accepted`` of its
    /// generation and the next one or the end of the attempt. Content that cannot be continued, or is
    /// too small for that, has no checkpoints, and neither has what completes it.
    case checkpointed(ByteCount)
    /// So many bytes of an upload's body were handed to the network; it counts again from the first
    /// byte where the body is sent again.
    case sent(ByteCount)
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

extension DownloadRequest {
    /// Whether the request may be sent again after it was sent.
    package var isRepeatedSafely: Bool {
        isIdempotent ?? RequestRules.isIdempotent(method)
    }
}
