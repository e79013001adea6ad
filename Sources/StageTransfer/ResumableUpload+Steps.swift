import StageModel

extension ResumableUpload {
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
        /// A part of the body, by its number.
        case part(TransferURL, number: Int)
        /// The list of all parts, which completes the upload.
        case completion(TransferURL)

        /// Whether the request has a body.
        var hasBody: Bool {
            switch self {
            case .request, .append, .part, .completion: true
            case .create, .find: false
            }
        }

        /// Whether the request is one that the server may name an upload resource for.
        var isCreation: Bool { self == .request || self == .create }
    }

    /// The consequence of an answer.
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

    /// The URL of a kept resource that is one of the body and where a redirect may lead now.
    static func url(of resource: UploadResource, _ terms: Terms) -> TransferURL? {
        // The URL was read before it was kept, and the damaged one of a journal is none.
        guard [.resumable, .tus].contains(resource.uploadProtocol),
            resource.size.map({ $0.rawValue == terms.size }) ?? true,
            let url = try? TransferURL(resource.url), !url.isFile,
            (try? RedirectRules.check(url, terms.rules.allowed)) != nil
        else { return nil }
        return url
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
        /// Whether a kept resource says whether the last bytes may have been sent: they wait for that.
        var knowsLastBytes = false
        /// The places where an upload resource may be.
        var rules = RedirectRules()
    }
}
