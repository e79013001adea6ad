import StageModel

/// What was asked for, and so how an answer is to be judged.
///
/// The judgement is made when the head of an answer is complete, before one byte of its body is taken.
struct ResponseRules: Equatable, Sendable {
    /// The first byte asked for; 0 stands for a request without `Range`.
    var offset: Int64 = 0
    /// The version that the bytes held here belong to, if the server it came from named one.
    var validator: Validator?
    /// The size that the whole content must have.
    var size: Int64?
    /// The size of the content that the bytes held here belong to.
    var heldTotal: Int64?
    /// The size that the content may have at most.
    var limit = Int64.max
    /// What the content is supposed to be.
    var promise = ContentPromise.anything
    /// Whether the request asks for the content only if it differs from what is held.
    var isConditional = false
    /// Whether an unencrypted redirect led to another host.
    var wasLedAway = false
    /// Whether content that is missing may be there soon.
    var toleratesMissing = false
    /// Whether the content is simply read: what another method brings has any status of success, and
    /// is not there to be continued.
    var isGet = true
    /// Whether every answer but a redirect is content, whatever its status.
    var acceptsErrorResponses = false
    /// Whether that holds for the statuses, too, that otherwise lead to another attempt.
    var acceptsTransientResponses = false
    /// Whether a 401 or 407 is a refusal all the same.
    var leavesChallenges = false
    /// A pause of this length is too long to wait for another attempt.
    var longestPause = Duration.seconds(Int64.max)
    /// Whether the answer has no body, whatever its length says.
    var isBodyless = false
    /// Whether the status 511 is taken for the answer of a captive portal.
    var detectsPortals = true

    /// Whether the body may be encoded, since libcurl decodes it.
    var decodesContent = false

    /// What to do with an answer.
    enum Decision: Equatable, Sendable {
        /// The body continues what is held, at the offset asked for.
        case append
        /// The body starts at `from`, before the offset asked for: what is there twice must be equal.
        case compare(from: Int64)
        /// The body is the content from its first byte: a new generation.
        case begin
        /// The body is that of a refusal, and wanted: a new generation that is never continued.
        case beginRefusal
        /// Everything is here already.
        case complete
        /// What is held is still what the server has.
        case notModified
        /// What is held is of no use: ask again, for everything.
        case restart
        /// The server cannot be trusted with ranges: ask again, for everything.
        case distrustRanges(String)
        /// Ask elsewhere.
        case redirect(to: String)
        /// Ask again later.
        case retry(status: Int, after: Duration?)
        /// Somebody else answers in the server's place.
        case portal
        /// The content has another size.
        case wrongSize(Int64)
        /// The content is larger than it may be.
        case tooLarge
        /// The body is encoded.
        case encoded(String)
        /// The answer breaks the rules of HTTP.
        case malformed(String)
        /// The answer is a refusal.
        case refuse(status: Int)

        /// Whether the route ends here.
        var isFinal: Bool { if case .redirect = self { false } else { true } }

        /// Whether the body is wanted.
        var takesBody: Bool {
            switch self {
            case .append, .compare, .begin, .beginRefusal: true
            default: false
            }
        }
    }

    /// Judges an answer by its head.
    func judge(_ head: ResponseHead) -> Decision {
        switch head.status {
        case 200..<300 where head.lengthFault != nil && !head.hasTransferEncoding:
            .malformed(head.lengthFault ?? "")
        case 206: judgePart(head)
        case 200..<300: judgeWhole(head)
        case 304 where isConditional: .notModified
        case 304, 412: offset > 0 ? .restart : refusal(head)
        case 301, 302, 303, 307, 308: redirection(head)
        case 416 where offset > 0:
            isProof(head) ? .complete : .restart
        case 408, 425, 429, 500, 502, 503, 504:
            isContent(head) ? refusal(head) : .retry(status: head.status, after: head.pause)
        case 404, 410:
            toleratesMissing ? .retry(status: head.status, after: head.pause) : refusal(head)
        case 511 where detectsPortals: .portal
        default: refusal(head)
        }
    }

    /// Whether a 416 says that what is held is all there is of the version that is held.
    private func isProof(_ head: ResponseHead) -> Bool {
        head.contentRange == .unsatisfied(total: offset) && offset == size ?? heldTotal
            && validator?.isContradicted(by: head) != true
    }

    private func redirection(_ head: ResponseHead) -> Decision {
        if let location = head.location, !location.isEmpty { return .redirect(to: location) }
        if wasLedAway, head.isHTML { return .portal }
        return .malformed("status \(head.status) without 'Location'")
    }

    /// Whether an answer is content that usually leads to another attempt.
    private func isContent(_ head: ResponseHead) -> Bool {
        guard acceptsErrorResponses else { return false }
        return acceptsTransientResponses || isLong(head.pause)
    }

    /// Whether a server asks for a pause that is too long to wait for another attempt.
    private func isLong(_ pause: Duration?) -> Bool { pause.map { $0 >= longestPause } ?? false }

    private func refusal(_ head: ResponseHead) -> Decision {
        if wasLedAway, head.isHTML { return .portal }
        let isChallenge = head.status == 401 || head.status == 407
        guard acceptsErrorResponses, !(leavesChallenges && isChallenge) else {
            return .refuse(status: head.status)
        }
        if let encoding = head.encoding, !decodesContent { return .encoded(encoding) }
        return .beginRefusal
    }

    /// Judges the answer to an upload by its head.
    ///
    /// A 301, 302 or 303 is an answer to what was sent, with an address to go on reading at; only a 307
    /// or 308 asks for the body to be sent elsewhere (RFC 9110, section 15.4). A 511 is not the server's.
    func judgeUpload(_ head: ResponseHead, mayRepeat: Bool) -> Decision {
        switch head.status {
        case 307, 308: redirection(head)
        case 408, 425, 429, 500, 502, 503, 504:
            mayRepeat && !isLong(head.pause)
                ? .retry(status: head.status, after: head.pause) : .begin
        case 511: .portal
        default: .begin
        }
    }

    /// The rows of the table for a 206.
    private func judgePart(_ head: ResponseHead) -> Decision {
        guard offset > 0 else { return .refuse(status: head.status) }
        if let encoding = head.encoding { return .distrustRanges("content encoding \(encoding)") }
        guard case .bytes(let range, let total) = head.contentRange else {
            return .distrustRanges("206 without one usable Content-Range")
        }
        guard let total, total == size ?? heldTotal else {
            return .distrustRanges("206 of another total")
        }
        guard range.lowerBound <= offset, range.upperBound >= offset else {
            return .distrustRanges("206 from \(range.lowerBound), not \(offset)")
        }
        if let length = head.contentLength, length != range.upperBound - range.lowerBound + 1 {
            return .distrustRanges("206 whose length contradicts its range")
        }
        if let validator, validator.isContradicted(by: head) {
            return .distrustRanges("206 of another version")
        }
        return range.lowerBound == offset ? .append : .compare(from: range.lowerBound)
    }

    /// The rows of the table for a 200.
    private func judgeWhole(_ head: ResponseHead) -> Decision {
        guard head.status == 200 || !isGet else { return refusal(head) }
        if head.isHTML, promise != .anything || wasLedAway { return .portal }
        if head.contentRange != nil {
            return offset > 0 ? .distrustRanges("200 with Content-Range") : .refuse(status: 200)
        }
        if let encoding = head.encoding {
            // Its length is not that of the content.
            return decodesContent ? .begin : .encoded(encoding)
        }
        if isBodyless { return .begin }
        if let size, let length = head.bodyLength, length != size {
            return .wrongSize(length)
        }
        if let length = head.bodyLength, length > limit { return .tooLarge }
        return .begin
    }
}

/// What some content is supposed to be, so that a page for a person in its place is recognised.
public enum ContentPromise: Equatable, Sendable {
    /// An archive.
    case archive
    /// A JSON document.
    case json
    /// Anything, a web page included.
    case anything
}
