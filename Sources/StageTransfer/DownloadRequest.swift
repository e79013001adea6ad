public import StageModel
public import SystemPackage

/// Request for content that is downloaded into a file.
public struct DownloadRequest: Sendable {
    /// Absolute http, https and file URLs of the same content, the preferred first.
    public var mirrors: [String]
    /// Exact size of the content; `nil` accepts any size that the server sends.
    ///
    /// Without it, the server's framing decides: a body that ends before its announced length, or before its last
    /// chunk, is an error. A body with neither length nor chunks is complete when the connection closes, as HTTP
    /// defines it (RFC 9112, section 6.3), so truncation cannot be detected. A later attempt resumes only content
    /// whose length the server announced, and that has a strong validator or a digest. It requests content that an
    /// earlier download completed again, unless the server confirms that the file is complete.
    public var size: ByteCount?
    /// The method of the request, in capitals.
    ///
    /// A request with another method than `GET` starts at the first byte each time, and accepts any 2xx status.
    /// `HEAD` receives no content. Redirects change the method as in browsers: 303, and after `POST` also 301 and
    /// 302, lead to a `GET`.
    public var method = "GET"
    /// `true` if the server processes the request only once even when it receives it several times (RFC 9110, section
    /// 9.2.2); `nil` derives it from the method: POST and PATCH are not idempotent.
    ///
    /// A request that is not idempotent is sent once: a failure after that ends the download.
    public var isIdempotent: Bool?
    /// Expected kind of the content.
    public var expectedKind = ContentKind.archive
    /// Hosts that the content may come from, redirects included; `nil` for all.
    public var allowedDomains: AllowedDomains?
    /// `true` if redirects may lead from https to http, because `verify` checks the content against a signed digest.
    public var allowsPlainRedirects = false
    /// Origins that receive the user's credentials and may be on this machine or its link; `nil` for all.
    ///
    /// Other origins receive no credentials. The engine connects to them only if the address of the connection
    /// belongs to another machine, redirects included.
    public var trustedOrigins: TrustedOrigins?
    /// Order among downloads that wait for a connection: higher values come first.
    public var priority = 0
    /// User on whose behalf the content is downloaded; `nil` for the process's own.
    ///
    /// The engine keeps lowered connection limits, abandoned lookups and faults of mirrors for each user, so that a server that one
    /// user chooses does not affect transfers of the others. Users share no connection (``ConnectionOwners``); in a process of root's,
    /// the sockets of a user's connections belong to the user.
    package var user: UInt32?
    /// `true` if `verify` identifies the content by a digest, so that any mirror can continue the partial file,
    /// without a strong validator.
    public var isContentAddressed = false
    /// `true` if `verify` compares the content with a known digest.
    ///
    /// Otherwise a download that began at one resource starts again if a redirect now leads to another one: a validator
    /// proves nothing about another resource.
    public var comparesDigest = false
    /// `true` if a 404 or 410 is retried, since the content may appear soon, as after a fresh release.
    public var toleratesMissing = false
    /// Additional header fields, each as one line, for the mirrors themselves: redirects to another origin drop them.
    public var fields: [String] = []
    /// Additional header fields, each as one line, for the origin of the first mirror only.
    public var confidentialFields: [String] = []
    /// Returns the header fields, each as one line, of the request that follows a redirect, given the redirect's
    /// response and the next URL; `nil` keeps ``fields`` up to the first redirect to another origin.
    ///
    /// The download waits for it; the engine's thread does not.
    public var fieldsAfterRedirect:
        (@concurrent @Sendable (ResponseSummary, String) async -> [String])?
    /// Statuses of challenges (401, 407) that fail the download despite ``acceptsErrorResponses`` if they come from the
    /// origin of the first mirror; their body is not read, and the partial file is kept.
    public var challengeStatuses: Set<Int> = []
    /// Time without a byte from the server after which an attempt fails; `nil` applies the engine's ``StallRule``.
    public var requestTimeout: Duration?
    /// `true` if every response is content, regardless of its status.
    ///
    /// Exceptions are redirects, the statuses that cause another attempt, and 511, by which a captive portal replaces
    /// the server's response.
    ///
    /// The body of an error comes from the first mirror that sends one, replaces the partial file, and is never
    /// resumed; `verify` is not called for it, and ``size`` does not apply.
    public var acceptsErrorResponses = false
    /// `true` if, with ``acceptsErrorResponses``, the statuses 408, 425, 429, 500, 502, 503, 504 and 5xx that are not registered
    /// are content, too.
    ///
    /// Otherwise they cause another attempt, unless the request must not be sent twice or the server asks for a delay
    /// of at least ``RetryPolicy/maximumRetryAfter``.
    public var acceptsTransientResponses = false
    /// `true` to decode content in any content coding that libcurl knows, although the request offers none.
    ///
    /// Such content starts at its first byte each time, since ranges address the encoded form. `false` refuses it.
    public var decodesContent = false
    /// Pauses the request in both directions, together with its timeout, while ``ReceiveWindow/setPaused(_:)`` is in effect; the
    /// engine adds no bytes to it.
    public var receiveWindow: ReceiveWindow?
    /// `true` to detect captive portals: by a redirect from http to another host that ends in a web page, and by the
    /// status 511.
    public var detectsPortals = true
    /// `true` to require TLS 1.3 instead of 1.2 or later.
    public var requiresNewestTLS = false
    /// Number of times that all mirrors failed in earlier downloads of the content; retry delays continue to grow
    /// from there.
    ///
    /// These failures do not count as attempts of this download.
    public var failuresBefore = 0
    /// Largest number of bytes of the content that an earlier download had received.
    ///
    /// Only bytes beyond these count as progress, which resets the delays: earlier ones may have been received and lost.
    public var receivedBefore = ByteCount.zero
    /// Throws an error, which ends the download, if the file may not grow to this many bytes.
    ///
    /// Called on the engine's thread before the file grows, and again every 4 MiB: with the total size if the server
    /// announced it, otherwise with up to 4 MiB more than the file has.
    public var permitSize: (@Sendable (ByteCount) throws(TransferError) -> Void)?
    /// Compares the complete file at a path with the requested content; returns `nil` if it is that content.
    ///
    /// It throws if it cannot decide: the partial file stays, and no mirror is blamed.
    public var verify:
        @concurrent @Sendable (FilePath) async throws(TransferError) -> DigestMismatch?
    /// Receives the events of the transfer, in order, on the engine's thread, ``TransferEvent/checkpointed(_:)``
    /// excepted; it must return at once.
    public var report: @Sendable (TransferEvent) -> Void

    /// Creates a request with default settings.
    public init(
        mirrors: [String],
        size: ByteCount?,
        verify:
            @concurrent @escaping @Sendable (FilePath) async throws(TransferError) ->
            DigestMismatch?,
        report: @escaping @Sendable (TransferEvent) -> Void = { _ in }
    ) {
        self.mirrors = mirrors
        self.size = size
        self.verify = verify
        self.report = report
    }
}

/// The digests of content that is not the requested one.
public struct DigestMismatch: Equatable, Sendable {
    /// The digest of the requested content.
    public var expected: Digest
    /// The digest of the content that was received; `nil` if it became shorter while it was read.
    public var found: Digest?

    /// Compares two digests; returns `nil` if they are equal.
    public init?(expected: Digest, found: Digest?) {
        guard expected != found else { return nil }
        self.expected = expected
        self.found = found
    }
}

/// Statistics of a finished download.
public struct DownloadReceipt: Equatable, Sendable {
    /// Bytes of response bodies that were received, failed attempts included.
    public var bytesReceived: ByteCount
    /// Bytes that an earlier download had received and this one kept.
    public var bytesReused: ByteCount
    /// Mirror URL that completed the content; `nil` if the file was complete before.
    public var url: String?
    /// Status of the response that delivered the last bytes; `nil` if the file was complete before, or came from a
    /// file URL.
    public var status: Int?
    /// Number of attempts; 0 if the file was complete before.
    public var attempts: Int
    /// Time that the download took.
    public var duration: Duration
}

/// An event during a transfer.
@nonexhaustive
public enum TransferEvent: Equatable, Sendable {
    /// The transfer waits; the duration is an upper bound, if one is known.
    case waiting(WaitReason, Duration?)
    /// The engine sends a request to a server.
    case connecting(url: String)
    /// The engine sends the next part of an upload's body to a server that has some of it, within the same attempt.
    case continuing(url: String)
    /// The head of a final response arrived; the events that follow tell its consequences.
    case responded(ResponseSummary)
    /// Bytes from the offset `resumingAt` on follow, in the file at `path`, which has those before it.
    ///
    /// A new generation number invalidates the content of earlier ones.
    case accepted(generation: Int, path: FilePath, resumingAt: ByteCount)
    /// The file of the current generation has this many bytes of the content.
    case received(ByteCount)
    /// This many bytes of the current generation survive a power loss, and another process can resume there.
    ///
    /// Reported on another thread than the engine's, at any time between `accepted` of its generation and the next
    /// generation or the end of the attempt. There are no checkpoints for content that
    /// cannot be resumed or is too small, nor for the bytes that complete the content.
    case checkpointed(ByteCount)
    /// The network accepted this many bytes of an upload's body; the count restarts when the body is sent again.
    case sent(ByteCount)
    /// The engine requests the content from its first byte again.
    case restarted(RestartReason)
    /// A mirror failed.
    case mirrorFailed(url: String, TransferError)

    /// Reason why a transfer waits.
    @nonexhaustive
    public enum WaitReason: Equatable, Sendable {
        /// All connections are in use.
        case connection
        /// All mirrors failed; the next attempt follows after a delay.
        case backoff
        /// A server asked for a delay.
        case server
    }

    /// Reason why a partial file was discarded.
    @nonexhaustive
    public enum RestartReason: Equatable, Sendable {
        /// The server has another version.
        case contentChanged
        /// The server's responses to range requests are unreliable; the text describes the response.
        case unreliableRanges(String)
        /// The content failed verification.
        case wrongDigest
    }
}

extension DownloadRequest {
    /// `true` if the request may be repeated after the server may have received it.
    package var isRepeatedSafely: Bool {
        isIdempotent ?? RequestRules.isIdempotent(method)
    }

    /// `true` if `verify` finds content that was combined from two versions.
    var hasKnownDigest: Bool { isContentAddressed || comparesDigest }
}
