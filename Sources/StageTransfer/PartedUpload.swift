import StageModel

/// Decides which part of an upload by presigned URLs is sent next, and what follows from its answer.
///
/// It does no I/O. Parts are sent in their order, and each counts once it was answered with an entity tag; then the list
/// of tags completes the upload (Amazon S3 API Reference, UploadPart and CompleteMultipartUpload). No server is asked
/// what it has: a part whose answer was lost is sent again, which replaces it.
struct PartedUpload {
    /// The number of bytes that an entity tag may have: it is kept for as long as the upload lasts.
    static let longestTag = 256

    /// The tags of the parts that the server has, with the offset behind them.
    private(set) var resource: UploadResource
    /// Whether the server has more parts than before the attempt.
    private(set) var hasProgressed = false
    private let parts: [(url: TransferURL, range: Range<Int64>)]
    private let completion: TransferURL
    private let acceptsTransientResponses: Bool
    private var step: ResumableUpload.Step
    private var hasBegun = false
    /// Whether a completion may have reached the server, and its answer was lost.
    private var mayHaveCompleted: Bool

    /// Creates the upload of a file of `size` bytes, which goes on behind the parts that `kept` has.
    ///
    /// - Throws: ``TransferError/unacceptable(url:_:)`` for a URL where the body may not go, and for parts that are not the
    ///   file.
    init(
        _ targets: UploadParts,
        size: Int64,
        kept: UploadResource?,
        rules: RedirectRules,
        acceptsTransientResponses: Bool
    ) throws(TransferError) {
        var (parts, offset) = ([(url: TransferURL, range: Range<Int64>)](), Int64(0))
        guard !targets.parts.isEmpty, targets.size?.rawValue == size else {
            let url = try Self.target(targets.completionURL, rules).display
            let detail =
                "the sizes of the parts are not that of the file, which has \(size.quantity(of: "byte"))"
            throw .unacceptable(url: url, .request(detail))
        }
        for part in targets.parts {
            let end = offset + part.size.rawValue
            parts.append((try Self.target(part.url, rules), offset..<end))
            offset = end
        }
        self.parts = parts
        completion = try Self.target(targets.completionURL, rules)
        self.acceptsTransientResponses = acceptsTransientResponses
        if let kept, Self.fits(kept, parts, size) {
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
        _ rules: RedirectRules
    ) throws(TransferError) -> TransferURL {
        let url = try TransferURL(text)
        guard !url.isFile else {
            throw .unacceptable(url: "file:", .request("an upload goes to an http or https URL"))
        }
        try RedirectRules.check(url, rules.allowed)
        return url
    }

    /// Whether what was kept is of these parts.
    private static func fits(
        _ kept: UploadResource,
        _ parts: [(url: TransferURL, range: Range<Int64>)],
        _ size: Int64
    ) -> Bool {
        guard kept.uploadProtocol == .presignedParts, kept.size?.rawValue == size,
            let tags = kept.entityTags, tags.count <= parts.count, tags.allSatisfy(isUsable)
        else { return false }
        let offset = tags.isEmpty ? 0 : parts[tags.count - 1].range.upperBound
        return kept.offset.rawValue == offset
    }

    /// Whether an entity tag can be kept and sent back.
    private static func isUsable(_ tag: String) -> Bool {
        (1...longestTag).contains(tag.utf8.count)
            && tag.utf8.allSatisfy { (0x20...0x7E).contains($0) }
    }

    /// The tags of the parts that the server has.
    private var tags: [String] { resource.entityTags ?? [] }

    private var next: ResumableUpload.Step {
        tags.count < parts.count
            ? .part(parts[tags.count].url, number: tags.count + 1) : .completion(completion)
    }

    /// Begins an attempt.
    mutating func begin() -> ResumableUpload.Step {
        hasProgressed = false
        // The last attempt ended without a definite answer to its completion.
        if hasBegun, case .completion = step { mayHaveCompleted = true }
        hasBegun = true
        step = next
        return step
    }

    /// The bytes of the file that a part has.
    func range(ofPart number: Int) -> Range<Int64> { parts[number - 1].range }

    /// The list of all parts, which completes the upload.
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

    /// Takes the final answer to the last step; `url` stands for it in messages.
    mutating func handle(
        _ answer: ResponseHead,
        from url: TransferURL,
        isBodySent: Bool,
        completion: CompletionAnswer
    ) -> ResumableUpload.Action {
        switch step {
        case .part(_, let number):
            judgePart(answer, number: number, from: url, isBodySent: isBodySent)
        default: judgeCompletion(answer, completion, from: url)
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
            let detail = "part \(number) was answered before all of it was sent"
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
        _ completion: CompletionAnswer,
        from url: TransferURL
    ) -> ResumableUpload.Action {
        if answer.status == 404, mayHaveCompleted {
            let detail =
                "status 404 for the completion; an earlier one, whose answer was lost, may have completed the upload"
            return .fail(.unreachable(url: url.display, detail: detail))
        }
        guard answer.isSuccess else { return judgeRefusal(answer, from: url) }
        // The head comes before the server has made the object: the body tells.
        switch completion {
        case .confirmed: return .deliver
        case .incomplete:
            let detail = "the answer to the completion is not complete"
            return .retry(.unreachable(url: url.display, detail: detail), after: nil)
        case .error(let code) where CompletionAnswer.passing.contains(code):
            let detail = "the completion was answered with the error '\(code)'"
            return .retry(.unreachable(url: url.display, detail: detail), after: nil)
        case .error(let code):
            let detail = "the completion was answered with the error '\(code)'"
            return .fail(.unacceptable(url: url.display, .answer(detail)))
        }
    }

    private func judgeRefusal(
        _ answer: ResponseHead,
        from url: TransferURL
    ) -> ResumableUpload.Action {
        guard ResponseSummary.transientStatuses.contains(answer.status), !acceptsTransientResponses
        else { return .deliver }
        let error = TransferError.refused(
            url: url.display,
            status: answer.status,
            retryAfter: answer.pause
        )
        return .retry(error, after: answer.pause)
    }
}

/// The body of a success that answers a completion: an error may follow its head, since the object is made meanwhile.
enum CompletionAnswer: Equatable {
    /// It is no error.
    case confirmed
    /// It is an error of this code.
    case error(code: String)
    /// Its end is missing.
    case incomplete

    /// The codes of errors after which the completion is sent again.
    static let passing: Set<String> = ["InternalError", "ServiceUnavailable", "SlowDown"]

    /// Reads the body of an answer: an error is a document whose root is `Error`.
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
    /// The text as character data of XML.
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
