import StageModel

/// A running upload: its request, its state, and its last response.
///
/// Used on the engine's thread only.
final class Upload {
    let request: UploadRequest
    let target: TransferURL
    let source: UploadSource
    let stateWriter: UploadStateWriter
    var machine: ResumableUpload
    /// `true` while the current request is the first one of an attempt.
    var isBeginning = true
    private let rules: RedirectRules
    private var answer: ResponseSummary?
    private var body: [UInt8] = []
    private var isBodyComplete = false

    init(
        _ request: UploadRequest,
        to target: TransferURL,
        source: UploadSource,
        stateWriter: UploadStateWriter
    ) throws(TransferError) {
        self.request = request
        self.target = target
        self.source = source
        self.stateWriter = stateWriter
        rules = RedirectRules(allowed: request.allowedDomains)
        let settings = ResumableUpload.Settings(
            uploadProtocol: request.spokenProtocol,
            size: source.size,
            isRepeatedSafely: request.isRepeatedSafely,
            repeatsTransientAnswers: request.repeatsTransientAnswers,
            acceptsTransientResponses: request.acceptsTransientResponses,
            knowsLastBytes: request.keepResource != nil && !request.isRepeatedSafely,
            rules: rules
        )
        var parts: MultipartUpload?
        if let targets = request.parts {
            parts = try MultipartUpload(
                targets,
                size: source.size,
                kept: request.resource,
                rules: rules,
                acceptsTransientResponses: request.acceptsTransientResponses
            )
        }
        machine = ResumableUpload(settings, resource: request.resource, parts: parts)
        stateWriter.begin(at: machine.resource)
    }

    /// Progress of the last attempt, which keeps an advancing upload from being given up.
    var progress: TransferStateMachine.Progress {
        var progress = TransferStateMachine.Progress()
        progress.isDurable = machine.hasProgressed
        return progress
    }

    /// Handles an interim response, and stores the resource that it names before the body continues.
    func take(interim head: ResponseHead, from url: TransferURL) {
        if let resource = machine.take(interim: head, from: url) { stateWriter.set(resource) }
    }

    /// Stores the resource at which the upload resumes from now on, and returns the error of that, if any.
    ///
    /// If the upload has lost its resource, its last bytes need permission again.
    func keepResource() async -> TransferError? {
        let isGone = machine.resource == nil
        if isGone { await source.permission?.settle() }
        stateWriter.set(machine.resource)
        await stateWriter.settle()
        if isGone { source.permission?.reset() }
        return stateWriter.failure
    }

    /// Decides the next action after the end of a request.
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

    /// Prepares the body of a step's request.
    func beginBody(of step: ResumableUpload.Step) {
        switch step {
        case .append(_, let offset): source.begin(offset..<machine.end(ofPartAt: offset))
        case .part(_, let number):
            source.begin(machine.parts?.range(ofPart: number) ?? 0..<source.size)
        case .completion: source.begin(machine.parts?.completionBody ?? [])
        case .request, .create, .queryOffset: source.begin(0..<source.size)
        }
    }

    /// Returns whether libcurl may send the request of a step twice.
    ///
    /// The offset keeps a tus server from storing bytes twice, and repeated parts replace each other.
    func mayRepeat(_ step: ResumableUpload.Step) -> Bool {
        switch step {
        case .request: request.isRepeatedSafely
        // Without a body this is the whole request.
        case .create: source.size > 0 || request.isRepeatedSafely
        case .queryOffset, .part, .completion: true
        case .append: machine.uploadProtocol == .tus
        }
    }

    /// Returns the redirect chain that begins with the request of a step.
    func redirects(of step: ResumableUpload.Step) -> RedirectChain {
        switch step {
        case .request: RedirectChain(start: target, rules: rules, method: request.method.rawValue)
        case .create: RedirectChain(start: target, rules: rules, method: "POST")
        case .queryOffset(let url): redirects(to: url, method: "HEAD")
        case .append(let url, _): redirects(to: url, method: "PATCH")
        case .part(let url, _): redirects(to: url, method: "PUT")
        case .completion(let url): redirects(to: url, method: "POST")
        }
    }

    private func redirects(to url: TransferURL, method: String) -> RedirectChain {
        RedirectChain(
            start: url,
            rules: rules,
            method: method,
            isAtOrigin: isOfOrigin(url)
        )
    }

    /// Returns whether the request's credentials may be sent to the upload resource: its URL has the request's
    /// origin, and that origin named it.
    private func isOfOrigin(_ url: TransferURL) -> Bool {
        url.hasSameOrigin(as: target) && machine.resource?.isNamedByOrigin == true
    }

    /// Returns whether the server of a step may be on this machine: a remote server must not name one there.
    func allowsLocalAddresses(_ step: ResumableUpload.Step) -> Bool {
        switch step {
        // The application chose these URLs itself.
        case .request, .create, .part, .completion: true
        case .queryOffset(let url), .append(let url, _): isOfOrigin(url) || target.isLoopback
        }
    }

    /// Returns the URL that messages and records show for one of a step's.
    ///
    /// The URL of an upload resource is a secret, since it grants write access: the request's URL, or its origin,
    /// replaces it.
    func display(_ url: TransferURL, in step: ResumableUpload.Step) -> String {
        if step.isCreation { return url.display }
        return url.hasSameOrigin(as: target) ? target.display : "\(url.scheme)://\(url.authority)/"
    }

    /// Returns the header fields of a step; the caller's are for the origin of its URL only.
    func fields(of step: ResumableUpload.Step, isAtOrigin: Bool) -> [String] {
        let isTus = machine.uploadProtocol == .tus
        let version = machine.uploadProtocol.versionField.map { [$0] } ?? []
        switch step {
        case .request:
            let announcement = machine.announcesResumption ? version + ["Upload-Complete: ?1"] : []
            return (isAtOrigin ? request.fields : []) + announcement
        case .create:
            return (isAtOrigin ? request.fieldsOfCreation : [])
                + version + ["Upload-Length: \(source.size)", "Content-Length: 0"]
        case .part: return (isAtOrigin ? request.fieldsOfResource : []) + ["Expect:"]
        case .completion:
            return (isAtOrigin ? request.fieldsOfResource : [])
                + ["Content-Type: application/xml", "Expect:"]
        case .queryOffset: return (isAtOrigin ? request.fieldsOfResource : []) + version
        case .append(_, let offset):
            let type = isTus ? "offset+octet-stream" : "partial-upload"
            return (isAtOrigin ? request.fieldsOfResource : [])
                + version + ["Upload-Offset: \(offset)", "Content-Type: application/\(type)"]
                + (isTus ? [] : ["Upload-Complete: ?1"])
                // A refusal costs one part at most: waiting for 100-continue is not worth it.
                + ["Expect:"]
        }
    }

    /// Returns the receipt of the finished upload.
    func receipt(
        attempts: Int,
        duration: Duration
    ) throws(TransferError) -> UploadReceipt {
        guard let answer else { throw .unreachable(url: target.display, detail: "no response") }
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
