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

        /// Whether the request has a body.
        var hasBody: Bool {
            switch self {
            case .request, .append: true
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
