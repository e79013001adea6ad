import StageModel

/// State machine of an upload, which resumes the body at the offset that the server has.
///
/// It does no I/O. An attempt is a sequence of steps: if an upload resource is known, the machine queries its offset
/// before any byte of the body is sent again.
struct ResumableUpload {
    /// Returns the end of the part of a tus upload that begins at an offset.
    ///
    /// A server may discard an interrupted request, so a body is sent in at most 512 parts, each of at least a mebibyte
    /// but the last. In the HTTP draft, the server responds to the end of the body, so the body is one part.
    func end(ofPartAt offset: Int64) -> Int64 {
        guard uploadProtocol == .tus else { return settings.size }
        let part = max(Self.smallestPart, settings.size / 512 + (settings.size % 512).signum())
        return offset + min(part, settings.size - offset)
    }

    private let settings: Settings
    /// State machine of an upload to presigned URLs, which has no other steps.
    private(set) var parts: MultipartUpload?
    /// Resource at which the upload resumes, once there is one.
    private(set) var resource: UploadResource?
    /// `true` if the server has 256 KiB more of the body than before, or all of it.
    private(set) var hasProgressed = false
    /// Reason why the upload cannot begin: its resource is unusable, and the server may have processed the request.
    private(set) var failure: String?
    private var url: TransferURL?
    private var step = Step.request
    /// `true` if no redirect of the current request has left the origin of its first URL.
    private var isAtOrigin = true
    private var hasStartedOver = false
    private var offsetQueries = 0
    private var fruitlessQueries = 0
    /// Largest offset that the server has reported: an offset that oscillates is no progress.
    private var furthest: Int64 = 0
    /// Largest offset that counted as progress.
    private var milestone: Int64 = 0
    /// Number of bytes sent, from the first one on; `nil` if an earlier process sent some.
    private var sent: Int64? = 0

    /// Creates a machine, which resumes at `resource` if it is usable.
    ///
    /// At that resource the machine speaks the resource's protocol; the settings apply to a new upload.
    init(_ settings: Settings, resource: UploadResource? = nil, parts: MultipartUpload? = nil) {
        self.settings = settings
        self.parts = parts
        if let parts {
            take(parts)
            return
        }
        guard let resource else { return }
        guard let url = Self.url(of: resource, settings: settings) else {
            guard resource.mayBeComplete, !settings.isRepeatedSafely else { return }
            failure =
                "the upload's resource cannot be used any more; the server may have acted on the request, "
                + "which is not sent again"
            return
        }
        self.resource = resource
        self.url = url
        let offset = resource.offset.rawValue
        (sent, furthest, milestone) = (nil, offset, offset)
    }

    /// Protocol in use.
    var uploadProtocol: UploadProtocol { resource?.uploadProtocol ?? settings.uploadProtocol }

    /// `true` if the caller's request announces that the client can resume.
    var announcesResumption: Bool { settings.uploadProtocol == .resumable && settings.size > 0 }

    /// Begins an attempt, and returns its first step.
    mutating func begin() -> Step {
        (hasProgressed, hasStartedOver, offsetQueries, fruitlessQueries) = (false, false, 0, 0)
        if var parts {
            go(to: parts.begin())
            take(parts)
        } else {
            go(to: url.map { .queryOffset($0) } ?? first)
        }
        return step
    }

    private mutating func take(_ parts: MultipartUpload) {
        self.parts = parts
        (resource, hasProgressed) = (parts.resource, parts.hasProgressed)
    }

    private mutating func go(to next: Step) { (step, isAtOrigin) = (next, true) }

    private var first: Step { settings.uploadProtocol == .tus ? .create : .request }

    /// Handles an interim response of status 104 to the caller's request, and returns the resource that it names.
    ///
    /// The first one counts. A resource that the redirect rules refuse is ignored: the upload is then a plain one.
    mutating func take(interim head: ResponseHead, from url: TransferURL) -> UploadResource? {
        guard head.status == 104, step == .request, announcesResumption, resource == nil,
            head.uploadVersion == nil || head.uploadVersion == Self.version
        else { return nil }
        return useLocation(of: head, from: url) ? resource : nil
    }

    /// Stores the resource that a response names, and returns whether it may be used.
    private mutating func useLocation(of answer: ResponseHead, from url: TransferURL) -> Bool {
        guard let location = answer.location,
            let target = try? settings.rules.target(of: location, from: url, step: 1)
        else { return false }
        return use(target)
    }

    private mutating func use(_ target: TransferURL) -> Bool {
        guard target.text.utf8.count <= Self.longestURL else { return false }
        url = target
        resource = UploadResource(url: target.text, uploadProtocol: settings.uploadProtocol)
        resource?.size = ByteCount(settings.size)
        resource?.isNamedByOrigin = isAtOrigin
        return true
    }

    /// Returns whether a response to the last step ends the upload, or at least the attempt, by its head alone.
    ///
    /// For an upload with a resource, the end of the exchange decides.
    func endsUpload(_ answer: ResponseHead) -> Bool {
        step == .request && resource == nil && !lacksBody(answer)
    }

    /// Returns whether a 2xx response only asks for more of the body, so that it is not the application's response.
    private func lacksBody(_ answer: ResponseHead) -> Bool {
        announcesResumption && answer.isSuccess && answer.isUploadComplete == false
    }

    /// Records that the body was sent up to an offset.
    mutating func noteSent(to offset: Int64) {
        guard parts == nil else { return }
        if let sent { self.sent = max(sent, offset) }
        if offset == settings.size { resource?.mayBeComplete = true }
    }

    /// Records that the last step's request was redirected.
    ///
    /// A resource that the first server named for the request is discarded.
    mutating func noteRedirect(isAtOrigin: Bool) {
        self.isAtOrigin = isAtOrigin
        if step.isCreation { forget() }
    }

    /// Handles the final response to the last step; `isCut` is `true` if the rest of its body was not read.
    mutating func handle(
        _ answer: ResponseHead,
        from url: TransferURL,
        isBodySent: Bool,
        isCut: Bool = false,
        completion: CompletionAnswer = .confirmed
    ) -> Action {
        let action: Action
        switch step {
        case .part, .completion:
            guard var parts else { return .endAttempt }
            action = parts.handle(answer, from: url, isBodySent: isBodySent, completion: completion)
            take(parts)
        case .request where resource == nil: action = judgeRequest(answer, from: url)
        case .create: action = judgeCreation(answer, from: url)
        case .queryOffset: action = judgeOffset(answer, from: url)
        case .append where uploadProtocol == .tus:
            action = judgePart(answer, from: url, isBodySent: isBodySent)
        case .request, .append:
            action = judge(answer, from: url, isBodySent: isBodySent, isCut: isCut)
        }
        if case .perform(let next) = action { go(to: next) }
        return action
    }

    /// Interop version of the HTTP draft.
    static let version = "6"
    /// Version of tus.
    static let tusVersion = "1.0.0"
    /// Maximum size of a resource's URL in bytes: it is stored for as long as the upload lasts.
    static let longestURL = 4096
    private static let smallestPart: Int64 = 1 << 20
    /// Number of consecutive offset queries without progress after which an attempt ends.
    private static let maximumFruitlessQueries = 2
    /// Number of offset queries without counted progress after which an attempt ends.
    private static let maximumOffsetQueries = 8
    /// Number of further bytes that count as progress.
    private static let minimumProgress: Int64 = 256 << 10
}

extension ResumableUpload {
    /// Decides about the response to the caller's request if no resource is known.
    private mutating func judgeRequest(_ answer: ResponseHead, from url: TransferURL) -> Action {
        guard lacksBody(answer) else { return .endAttempt }
        guard useLocation(of: answer, from: url) else {
            let detail = "'Upload-Complete: ?0' without a usable 'Location'"
            return .fail(.unacceptable(url: url.display, .answer(detail)))
        }
        resource?.mayBeComplete = sent == settings.size
        return queryOffset(at: url)
    }

    /// Decides about the response to a body that ends an upload of the HTTP draft.
    ///
    /// Once all of the body was sent, it is the response to the request, unless the server still lacks a part of the body.
    private mutating func judge(
        _ answer: ResponseHead,
        from url: TransferURL,
        isBodySent: Bool,
        isCut: Bool
    ) -> Action {
        let (status, isWhole) = (
            answer.status, answer.uploadOffset.map { $0 == settings.size } ?? true
        )
        switch (status, answer.isUploadComplete) {
        case (401, _) where step == .request:
            // With credentials the request is a different one, to which the bytes sent so far do not belong.
            forget()
            return .deliver
        case (401, _), (407, _): return .deliver
        // A server may send an offset in any response, and it need not be the one that it expects.
        case (409, _) where !isBodySent || !isWhole: return queryOffset(at: url)
        case (423, _) where step != .request:
            return isBodySent ? queryOffset(at: url) : judgeLock(answer, from: url)
        case (200..<300, true) where !isBodySent || !isWhole:
            resource?.mayBeComplete = true
            return queryOffset(at: url)
        case (200..<300, false): return queryOffset(at: url)
        case (200..<300, nil) where !isBodySent && isCut:
            resource?.mayBeComplete = true
            return queryOffset(at: url)
        case (_, true): return .deliver
        default: break
        }
        if isBodySent {
            guard settings.repeatsTransientAnswers, isTransient(answer) else { return .deliver }
            forget()
            return retry(answer, from: url)
        }
        switch status {
        case 404, 410: return step == .request ? .deliver : startOver(answer, from: url)
        default: return isTransient(answer) ? retry(answer, from: url) : .endAttempt
        }
    }

    /// Decides about the response to a part of a tus upload.
    private mutating func judgePart(
        _ answer: ResponseHead,
        from url: TransferURL,
        isBodySent: Bool
    ) -> Action {
        switch answer.status {
        case 409: return queryOffset(at: url)
        case 404, 410: return startOver(answer, from: url)
        case 423: return judgeLock(answer, from: url)
        case 300..<400: return retry(answer, from: url)
        case 200..<300:
            guard isBodySent, let offset = answer.uploadOffset,
                case .append(let target, let start) = step, offset == end(ofPartAt: start)
            else { return queryOffset(at: url) }
            if offset == settings.size { return .deliver }
            note(offset)
            return .perform(.append(target, from: offset))
        default: return isTransient(answer) ? retry(answer, from: url) : .deliver
        }
    }

    /// Decides about the response to the creation of a tus upload.
    private mutating func judgeCreation(_ answer: ResponseHead, from url: TransferURL) -> Action {
        guard answer.isSuccess else {
            // Without a body this is the whole request.
            let mayRepeat = settings.size > 0 || settings.repeatsTransientAnswers
            return mayRepeat && isTransient(answer) ? retry(answer, from: url) : .deliver
        }
        guard let location = answer.location, answer.value(of: "Tus-Resumable") != nil else {
            let lack = answer.location == nil ? "Location" : "Tus-Resumable"
            let detail = "status \(answer.status) without '\(lack)', so not from a tus server"
            return .fail(.unacceptable(url: url.display, .answer(detail)))
        }
        do throws(TransferError) {
            let target = try settings.rules.target(of: location, from: url, step: 1)
            guard use(target) else {
                let detail = "its 'Location' has more than \(Self.longestURL) bytes"
                return .fail(.unacceptable(url: url.display, .answer(detail)))
            }
            return settings.size == 0 ? .deliver : .perform(.append(target, from: 0))
        } catch {
            return .fail(error)
        }
    }

    /// Decides about the response to an offset query.
    private mutating func judgeOffset(_ answer: ResponseHead, from url: TransferURL) -> Action {
        switch answer.status {
        case 200..<300: break
        case 400, 404, 405, 410, 501: return startOver(answer, from: url)
        case 423: return judgeLock(answer, from: url)
        // A redirect has no offset.
        case 300..<400: return retry(answer, from: url)
        default: return isTransient(answer) ? retry(answer, from: url) : .deliver
        }
        let isTus = uploadProtocol == .tus
        let isComplete = !isTus && answer.isUploadComplete == true
        guard isComplete || answer.has("Upload-Offset") else {
            // The response may come from another server, such as a login page.
            let detail = "a response without 'Upload-Offset'"
            return .retry(.unreachable(url: url.display, detail: detail), after: nil)
        }
        let offset = answer.has("Upload-Offset") ? answer.uploadOffset ?? -1 : settings.size
        if let fault = fault(of: offset, isComplete: isComplete, in: answer) {
            return .fail(.unacceptable(url: url.display, .answer(fault)))
        }
        note(offset)
        // The offset may be lower than before: the server may have lost bytes that were not on its disk.
        resource?.offset = ByteCount(offset)
        sent = sent ?? offset
        if isComplete || isTus && offset == settings.size { return .deliver }
        guard let target = self.url else { return .endAttempt }
        return .perform(.append(target, from: offset))
    }

    /// Returns the reason why an offset cannot be valid for the upload.
    private func fault(
        of offset: Int64,
        isComplete: Bool,
        in answer: ResponseHead
    ) -> String? {
        let size = settings.size
        guard (0...size).contains(offset), !isComplete || offset == size else {
            let value = answer.value(of: "Upload-Offset") ?? "none"
            return "an upload of \(size.quantity(of: "byte")) has the offset \(value)"
        }
        if answer.has("Upload-Length"), answer.number(of: "Upload-Length") != size {
            let value = answer.value(of: "Upload-Length") ?? "none"
            return "an upload of \(size.quantity(of: "byte")) has the length \(value)"
        }
        if let sent, offset > sent {
            return "'Upload-Offset: \(offset)' after \(sent.quantity(of: "byte")) were sent"
        }
        if offset == size, size > 0, settings.knowsLastBytes, resource?.mayBeComplete == false {
            return "'Upload-Offset: \(offset)' before the last bytes were sent"
        }
        return nil
    }

    /// Records an offset that the server has.
    private mutating func note(_ offset: Int64) {
        if offset > furthest { (fruitlessQueries, furthest) = (0, offset) }
        guard offset > milestone,
            offset == settings.size || offset - milestone >= Self.minimumProgress
        else { return }
        (hasProgressed, milestone, offsetQueries) = (true, offset, 0)
    }

    private mutating func queryOffset(at url: TransferURL) -> Action {
        offsetQueries += 1
        fruitlessQueries += 1
        guard let target = self.url, fruitlessQueries <= Self.maximumFruitlessQueries,
            offsetQueries <= Self.maximumOffsetQueries
        else {
            let detail = "the server accepts no more of the upload"
            return .retry(.unreachable(url: url.display, detail: detail), after: nil)
        }
        return .perform(.queryOffset(target))
    }

    /// Starts again with a new resource, unless the server may have processed the body.
    private mutating func startOver(_ answer: ResponseHead, from url: TransferURL) -> Action {
        guard settings.isRepeatedSafely || resource?.mayBeComplete != true else {
            let detail =
                "status \(answer.status) for the upload; the server may have acted on the request, which is not "
                + "sent again"
            return .fail(.unreachable(url: url.display, detail: detail))
        }
        forget()
        guard !hasStartedOver else { return retry(answer, from: url) }
        hasStartedOver = true
        return .perform(first)
    }

    /// Discards the resource; a new one makes progress once it gets further than this one.
    private mutating func forget() { (resource, url, sent) = (nil, nil, 0) }

    private func isTransient(_ answer: ResponseHead) -> Bool {
        ResponseSummary.isTransient(answer.status) && !settings.acceptsTransientResponses
    }

    /// Decides about a 423 response: another request, possibly an interrupted one, still locks the resource.
    private func judgeLock(_ answer: ResponseHead, from url: TransferURL) -> Action {
        settings.acceptsTransientResponses ? .deliver : retry(answer, from: url)
    }

    private func retry(_ answer: ResponseHead, from url: TransferURL) -> Action {
        let pause = answer.retryDelay
        let error = TransferError.refused(
            url: url.display,
            status: answer.status,
            retryAfter: pause
        )
        return .retry(error, after: pause)
    }
}
