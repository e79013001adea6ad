public import StageModel

/// Request for a small document, or for a byte range of immutable content, that is received into memory.
public struct FetchRequest: Sendable {
    /// Absolute http, https and file URLs of the same document, the preferred first.
    public var mirrors: [String]
    /// Maximum size of the document.
    public var limit: ByteCount
    /// Expected kind of the document.
    public var expectedKind = ContentKind.json
    /// Strong entity tag of the version that the caller already has; the server then sends the document only if
    /// it differs.
    public var entityTag: String?
    /// URL, after redirects, of the response that had ``entityTag``.
    ///
    /// Other URLs do not receive the tag; `nil` sends it to all. An entity tag is unique to one resource (RFC 9110, section
    /// 8.8.3). If another mirror confirmed it, the URLs in the document would remain relative to the first one, which may be
    /// gone.
    public var entityTagURL: String?
    /// `true` if the document changes under its URL, so that a cache has to ask the server whether its version is current.
    ///
    /// Caches otherwise answer for days from their storage, also that a version is current (RFC 9111, section 4.2.2).
    public var isRevalidated = false
    /// Requested byte range and total size of the content; `nil` for all of it.
    ///
    /// The content at the mirrors must be immutable: ranges from different mirrors are not compared.
    public var part: (range: Range<Int64>, total: Int64)?
    /// Receives the bytes as they arrive, instead of the returned document.
    ///
    /// It is called on the engine's thread and must return at once.
    public var take: (@Sendable (BodyPiece) -> Void)?
    /// Returns `false` once ``take`` needs no further bytes, because of an error of its own; the transfer then ends with
    /// ``TransferError/cancelled``.
    ///
    /// It is called on the engine's thread and must return at once.
    public var isWanted: (@Sendable () -> Bool)?
    /// Returns the end of the range of ``part`` that is still needed, after the bytes passed to ``take`` are processed.
    ///
    /// Called after each failed attempt; the next one requests this range, and if it is shorter than before, the failures so
    /// far do not count. `nil` requests all of the range each time.
    public var remainingRange: (@concurrent @Sendable () async -> Range<Int64>)?
    /// Returns the reason why a received document, or the caller's own version, is not accepted; `nil` accepts it.
    ///
    /// The next mirror is requested instead.
    public var refusal: (@concurrent @Sendable (FetchedContent) async -> String?)?
    /// Limit on the bytes passed to ``take`` and not yet processed, which the consumer removes from it; the transfer
    /// pauses while it is full.
    public var receiveWindow: ReceiveWindow?
    /// Hosts that the document may come from, redirects included; `nil` for all.
    public var allowedDomains: AllowedDomains?
    /// `true` if only the transport authenticates the document, so that each redirect must lead to a URL that
    /// `ManifestTrust.isAcceptable(_:)` accepts.
    public var requiresTrustedTransport = false
    /// `true` if redirects may lead from https to http, because a digest or a signature authenticates the content.
    public var allowsPlainRedirects = false
    /// `true` to fail at the first failure instead of retrying after a delay.
    public var isTriedOnce = false
    /// Order among transfers that wait for a connection: higher values come first.
    public var priority = 0
    /// Receives the events of the transfer, in order, on the engine's thread; it must return at once.
    public var report: @Sendable (TransferEvent) -> Void = { _ in }

    /// Creates a request for a whole document.
    public init(mirrors: [String], limit: ByteCount) {
        self.mirrors = mirrors
        self.limit = limit
    }
}

extension FetchRequest {
    /// `true` if the request is for the whole content.
    var isWhole: Bool {
        guard let part else { return true }
        return part.range == 0..<part.total
    }

    /// Decides about the response to a range request; `nil` if the general rules apply.
    func judgePart(_ head: ResponseHead) -> ResponseRules.Decision? {
        guard let part, !isWhole else { return nil }
        switch head.status {
        // Includes statuses that refuse the form of a request. A 403 or 404 more probably concerns the content.
        case 200, 204, 400, 405, 416, 501: return .distrustRanges("status \(head.status)")
        case 206: break
        default: return nil
        }
        guard case .bytes(let range, let total) = head.contentRange,
            range == part.range.lowerBound...part.range.upperBound - 1,
            total ?? part.total == part.total, head.encoding == nil, head.lengthFault == nil,
            !head.hasSeveralParts,
            head.bodyLength ?? Int64(part.range.count) == Int64(part.range.count)
        else { return .distrustRanges("206 of another range") }
        return .begin
    }
}

/// An event while a body is received.
@nonexhaustive
public enum BodyPiece: Equatable, Sendable {
    /// A body begins, with the byte at this offset of the content: discard the bytes that are not processed yet.
    case began(offset: Int64)
    /// The next bytes.
    case bytes([UInt8])
}

/// Result of a ``FetchRequest``.
@nonexhaustive
public enum FetchedContent: Equatable, Sendable {
    /// The caller's version is current.
    case notModified
    /// The document, which differs from the caller's version.
    case document(FetchedDocument)
}

/// A document in memory.
public struct FetchedDocument: Equatable, Sendable {
    /// Content of the document.
    public var bytes: [UInt8]
    /// Entity tag, if the server sent a strong one.
    public var entityTag: String?
    /// Value of the `Last-Modified` field, as the server wrote it.
    public var lastModified: String?
    /// URL after redirects: the base URL of the document's relative references.
    public var url: String
}
