public import StageModel

/// Request to send a file to a server.
public struct UploadRequest: Sendable {
    /// Method of the request.
    @nonexhaustive
    public enum Method: String, Sendable {
        /// Process the body.
        case post = "POST"
        /// Store the body at the URL.
        case put = "PUT"
        /// Apply the body as a change to the resource at the URL.
        case patch = "PATCH"
    }

    /// Absolute http or https URL that receives the body.
    public var url: String
    /// Method of the request.
    public var method = Method.post
    /// Additional header fields, each as one line, for the first server: redirects to another origin drop them.
    ///
    /// They include any `Content-Type`. The engine sets the fields that frame the body (`Content-Length`, `Expect`,
    /// `Transfer-Encoding`).
    public var fields: [String] = []
    /// Hosts that may receive the body, redirects included; `nil` for all.
    public var allowedDomains: AllowedDomains?
    /// Order among transfers that wait for a connection: higher values come first.
    public var priority = 0
    /// User on whose behalf the file is uploaded, as in ``DownloadRequest``; `nil` for the process's own.
    package var user: UInt32?
    /// Time without a byte in either direction after which an attempt fails; `nil` applies the engine's
    /// ``StallRule``.
    public var requestTimeout: Duration?
    /// `true` if the server processes the request only once even when it receives it several times (RFC 9110, section
    /// 9.2.2); `nil` derives it from the method: PUT is idempotent.
    ///
    /// A request that is not idempotent is sent again only if no response came and not all of the body was sent. A
    /// `PUT` is sent again whenever no response came; with `true` here, any request is, and also after the responses
    /// 408, 425, 429, 500, 502, 503, 504 and 5xx that are not registered.
    public var isIdempotent: Bool?
    /// `true` if those responses end the upload even if ``isIdempotent`` is `true`.
    ///
    /// So does a 423 from an upload resource, which otherwise causes another attempt.
    public var acceptsTransientResponses = false
    /// Called before the last bytes of a body that must not be sent twice are sent; they wait for it.
    ///
    /// It lets a client store that fact across restarts.
    ///
    /// An error ends the upload before the last bytes are sent.
    public var willComplete: (@Sendable () async throws(TransferError) -> Void)?
    /// Protocol by which an interrupted upload is resumed; ``resource`` has its own.
    public var uploadProtocol = UploadProtocol.plain
    /// Presigned requests that send the body in parts, instead of the request to ``url`` and without another
    /// protocol.
    ///
    /// ``url`` then identifies the upload in messages, and only its origin receives ``fields``. Redirects, domains
    /// and repetition are as for other requests; parts and their completion are sent again after any temporary
    /// failure, and after the responses listed at ``isIdempotent``.
    public var parts: UploadParts?
    /// Resource at which an earlier upload of the body was interrupted; `nil` starts at the first byte.
    public var resource: UploadResource?
    /// Called with the resource at which the upload resumes from now on, or `nil` for none.
    ///
    /// It lets a client store that across restarts.
    ///
    /// The body waits for it. Once it was called, ``willComplete`` is not called: the resource records whether all of
    /// the body may have been sent. An error ends the upload.
    public var keepResource: (@Sendable (UploadResource?) async throws(TransferError) -> Void)?
    /// `true` to require TLS 1.3 instead of 1.2 or later.
    public var requiresNewestTLS = false
    /// Number of failed earlier uploads of the body; retry delays continue to grow from there.
    ///
    /// They do not count as attempts of this upload.
    public var failuresBefore = 0
    /// Receives the events of the transfer, in order, on the engine's thread; it must return at once.
    public var report: @Sendable (TransferEvent) -> Void

    /// Creates a POST request to a URL.
    public init(url: String, report: @escaping @Sendable (TransferEvent) -> Void = { _ in }) {
        self.url = url
        self.report = report
    }
}

extension UploadRequest {
    /// `true` if the body may be sent again after any temporary failure.
    var isRepeatedSafely: Bool { parts != nil || (isIdempotent ?? (method == .put)) }

    /// `true` if the request is sent again after a response with a transient status.
    var repeatsTransientAnswers: Bool { (isIdempotent ?? false) && !acceptsTransientResponses }

    /// Protocol that the engine speaks: none if the caller's own fields belong to one.
    var spokenProtocol: UploadProtocol {
        if parts != nil { return .presignedParts }
        return fields.contains { Self.protocolFields.contains(RequestRules.name(of: $0)) }
            ? .plain : uploadProtocol
    }

    /// Header fields for requests to an upload resource: the caller's without those about the body and without
    /// conditions.
    var fieldsOfResource: [String] {
        fields.filter { field in
            let name = RequestRules.name(of: field)
            return !["content-", "upload-", "tus-", "if-"].contains { name.hasPrefix($0) }
                && !Self.fieldsOfBody.contains(name)
        }
    }

    /// Header fields for the creation of an upload without its body.
    var fieldsOfCreation: [String] {
        fieldsOfResource + fields.filter { RequestRules.name(of: $0) == "upload-metadata" }
    }

    /// Fields with other names that describe the body, or the request as a whole.
    private static let fieldsOfBody: Set<String> = [
        "digest", "repr-digest", "idempotency-key", "x-http-method-override", "range",
    ]

    private static let protocolFields: Set<String> = [
        "upload-draft-interop-version", "upload-complete", "upload-offset", "upload-length",
        "tus-resumable",
    ]
}

/// Response to an upload, with its statistics.
public struct UploadReceipt: Equatable, Sendable {
    /// Response with any status, except for a redirect that asks for the body to be sent elsewhere.
    public var response: ResponseSummary
    /// First mebibyte of the response body.
    public var body: [UInt8]
    /// `true` if ``body`` is the whole response body: it is not if the body is longer, or if the connection broke.
    ///
    /// In either case the server has received the upload, so sending it again would be wrong.
    public var isBodyComplete: Bool
    /// Bytes of the body that the network accepted, failed attempts included.
    ///
    /// A server may respond before it has received the whole body, and need no more of it.
    public var bytesSent: ByteCount
    /// Number of attempts.
    public var attempts: Int
    /// Time that the upload took.
    public var duration: Duration
}
