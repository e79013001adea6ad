import StageModel

/// An upload in progress: what it was asked, where it is, and what was answered last.
///
/// It belongs to the engine's thread.
final class Upload {
    let request: UploadRequest
    let target: TransferURL
    let source: UploadSource
    let ledger: UploadLedger
    var machine: ResumableUpload
    /// Whether the current request is the first one of an attempt.
    var isBeginning = true
    private let rules: RedirectRules
    private var answer: ResponseSummary?
    private var body: [UInt8] = []
    private var isBodyComplete = false

    init(
        _ request: UploadRequest,
        _ target: TransferURL,
        _ source: UploadSource,
        _ ledger: UploadLedger
    ) throws(TransferError) {
        self.request = request
        self.target = target
        self.source = source
        self.ledger = ledger
        rules = RedirectRules(allowed: request.allowedDomains)
        let terms = ResumableUpload.Terms(
            uploadProtocol: request.spokenProtocol,
            size: source.size,
            isRepeatedSafely: request.isRepeatedSafely,
            repeatsTransientAnswers: request.repeatsTransientAnswers,
            acceptsTransientResponses: request.acceptsTransientResponses,
            knowsLastBytes: request.keepResource != nil && !request.isRepeatedSafely,
            rules: rules
        )
        var parts: PartedUpload?
        if let targets = request.parts {
            parts = try PartedUpload(
                targets,
                size: source.size,
                kept: request.resource,
                rules: rules,
                acceptsTransientResponses: request.acceptsTransientResponses
            )
        }
        machine = ResumableUpload(terms, resource: request.resource, parts: parts)
        ledger.begin(at: machine.resource)
    }

    /// The progress of the last attempt: an upload that gets further is not given up.
    var progress: DownloadMachine.Progress {
        var progress = DownloadMachine.Progress()
        progress.isDurable = machine.hasProgressed
        return progress
    }

    /// Takes an interim answer; what it names is written down before the body goes on.
    func take(interim head: ResponseHead, from url: TransferURL) {
        if let resource = machine.take(interim: head, from: url) { ledger.set(resource) }
    }

    /// Writes down where the upload resumes from now on, and returns the error that keeps it from going on.
    ///
    /// The last bytes of an upload that has no resource any more need leave once more.
    func keepResource() async -> TransferError? {
        let isGone = machine.resource == nil
        if isGone { await source.leave?.settle() }
        ledger.set(machine.resource)
        await ledger.settle()
        if isGone { source.leave?.reset() }
        return ledger.failure
    }

    /// Decides what follows from the end of a request.
    func judge(_ receiver: UploadReceiver, endedBy end: ExchangeEnd) -> ResumableUpload.Action {
        answer = receiver.response
        body = receiver.body
        isBodyComplete = receiver.isWhole(end)
        switch receiver.decision {
        case .begin, .retry: break
        default: return .endAttempt
        }
        guard let head = receiver.head else { return .endAttempt }
        return machine.handle(
            head,
            from: receiver.step.isCreation ? receiver.url : target,
            isBodySent: receiver.isBodySent,
            isCut: receiver.isCut,
            completion: CompletionAnswer(body, isComplete: isBodyComplete)
        )
    }

    /// Begins the body of a step's request.
    func beginBody(of step: ResumableUpload.Step) {
        switch step {
        case .append(_, let offset): source.begin(offset..<machine.end(ofPartAt: offset))
        case .part(_, let number):
            source.begin(machine.parts?.range(ofPart: number) ?? 0..<source.size)
        case .completion: source.begin(machine.parts?.completionBody ?? [])
        case .request, .create, .find: source.begin(0..<source.size)
        }
    }

    /// Whether libcurl may send the request of a step twice; the offset keeps a tus server from taking bytes twice, and
    /// parts go over one connection.
    func mayRepeat(_ step: ResumableUpload.Step) -> Bool {
        switch step {
        case .request: request.isRepeatedSafely
        // Without a body this is all of the request.
        case .create: source.size > 0 || request.isRepeatedSafely
        case .find, .part, .completion: true
        case .append: machine.uploadProtocol == .tus
        }
    }

    /// The route that begins with the request of a step.
    func route(of step: ResumableUpload.Step) -> Route {
        switch step {
        case .request: Route(start: target, rules: rules, method: request.method.rawValue)
        case .create: Route(start: target, rules: rules, method: "POST")
        case .find(let url): route(to: url, "HEAD")
        case .append(let url, _): route(to: url, "PATCH")
        case .part(let url, _): route(to: url, "PUT")
        case .completion(let url): route(to: url, "POST")
        }
    }

    private func route(to url: TransferURL, _ method: String) -> Route {
        Route(
            start: url,
            rules: rules,
            method: method,
            isAtOrigin: isOfOrigin(url)
        )
    }

    /// Whether the request's credentials may be sent to the upload resource: its URL is of the request's origin, and
    /// that origin named it.
    private func isOfOrigin(_ url: TransferURL) -> Bool {
        url.hasSameOrigin(as: target) && machine.resource?.isNamedByOrigin == true
    }

    /// Whether the server of a step may be on this machine: another server names none there.
    func mayAskThisMachine(_ step: ResumableUpload.Step) -> Bool {
        switch step {
        // The application names them itself.
        case .request, .create, .part, .completion: true
        case .find(let url), .append(let url, _): isOfOrigin(url) || target.isLoopback
        }
    }

    /// The URL that messages and records show for one of a step's.
    ///
    /// The URL of an upload resource is a secret, since it is enough to write there: the request's stands in its place, or its
    /// origin.
    func display(_ url: TransferURL, in step: ResumableUpload.Step) -> String {
        if step.isCreation { return url.display }
        return url.hasSameOrigin(as: target) ? target.display : "\(url.scheme)://\(url.authority)/"
    }

    /// The header fields of a step; the caller's are for the origin of its URL alone.
    func fields(of step: ResumableUpload.Step, isAtOrigin: Bool) -> [String] {
        let isTus = machine.uploadProtocol == .tus
        let version = machine.uploadProtocol.versionField.map { [$0] } ?? []
        switch step {
        case .request:
            let announcement = machine.announces ? version + ["Upload-Complete: ?1"] : []
            return (isAtOrigin ? request.fields : []) + announcement
        case .create:
            return (isAtOrigin ? request.fieldsOfCreation : [])
                + version + ["Upload-Length: \(source.size)", "Content-Length: 0"]
        case .part: return (isAtOrigin ? request.fieldsOfResource : []) + ["Expect:"]
        case .completion:
            return (isAtOrigin ? request.fieldsOfResource : [])
                + ["Content-Type: application/xml", "Expect:"]
        case .find: return (isAtOrigin ? request.fieldsOfResource : []) + version
        case .append(_, let offset):
            let type = isTus ? "offset+octet-stream" : "partial-upload"
            return (isAtOrigin ? request.fieldsOfResource : [])
                + version + ["Upload-Offset: \(offset)", "Content-Type: application/\(type)"]
                + (isTus ? [] : ["Upload-Complete: ?1"])
                // A refusal costs a part at most: there is nothing to wait for.
                + ["Expect:"]
        }
    }

    /// The receipt of the finished upload.
    func receipt(
        _ attempts: Int,
        _ duration: Duration
    ) throws(TransferError) -> UploadReceipt {
        guard let answer else { throw .unreachable(url: target.display, detail: "no answer") }
        return UploadReceipt(
            response: answer,
            body: body,
            isBodyComplete: isBodyComplete,
            bytesSent: ByteCount(source.total),
            attempts: attempts,
            duration: duration
        )
    }
}
