import StageModel

extension ResumableUpload {
    /// A request of an upload.
    enum Step: Equatable {
        /// The caller's request with the whole body.
        case request
        /// The creation of a tus upload, without a body.
        case create
        /// The query for the offset.
        case queryOffset(TransferURL)
        /// The body from an offset on.
        case append(TransferURL, from: Int64)
        /// A part of the body, by its number.
        case part(TransferURL, number: Int)
        /// The list of all parts, which completes the upload.
        case completion(TransferURL)

        /// `true` if the request has a body.
        var hasBody: Bool {
            switch self {
            case .request, .append, .part, .completion: true
            case .create, .queryOffset: false
            }
        }

        /// `true` if the response to the request may name an upload resource.
        var isCreation: Bool { self == .request || self == .create }
    }

    /// Consequence of a response.
    enum Action: Equatable {
        /// Send the next request of this attempt.
        case perform(Step)
        /// Deliver the response as that of the upload.
        case deliver
        /// End the attempt as for an upload without this protocol.
        case endAttempt
        /// End the attempt; another one may follow.
        case retry(TransferError, after: Duration?)
        /// End the upload.
        case fail(TransferError)
    }

    /// Returns the URL of a stored resource if it belongs to this body and the rules allow it.
    static func url(of resource: UploadResource, settings: Settings) -> TransferURL? {
        // The URL was valid when it was stored; one from a damaged journal is ignored.
        guard [.resumable, .tus].contains(resource.uploadProtocol),
            resource.size.map({ $0.rawValue == settings.size }) ?? true,
            let url = try? TransferURL(resource.url), !url.isFile,
            (try? RedirectRules.check(url, against: settings.rules.allowed)) != nil
        else { return nil }
        return url
    }

    /// Settings of an upload.
    struct Settings {
        /// The protocol; ``UploadProtocol/plain`` has one step.
        var uploadProtocol: UploadProtocol
        /// Size of the body in bytes.
        var size: Int64
        /// `true` if the body may be sent again from its first byte even though the server may have processed it.
        var isRepeatedSafely = false
        /// `true` if the request is sent again after a response with a transient status.
        var repeatsTransientAnswers = false
        /// `true` if such responses end the upload, also at an upload resource.
        var acceptsTransientResponses = false
        /// `true` if the stored resource is updated before the last bytes are sent, which wait for that.
        var knowsLastBytes = false
        /// Rules for the URL of an upload resource.
        var rules = RedirectRules()
    }
}
