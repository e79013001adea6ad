import StageModel

/// Decides which request an upload sends next, so that a body goes on where a server has it.
///
/// It does no I/O. An attempt is a sequence of steps: where an upload resource is known, its offset is asked for
/// before any byte of the body is sent again.
struct ResumableUpload {
    /// A request.
    enum Step: Equatable {
        /// The request of the caller with the whole body.
        case request
        /// The creation of a tus upload, without a body.
        case create
        /// The question for the offset.
        case find(TransferURL)
        /// The body from an offset on.
        case append(TransferURL, from: Int64)

        /// Whether the request has a body.
        var hasBody: Bool {
            switch self {
            case .request, .append: true
            case .create, .find: false
            }
        }
    }

    /// The end of the part of a tus upload that begins at an offset.
    ///
    /// Servers may keep nothing of a request that breaks off, so a body goes in at most 512 parts, none of less than a
    /// mebibyte but the last. The draft's answer is to the end of the body, which is why its bodies go in one.
    func end(ofPartAt offset: Int64) -> Int64 {
        guard terms.uploadProtocol == .tus else { return terms.size }
        let part = max(Self.smallestPart, (terms.size + 511) / 512)
        return offset + min(part, terms.size - offset)
    }

    /// What follows from an answer.
    enum Action: Equatable {
        /// Send the next request of this attempt.
        case perform(Step)
        /// The answer is the upload's.
        case deliver
        /// The attempt ends as one without this protocol would.
        case endAttempt
        /// The attempt ends, and another one may follow.
        case retry(TransferError, after: Duration?)
        /// The upload ends.
        case fail(TransferError)
    }

    /// Settings of an upload.
    struct Terms {
        /// The protocol; ``UploadProtocol/plain`` has one step.
        var uploadProtocol: UploadProtocol
        /// The bytes of the body.
        var size: Int64
        /// Whether the body may be sent again from its first byte though the server may have acted on it.
        var isRepeatedSafely = false
        /// Whether the request is sent again after answers of a status that may pass.
        var repeatsTransientAnswers = false
        /// Whether such answers end the upload at an upload resource, too.
        var acceptsTransientResponses = false
        /// Where an upload resource may be.
        var rules = RedirectRules()
    }

    private let terms: Terms
    /// The resource at which the upload resumes, once there is one.
    private(set) var resource: UploadResource?
    /// Whether the server was found to have more of the body in this attempt than before.
    private(set) var hasProgressed = false
    private var url: TransferURL?
    private var step = Step.request
    private var hasBegunAnew = false
    private var vainQuestions = 0
    /// The furthest offset that a server has named: one that goes back and forth makes no progress.
    private var furthest: Int64 = 0
    /// How many bytes from the first on have been sent; `nil` where an earlier process sent some.
    private var sent: Int64? = 0

    /// Creates a machine, which resumes at `resource` if it is one of the protocol.
    init(_ terms: Terms, resource: UploadResource? = nil) {
        self.terms = terms
        guard let resource, resource.uploadProtocol == terms.uploadProtocol,
            // The URL was read before it was kept.
            let url = try? TransferURL(resource.url)
        else { return }
        self.resource = resource
        self.url = url
        (sent, furthest) = (nil, resource.offset.rawValue)
    }

    /// Whether the request of the caller says that the client can resume.
    var announces: Bool { terms.uploadProtocol == .resumable && terms.size > 0 }

    /// Begins an attempt.
    mutating func begin() -> Step {
        (hasProgressed, hasBegunAnew, vainQuestions) = (false, false, 0)
        step = url.map { .find($0) } ?? first
        return step
    }

    private var first: Step { terms.uploadProtocol == .tus ? .create : .request }

    /// Takes an interim answer of status 104 to the caller's request, and returns the resource that it names.
    ///
    /// The first one counts. A resource where no redirect may lead is passed over: the upload is then a plain one.
    mutating func take(interim head: ResponseHead, from url: TransferURL) -> UploadResource? {
        guard head.status == 104, step == .request, announces, resource == nil,
            head.uploadVersion == nil || head.uploadVersion == Self.version,
            let location = head.location,
            let target = try? terms.rules.target(of: location, from: url, step: 1)
        else { return nil }
        return use(target) ? resource : nil
    }

    private mutating func use(_ target: TransferURL) -> Bool {
        guard target.text.utf8.count <= Self.longestURL else { return false }
        url = target
        resource = UploadResource(url: target.text, uploadProtocol: terms.uploadProtocol)
        return true
    }

    /// Takes note that the body was sent up to an offset.
    mutating func noteSent(to offset: Int64) {
        if let sent { self.sent = max(sent, offset) }
        if offset == terms.size { resource?.mayBeComplete = true }
    }

    /// Takes the final answer to the last step.
    mutating func handle(_ answer: ResponseHead, from url: TransferURL, isBodySent: Bool) -> Action
    {
        let action: Action
        switch step {
        case .request where resource == nil: action = .endAttempt
        case .request: action = judge(answer, from: url, isBodySent: isBodySent)
        case .create: action = judgeCreation(answer, from: url)
        case .find: action = judgeOffset(answer, from: url)
        case .append:
            action =
                terms.uploadProtocol == .tus
                ? judgePart(answer, from: url) : judge(answer, from: url, isBodySent: isBodySent)
        }
        if case .perform(let next) = action { step = next }
        return action
    }

    /// The interop version of the draft.
    static let version = "6"
    /// The version of tus.
    static let tusVersion = "1.0.0"
    /// The bytes that a resource's URL may have: it is kept for as long as the upload lasts.
    static let longestURL = 4096
    private static let smallestPart: Int64 = 1 << 20
    /// How often in a row an attempt asks for an offset that is no further than before.
    private static let mostVainQuestions = 2
}

extension ResumableUpload {
    /// Judges the answer to a body that ends the upload of the draft.
    ///
    /// Once all of the body was sent it is the answer of the request, whatever its status.
    private mutating func judge(
        _ answer: ResponseHead,
        from url: TransferURL,
        isBodySent: Bool
    ) -> Action {
        let (status, offset) = (answer.status, answer.uploadOffset)
        if [401, 407].contains(status) {
            // What was sent is of no use: with credentials the request is another one.
            forget()
            return .deliver
        }
        if answer.isUploadComplete == true { return .deliver }
        if (200..<300).contains(status), answer.isUploadComplete == false {
            return find(at: url)
        }
        if isBodySent {
            // A server may name the offset in any answer: it was another one than the client's, or not.
            if status == 409, let offset, offset != terms.size { return find(at: url) }
            guard terms.repeatsTransientAnswers, isTransient(answer) else { return .deliver }
            forget()
            return retry(answer, from: url)
        }
        switch status {
        case 409: return find(at: url)
        case 404, 410: return step == .request ? .deliver : beginAnew(answer, from: url)
        default: return isTransient(answer) ? retry(answer, from: url) : .endAttempt
        }
    }

    /// Judges the answer to a part of a tus upload.
    private mutating func judgePart(_ answer: ResponseHead, from url: TransferURL) -> Action {
        switch answer.status {
        case 409: return find(at: url)
        case 404, 410: return beginAnew(answer, from: url)
        case 200..<300:
            guard let offset = answer.uploadOffset, case .append(let target, let start) = step,
                offset == end(ofPartAt: start)
            else { return find(at: url) }
            if offset == terms.size { return .deliver }
            if offset > furthest { (hasProgressed, vainQuestions, furthest) = (true, 0, offset) }
            return .perform(.append(target, from: offset))
        default: return isTransient(answer) ? retry(answer, from: url) : .deliver
        }
    }

    /// Judges the answer to the creation of a tus upload.
    private mutating func judgeCreation(_ answer: ResponseHead, from url: TransferURL) -> Action {
        guard (200..<300).contains(answer.status) else {
            return isTransient(answer) ? retry(answer, from: url) : .deliver
        }
        guard let location = answer.location else {
            let detail = "status \(answer.status) without 'Location': it is no tus server's"
            return .fail(.unacceptable(url: url.display, .answer(detail)))
        }
        do throws(TransferError) {
            let target = try terms.rules.target(of: location, from: url, step: 1)
            guard use(target) else {
                let detail = "its 'Location' has more than \(Self.longestURL) bytes"
                return .fail(.unacceptable(url: url.display, .answer(detail)))
            }
            return terms.size == 0 ? .deliver : .perform(.append(target, from: 0))
        } catch {
            return .fail(error)
        }
    }

    /// Judges the answer to the question for the offset.
    private mutating func judgeOffset(_ answer: ResponseHead, from url: TransferURL) -> Action {
        switch answer.status {
        case 200..<300: break
        case 401, 407: return .deliver
        default:
            return isTransient(answer) ? retry(answer, from: url) : beginAnew(answer, from: url)
        }
        let isComplete = terms.uploadProtocol == .resumable && answer.isUploadComplete == true
        let offset = answer.uploadOffset ?? (isComplete ? terms.size : -1)
        guard (0...terms.size).contains(offset), !isComplete || offset == terms.size else {
            let detail =
                "an upload of \(terms.size) bytes has the offset \(answer.value(of: "Upload-Offset") ?? "none")"
            return .fail(.unacceptable(url: url.display, .answer(detail)))
        }
        if let sent, offset > sent {
            let detail = "'Upload-Offset: \(offset)' after \(sent) bytes were sent"
            return .fail(.unacceptable(url: url.display, .answer(detail)))
        }
        if offset > furthest { (hasProgressed, vainQuestions, furthest) = (true, 0, offset) }
        // It may be less than before: what a server had is not on its disk yet.
        resource?.offset = ByteCount(offset)
        sent = sent ?? offset
        if isComplete || terms.uploadProtocol == .tus && offset == terms.size { return .deliver }
        guard let target = self.url else { return .endAttempt }
        return .perform(.append(target, from: offset))
    }

    private mutating func find(at url: TransferURL) -> Action {
        vainQuestions += 1
        guard let target = self.url, vainQuestions <= Self.mostVainQuestions else {
            let detail = "the server takes no more of the upload"
            return .retry(.unreachable(url: url.display, detail: detail), after: nil)
        }
        return .perform(.find(target))
    }

    /// Begins with another resource, unless the server may have acted on the body.
    private mutating func beginAnew(_ answer: ResponseHead, from url: TransferURL) -> Action {
        guard terms.isRepeatedSafely || resource?.mayBeComplete != true else {
            let detail =
                "status \(answer.status) for the upload; the server may have acted on the request, which is not "
                + "sent again"
            return .fail(.unreachable(url: url.display, detail: detail))
        }
        forget()
        guard !hasBegunAnew else { return retry(answer, from: url) }
        hasBegunAnew = true
        return .perform(first)
    }

    private mutating func forget() { (resource, url, sent, furthest) = (nil, nil, 0, 0) }

    private func isTransient(_ answer: ResponseHead) -> Bool {
        ResponseSummary.transientStatuses.contains(answer.status)
            && !terms.acceptsTransientResponses
    }

    private func retry(_ answer: ResponseHead, from url: TransferURL) -> Action {
        let pause = answer.pause
        let error = TransferError.refused(
            url: url.display,
            status: answer.status,
            retryAfter: pause
        )
        return .retry(error, after: pause)
    }
}

extension ResponseHead {
    /// The value of the only field of a name, in lower case; `nil` where there are none or several.
    fileprivate func value(of name: String) -> String? {
        let name = name.lowercased()
        let values = fields.filter { $0.name.lowercased() == name }
        return values.count == 1 ? values.first?.value : nil
    }

    /// The interop version of resumable uploads.
    fileprivate var uploadVersion: String? { value(of: "Upload-Draft-Interop-Version") }

    /// The offset of an upload.
    fileprivate var uploadOffset: Int64? {
        value(of: "Upload-Offset").flatMap { ContentRange.number($0[...]) }
    }

    /// Whether an upload is complete (RFC 9651, section 3.3.6: a Boolean).
    fileprivate var isUploadComplete: Bool? {
        switch value(of: "Upload-Complete") {
        case "?1": true
        case "?0": false
        default: nil
        }
    }
}
