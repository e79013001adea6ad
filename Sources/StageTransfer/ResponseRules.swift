import StageModel

/// Properties of a request, and the rules that decide about its response.
///
/// The decision is made when the head of the response is complete, before any byte of its body is processed.
struct ResponseRules: Equatable, Sendable {
    /// Offset of the requested range; 0 for a request without `Range`.
    var offset: Int64 = 0
    /// Version of the content in the partial file, if its server sent a validator.
    var validator: Validator?
    /// Required size of the whole content.
    var size: Int64?
    /// Total size of the content that the bytes of the partial file belong to.
    var partialTotal: Int64?
    /// `true` if the bytes of the partial file came from another resource and no digest identifies them: a validator proves
    /// nothing about another resource.
    var isOtherResource = false
    /// `true` if a known digest finds content that was combined from two versions.
    var hasKnownDigest = false
    /// Maximum size of the content.
    var limit = Int64.max
    /// Expected kind of the content.
    var expectedKind = ContentKind.anything
    /// `true` if the request is conditional: the server sends the content only if it has changed.
    var isConditional = false
    /// `true` if an unencrypted redirect led to another host.
    var hasInsecureHostChange = false
    /// `true` if a 404 or 410 is retried, since the content may appear soon.
    var toleratesMissing = false
    /// `true` for a plain GET.
    ///
    /// The content of another method may have any 2xx status, and is never resumed.
    var isGet = true
    /// `true` if every response but a redirect is content, regardless of its status.
    var acceptsErrorResponses = false
    /// `true` if that includes the statuses that otherwise cause another attempt.
    var acceptsTransientResponses = false
    /// Statuses of challenges that are failures nevertheless.
    var challengeStatuses: Set<Int> = []
    /// Delay from which on a `Retry-After` is too long for another attempt.
    var maximumRetryAfter = Duration.seconds(Int64.max)
    /// `true` if the response has no body, regardless of its `Content-Length`.
    var isBodyless = false
    /// `true` if a 511 counts as the response of a captive portal.
    var detectsPortals = true

    /// `true` if the body may have a content coding, since libcurl decodes it.
    var decodesContent = false

    /// `true` for a request that only tests whether the server responds with content, which is not read.
    var isProbe = false

    /// `true` if intermediate caches must not answer from their storage.
    var bypassesCaches = false

    /// Decision about a response.
    enum Decision: Equatable, Sendable {
        /// The body continues the partial file at the requested offset.
        case append
        /// The body starts at `from`, before the requested offset; the overlap must equal the partial file.
        case compare(from: Int64)
        /// The body is the whole content: start a new generation.
        case begin
        /// The body is that of an error, and the caller accepts it: start a new generation that is never resumed.
        case beginRefusal
        /// The server responds to a probe with content: the partial file is kept.
        case probeSucceeded
        /// The partial file is complete.
        case complete
        /// The caller's version is current.
        case notModified
        /// The partial file is of no use: request the whole content.
        case restart
        /// The server's range responses are unreliable, for this reason: request the whole content.
        case distrustRanges(String)
        /// Follow the redirect.
        case redirect(to: String)
        /// Retry later.
        case retry(status: Int, after: Duration?)
        /// A captive portal answered instead of the server.
        case portal
        /// The content has another size.
        case wrongSize(Int64)
        /// The content exceeds the limit.
        case tooLarge
        /// The body has this content coding, which was not requested.
        case encoded(String)
        /// The response violates HTTP.
        case malformed(String)
        /// The server refused the request.
        case refuse(status: Int)

        /// `false` for a redirect.
        var isFinal: Bool { if case .redirect = self { false } else { true } }

        /// `true` if the body is read.
        var takesBody: Bool {
            switch self {
            case .append, .compare, .begin, .beginRefusal: true
            default: false
            }
        }
    }

    /// Decides about a response by its head.
    func judge(_ head: ResponseHead) -> Decision {
        switch head.status {
        case 200..<300 where head.lengthFault != nil && !head.hasTransferEncoding:
            .malformed(head.lengthFault ?? "")
        case 206 where offset > 0 && isOtherResource: .restart
        case 206: judgePart(head)
        case 200..<300: judgeWhole(head)
        case 304 where isConditional: .notModified
        case 304, 412: offset > 0 ? .restart : refusal(head)
        case 301, 302, 303, 307, 308: redirection(head)
        case 416 where offset > 0:
            isProof(head) ? .complete : .restart
        case _ where ResponseSummary.isTransient(head.status):
            isContent(head)
                ? finalRefusal(head) : .retry(status: head.status, after: head.retryDelay)
        case 404, 410:
            toleratesMissing && offset == 0
                ? .retry(status: head.status, after: head.retryDelay) : refusal(head)
        case 511 where detectsPortals: .portal
        default: refusal(head)
        }
    }

    /// Returns whether a 416 proves that the partial file is complete.
    private func isProof(_ head: ResponseHead) -> Bool {
        head.contentRange == .unsatisfied(total: offset) && offset == size ?? partialTotal
            && validator?.isConfirmed(by: head) != false && !isOtherResource
    }

    private func redirection(_ head: ResponseHead) -> Decision {
        if let location = head.location, !location.isEmpty { return .redirect(to: location) }
        if hasInsecureHostChange, head.isHTML { return .portal }
        return .malformed("status \(head.status) without 'Location'")
    }

    /// Returns whether the caller accepts a response that otherwise causes another attempt.
    private func isContent(_ head: ResponseHead) -> Bool {
        guard acceptsErrorResponses else { return false }
        return acceptsTransientResponses || isLong(head.retryDelay)
    }

    /// Returns whether a server asks for a delay that is too long for another attempt.
    private func isLong(_ pause: Duration?) -> Bool {
        pause.map { $0 >= maximumRetryAfter } ?? false
    }

    /// Decides about a refusal, which may concern only the range: some servers, and filters before them, refuse requests with `Range`.
    private func refusal(_ head: ResponseHead) -> Decision {
        guard offset > 0, ![401, 407, 511].contains(head.status),
            !hasInsecureHostChange || !head.isHTML
        else { return finalRefusal(head) }
        return .distrustRanges("status \(head.status)")
    }

    private func finalRefusal(_ head: ResponseHead) -> Decision {
        if hasInsecureHostChange, head.isHTML { return .portal }
        guard acceptsErrorResponses, !challengeStatuses.contains(head.status) else {
            return .refuse(status: head.status)
        }
        if let encoding = head.encoding, !decodesContent { return .encoded(encoding) }
        return .beginRefusal
    }

    /// Decides about the response to an upload by its head.
    ///
    /// A 301, 302 or 303 is a final response, which names a URL to read from; only a 307 or 308 asks for the body to
    /// be sent elsewhere (RFC 9110, section 15.4). A 511 comes from a captive portal.
    func judgeUpload(_ head: ResponseHead, mayRepeat: Bool) -> Decision {
        switch head.status {
        case 307, 308: redirection(head)
        case _ where ResponseSummary.isTransient(head.status):
            mayRepeat && !isLong(head.retryDelay)
                ? .retry(status: head.status, after: head.retryDelay) : .begin
        case 511: .portal
        default: .begin
        }
    }

    /// Decides about a 206 response.
    private func judgePart(_ head: ResponseHead) -> Decision {
        guard offset > 0 else { return .refuse(status: head.status) }
        guard case .bytes(let range, let total) = head.contentRange, !head.hasSeveralParts else {
            if let encoding = head.encoding {
                return .distrustRanges("content encoding \(encoding)")
            }
            return .distrustRanges("206 without one usable Content-Range")
        }
        if let encoding = head.encoding, !isNameOnly(total) {
            return .distrustRanges("content encoding \(encoding)")
        }
        guard let total, total == size ?? partialTotal else {
            return .distrustRanges("206 of another total")
        }
        guard range.lowerBound <= offset, range.upperBound >= offset else {
            return .distrustRanges("206 from \(range.lowerBound), not \(offset)")
        }
        if let length = head.contentLength, length != range.upperBound - range.lowerBound + 1 {
            return .distrustRanges("206 whose length contradicts its range")
        }
        switch validator?.isConfirmed(by: head) {
        case true?: break
        case false?: return .distrustRanges("206 of another version")
        // Without a validator or a digest, nothing shows that the part is of the same version (RFC 9110, section 15.3.7.3).
        case nil where !hasKnownDigest: return .distrustRanges("206 without a validator")
        case nil: break
        }
        return range.lowerBound == offset ? .append : .compare(from: range.lowerBound)
    }

    /// Returns whether the content coding of a response whose content has `size` bytes is a name only, since that is the
    /// size of the requested content, and a digest decides.
    ///
    /// Some servers name the compression of an archive there (RFC 9110, section 8.4), as if they had added it.
    private func isNameOnly(_ size: Int64?) -> Bool {
        hasKnownDigest && !decodesContent && size != nil && size == self.size
    }

    /// Decides about a 2xx response other than 206.
    private func judgeWhole(_ head: ResponseHead) -> Decision {
        guard head.status == 200 || !isGet else { return refusal(head) }
        if head.isHTML, expectedKind != .anything || hasInsecureHostChange { return .portal }
        if head.contentRange != nil {
            return offset > 0 ? .distrustRanges("200 with Content-Range") : .refuse(status: 200)
        }
        if let encoding = head.encoding, !isNameOnly(head.bodyLength) {
            // The length of the response is that of the encoded form.
            if decodesContent { return isProbe ? .probeSucceeded : .begin }
            return offset > 0
                ? .distrustRanges("content encoding \(encoding)") : .encoded(encoding)
        }
        if isBodyless { return .begin }
        if let size, let length = head.bodyLength, length != size {
            return .wrongSize(length)
        }
        if let length = head.bodyLength, length > limit { return .tooLarge }
        return isProbe ? .probeSucceeded : .begin
    }
}

/// Expected kind of some content, by which a captive portal's web page is recognised.
@nonexhaustive
public enum ContentKind: Equatable, Sendable {
    /// An archive.
    case archive
    /// A JSON document.
    case json
    /// Any content, web pages included.
    case anything
}
