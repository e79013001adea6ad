public import StageModel

/// A small document, or a part of content that never changes, to bring into memory.
public struct ContentFetch: Sendable {
    /// Absolute http, https and file URLs of the same document, the preferred first.
    public var mirrors: [String]
    /// The size that the document may have at most.
    public var limit: ByteCount
    /// What the document is supposed to be.
    public var promise = ContentPromise.json
    /// The strong entity tag of the version that is held already; it is then asked for only if it
    /// differs.
    public var entityTag: String?
    /// The part that is wanted, of content of so many bytes; `nil` for all of it.
    ///
    /// The mirrors must never have anything else there: parts are not compared with each other.
    public var part: (range: Range<Int64>, total: Int64)?
    /// Takes the bytes as they come, on the engine's thread, instead of the document: it must return at
    /// once.
    public var take: (@Sendable (BodyPiece) -> Void)?
    /// What was taken and is not yet done with, which the taker removes it from; while it is full, nothing
    /// more is taken.
    public var backlog: Backlog?
    /// Where the document may come from, redirects included; `nil` stands for everywhere.
    public var allowedDomains: AllowedDomains?
    /// Whether the document is believed for its transport alone, so that each redirect has to lead to a URL
    /// that ``ManifestTrust/isAcceptable(_:)``.
    public var needsTrust = false
    /// Whether redirects may lead from https to http, because the content is known by a digest or a signature.
    public var allowsPlainRedirects = false
    /// Whether a failure ends the fetch that otherwise leads to another attempt after a while.
    public var isTriedOnce = false
    /// Orders transfers that wait for a connection: higher comes first.
    public var priority = 0
    /// Hears what happens, in order, on the engine's thread: it must return at once.
    public var report: @Sendable (TransferEvent) -> Void = { _ in }

    /// Creates a request from what it cannot do without.
    public init(mirrors: [String], limit: ByteCount) {
        self.mirrors = mirrors
        self.limit = limit
    }
}

extension ContentFetch {
    /// Whether everything that there is is wanted.
    var isWhole: Bool {
        guard let part else { return true }
        return part.range == 0..<part.total
    }

    /// Judges the answer to a request for a part; `nil` where that is no different from one for all.
    func judgePart(_ head: ResponseHead) -> ResponseRules.Decision? {
        guard let part, !isWhole else { return nil }
        switch head.status {
        case 200, 416: return .distrustRanges("status \(head.status)")
        case 206: break
        default: return nil
        }
        guard case .bytes(let range, let total) = head.contentRange,
            range == part.range.lowerBound...part.range.upperBound - 1,
            total ?? part.total == part.total, head.encoding == nil, head.lengthFault == nil,
            head.bodyLength ?? Int64(part.range.count) == Int64(part.range.count)
        else { return .distrustRanges("206 of something else") }
        return .begin
    }
}

/// What comes of a body.
public enum BodyPiece: Equatable, Sendable {
    /// A body begins, from its first byte: what came before is to be forgotten.
    case began
    /// The next bytes.
    case bytes([UInt8])
}

/// What a server has for a ``ContentFetch``.
public enum FetchedContent: Equatable, Sendable {
    /// What is held already.
    case notModified
    /// Another version.
    case document(FetchedDocument)
}

/// A document in memory.
public struct FetchedDocument: Equatable, Sendable {
    /// The content.
    public var bytes: [UInt8]
    /// The entity tag, if the server gave a strong one.
    public var entityTag: String?
    /// When the server says that it last changed, as it wrote it.
    public var lastModified: String?
    /// The URL that it came from, after redirects; relative references in it start there.
    public var url: String
}
