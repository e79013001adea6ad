import StageModel

/// State machine of a multipart upload to presigned URLs (Amazon S3 API Reference, UploadPart and
/// CompleteMultipartUpload).
///
/// It does no I/O. Parts are sent in order, and each counts once the server has returned its entity tag; then the
/// list of tags completes the upload. The server is never asked for its state: a part whose response was lost is sent
/// again, which replaces it.
struct MultipartUpload {
    /// Maximum size of an entity tag in bytes: tags are stored for as long as the upload lasts.
    static let longestTag = 256

    /// The entity tags of the uploaded parts, and the offset after them.
    private(set) var resource: UploadResource
    /// `true` if the server has more parts than before the attempt.
    private(set) var hasProgressed = false
    private let parts: [(url: TransferURL, range: Range<Int64>)]
    private let completion: TransferURL
    private let acceptsTransientResponses: Bool
    private var step: ResumableUpload.Step
    private var hasBegun = false
    /// `true` if a completion request may have reached the server without its response arriving.
    private var mayHaveCompleted: Bool

    /// Creates the upload of a file of `size` bytes, which continues after the parts recorded in `kept`.
    ///
    /// - Throws: ``TransferError/unacceptable(url:_:)`` for a URL that may not receive the body, and if the sizes of
    ///   the parts do not add up to that of the file.
    init(
        _ targets: UploadParts,
        size: Int64,
        kept: UploadResource?,
        rules: RedirectRules,
        acceptsTransientResponses: Bool
    ) throws(TransferError) {
        var (parts, offset) = ([(url: TransferURL, range: Range<Int64>)](), Int64(0))
        guard !targets.parts.isEmpty, targets.size?.rawValue == size else {
            let url = try Self.target(targets.completionURL, rules: rules).display
            let detail =
                "the sizes of the parts are not that of the file, which has \(size.quantity(of: "byte"))"
            throw .unacceptable(url: url, .request(detail))
        }
        for part in targets.parts {
            let end = offset + part.size.rawValue
            parts.append((try Self.target(part.url, rules: rules), offset..<end))
            offset = end
        }
        self.parts = parts
        completion = try Self.target(targets.completionURL, rules: rules)
        self.acceptsTransientResponses = acceptsTransientResponses
        if let kept, Self.fits(kept, parts: parts, size: size) {
            resource = kept
        } else {
            resource = UploadResource(url: "", uploadProtocol: .presignedParts)
            resource.entityTags = []
            resource.size = ByteCount(size)
        }
        mayHaveCompleted = resource.mayBeComplete
        step = .completion(completion)
    }

    private static func target(
        _ text: String,
        rules: RedirectRules
    ) throws(TransferError) -> TransferURL {
        let url = try TransferURL(text)
        guard !url.isFile else {
            throw .unacceptable(url: "file:", .request("an upload goes to an http or https URL"))
        }
        try RedirectRules.check(url, against: rules.allowed)
        return url
    }

    /// Returns whether the recorded state belongs to these parts.
    private static func fits(
        _ kept: UploadResource,
        parts: [(url: TransferURL, range: Range<Int64>)],
        size: Int64
    ) -> Bool {
        guard kept.uploadProtocol == .presignedParts, kept.size?.rawValue == size,
            let tags = kept.entityTags, tags.count <= parts.count, tags.allSatisfy(isUsable)
        else { return false }
        let offset = tags.isEmpty ? 0 : parts[tags.count - 1].range.upperBound
        return kept.offset.rawValue == offset
    }

    /// Returns whether an entity tag can be stored and sent back.
    private static func isUsable(_ tag: String) -> Bool {
        (1...longestTag).contains(tag.utf8.count)
            && tag.utf8.allSatisfy { (0x20...0x7E).contains($0) }
    }

    /// Entity tags of the uploaded parts.
    private var tags: [String] { resource.entityTags ?? [] }

    private var next: ResumableUpload.Step {
        tags.count < parts.count
            ? .part(parts[tags.count].url, number: tags.count + 1) : .completion(completion)
    }

    /// Begins an attempt, and returns its first step.
    mutating func begin() -> ResumableUpload.Step {
        hasProgressed = false
        // The last attempt ended without a definite response to its completion.
        if hasBegun, case .completion = step { mayHaveCompleted = true }
        hasBegun = true
        step = next
        return step
    }

    /// Returns the byte range of a part within the file.
    func range(ofPart number: Int) -> Range<Int64> { parts[number - 1].range }

    /// Body of the request that completes the upload: the list of all parts.
    var completionBody: [UInt8] {
        let list = tags.enumerated().map { index, tag in
            "<Part><PartNumber>\(index + 1)</PartNumber><ETag>\(tag.escapedForXML)</ETag></Part>"
        }
        let document =
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            + "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
            + list.joined() + "</CompleteMultipartUpload>"
        return Array(document.utf8)
    }

    /// Handles the final response to the last step; `url` identifies it in error messages.
    mutating func handle(
        _ answer: ResponseHead,
        from url: TransferURL,
        isBodySent: Bool,
        completion: CompletionAnswer
    ) -> ResumableUpload.Action {
        switch step {
        case .part(_, let number):
            judgePart(answer, number: number, from: url, isBodySent: isBodySent)
        default: judgeCompletion(answer, completion: completion, from: url)
        }
    }

    private mutating func judgePart(
        _ answer: ResponseHead,
        number: Int,
        from url: TransferURL,
        isBodySent: Bool
    ) -> ResumableUpload.Action {
        guard answer.isSuccess else { return judgeRefusal(answer, from: url) }
        guard isBodySent else {
            let detail = "the server responded to part \(number) before all of it was sent"
            return .retry(.unreachable(url: url.display, detail: detail), after: nil)
        }
        guard let tag = answer.value(of: "ETag"), Self.isUsable(tag) else {
            let detail = "status \(answer.status) for part \(number) without a usable 'ETag'"
            return .fail(.unacceptable(url: url.display, .answer(detail)))
        }
        resource.entityTags = tags + [tag]
        resource.offset = ByteCount(range(ofPart: number).upperBound)
        // From here on the completion may be sent.
        resource.mayBeComplete = tags.count == parts.count
        hasProgressed = true
        step = next
        return .perform(step)
    }

    private func judgeCompletion(
        _ answer: ResponseHead,
        completion: CompletionAnswer,
        from url: TransferURL
    ) -> ResumableUpload.Action {
        if answer.status == 404, mayHaveCompleted {
            let detail =
                "status 404 for the completion; an earlier one, whose response was lost, may have completed the upload"
            return .fail(.unreachable(url: url.display, detail: detail))
        }
        guard answer.isSuccess else { return judgeRefusal(answer, from: url) }
        // The server sends the head before it has assembled the object: only the body tells the result.
        switch completion {
        case .confirmed: return .deliver
        case .incomplete:
            let detail = "the response to the completion is truncated"
            return .retry(.unreachable(url: url.display, detail: detail), after: nil)
        case .error(let code) where CompletionAnswer.temporaryErrors.contains(code):
            let detail = "the server responded to the completion with the error '\(code)'"
            return .retry(.unreachable(url: url.display, detail: detail), after: nil)
        case .error(let code):
            let detail = "the server responded to the completion with the error '\(code)'"
            return .fail(.unacceptable(url: url.display, .answer(detail)))
        }
    }

    private func judgeRefusal(
        _ answer: ResponseHead,
        from url: TransferURL
    ) -> ResumableUpload.Action {
        guard ResponseSummary.isTransient(answer.status), !acceptsTransientResponses
        else { return .deliver }
        let error = TransferError.refused(
            url: url.display,
            status: answer.status,
            retryAfter: answer.retryDelay
        )
        return .retry(error, after: answer.retryDelay)
    }
}

/// Result in the body of a 2xx response to a completion: an error may follow the head, since the server assembles the
/// object after it has sent the head.
enum CompletionAnswer: Equatable {
    /// The object was assembled: the body does not report an error.
    case confirmed
    /// An error with this code.
    case error(code: String)
    /// The body was truncated.
    case incomplete

    /// Error codes after which the completion is sent again.
    static let temporaryErrors: Set<String> = ["InternalError", "ServiceUnavailable", "SlowDown"]

    /// Parses the body of a response: an error is an XML document whose root is `Error`.
    init(_ body: [UInt8], isComplete: Bool) {
        guard isComplete else {
            self = .incomplete
            return
        }
        var text = String(decoding: body, as: UTF8.self)[...].drop(while: \.isWhitespace)
        if text.hasPrefix("<?xml"), let end = text.firstIndex(of: ">") {
            text = text[end...].dropFirst().drop(while: \.isWhitespace)
        }
        guard text.hasPrefix("<Error"), ["<Error>", "<Error ", "<Error/"].contains(text.prefix(7))
        else {
            self = .confirmed
            return
        }
        let parts = text.split(separator: "<Code>", maxSplits: 1)
        let code = parts.count == 2 ? parts[1].prefix(while: \.isLetter).prefix(64) : ""
        self = .error(code: code.isEmpty ? "unknown" : String(code))
    }
}

extension String {
    /// The text escaped for XML character data.
    fileprivate var escapedForXML: String {
        map { character in
            switch character {
            case "&": "&amp;"
            case "<": "&lt;"
            case ">": "&gt;"
            case "\"": "&quot;"
            default: "\(character)"
            }
        }
        .joined()
    }
}
