public import StageModel

/// A file to send to a server.
public struct UploadRequest: Sendable {
    /// What a server is asked to do with a body.
    public enum Method: String, Sendable {
        /// Process it.
        case post = "POST"
        /// Keep it under the URL.
        case put = "PUT"
        /// Change what is kept under the URL by it.
        case patch = "PATCH"
    }

    /// The absolute http or https URL that gets the body.
    public var url: String
    /// What the server is asked to do with it.
    public var method = Method.post
    /// Further header fields, each as one line, for the server that is asked first: where a redirect
    /// leads to another origin they are left out.
    ///
    /// `Content-Type` is among them or nowhere. What frames the body (`Content-Length`, `Expect`,
    /// `Transfer-Encoding`) is not the caller's to give.
    public var fields: [String] = []
    /// Where the body may go, redirects included; `nil` stands for everywhere.
    public var allowedDomains: AllowedDomains?
    /// Orders transfers that wait for a connection: higher comes first.
    public var priority = 0
    /// After how long without a byte in either direction an attempt fails; `nil` stands for the
    /// engine's ``StallRule``.
    public var requestTimeout: Duration?
    /// Whether the server acts on the request once, however often it gets it (RFC 9110, section 9.2.2); `nil`
    /// leaves it to the method, of which PUT is.
    ///
    /// A request that is not idempotent is sent again only if no answer came and not all of the body was sent. A
    /// `PUT` is sent again whenever no answer came; with `true` here, any request is, and after the answers 408,
    /// 425, 429, 500, 502, 503 and 504, too.
    public var isIdempotent: Bool?
    /// Whether those answers end the upload, too, even where ``isIdempotent`` is true, and so does a 423 of an upload
    /// resource, which leads to another attempt otherwise.
    public var acceptsTransientResponses = false
    /// Called before the last bytes of the body are sent, which wait for it, where they are not to be sent twice:
    /// for a client that remembers that beyond its own end.
    ///
    /// An error ends the upload before the last bytes are sent.
    public var willComplete: (@Sendable () async throws(TransferError) -> Void)?
    /// The protocol by which an upload that breaks off is resumed; ``resource`` is spoken to in its own.
    public var uploadProtocol = UploadProtocol.plain
    /// The presigned requests by which the body is sent in parts, instead of the one of ``url`` and by no other protocol.
    ///
    /// ``url`` then stands for the upload in messages, and its origin alone gets ``fields``. Redirects, domains and
    /// repetition are as for other requests; parts and their completion are sent again after any failure that may pass,
    /// and after the answers of ``isIdempotent``.
    public var parts: UploadParts?
    /// The resource at which an earlier upload of the body broke off; `nil` has it begin at its first byte.
    public var resource: UploadResource?
    /// Called with the resource at which the upload resumes from now on, `nil` for none: for a client that remembers
    /// that beyond its own end.
    ///
    /// The body waits for it. After it ``willComplete`` is not called: the resource says whether all of the body may
    /// have been sent. An error ends the upload.
    public var keepResource: (@Sendable (UploadResource?) async throws(TransferError) -> Void)?
    /// Whether a server that does not speak TLS 1.3 is refused; else 1.2 will do.
    public var requiresNewestTLS = false
    /// How many times earlier uploads of the body failed, from where waits go on growing.
    ///
    /// They do not count as attempts of this one.
    public var failuresBefore = 0
    /// Hears what happens, in order, on the engine's thread: it must return at once.
    public var report: @Sendable (TransferEvent) -> Void

    /// Creates a request that posts to a URL.
    public init(url: String, report: @escaping @Sendable (TransferEvent) -> Void = { _ in }) {
        self.url = url
        self.report = report
    }
}

extension UploadRequest {
    /// Whether the body may be sent again after any failure that may pass.
    var isRepeatedSafely: Bool { parts != nil || (isIdempotent ?? (method == .put)) }

    /// Whether the request is sent again after answers of a status that may pass.
    var repeatsTransientAnswers: Bool { (isIdempotent ?? false) && !acceptsTransientResponses }

    /// The protocol that the engine speaks: none where the caller's fields are of one.
    var spokenProtocol: UploadProtocol {
        if parts != nil { return .presignedParts }
        return fields.contains { Self.protocolFields.contains(Self.name(of: $0)) }
            ? .plain : uploadProtocol
    }

    /// The fields that a request at an upload resource has, too: those that are not of the body, or a condition.
    var fieldsOfResource: [String] {
        fields.filter { field in
            let name = Self.name(of: field)
            return !["content-", "upload-", "tus-", "if-"].contains { name.hasPrefix($0) }
                && !Self.fieldsOfBody.contains(name)
        }
    }

    /// The fields that the creation of an upload has without its body.
    var fieldsOfCreation: [String] {
        fieldsOfResource + fields.filter { Self.name(of: $0) == "upload-metadata" }
    }

    private static func name(of field: String) -> String {
        field.prefix { $0 != ":" && $0 != ";" }.lowercased()
    }

    /// Fields of other names that are about the body, or the request as a whole.
    private static let fieldsOfBody: Set<String> = [
        "digest", "repr-digest", "idempotency-key", "x-http-method-override", "range",
    ]

    private static let protocolFields: Set<String> = [
        "upload-draft-interop-version", "upload-complete", "upload-offset", "upload-length",
        "tus-resumable",
    ]
}

/// What a server answered to an upload, and what that cost.
public struct UploadReceipt: Equatable, Sendable {
    /// The answer, whatever its status; no redirect that asks for the body to be sent elsewhere.
    public var response: ResponseSummary
    /// The first mebibyte of the answer's body.
    public var body: [UInt8]
    /// Whether ``body`` is all of it: it is not where the body is longer, or where the connection did
    /// not last.
    ///
    /// Either way the server has taken what was sent, so that sending it once more would be wrong.
    public var isBodyComplete: Bool
    /// The bytes of the body that were handed to the network, failed attempts included.
    ///
    /// A server may answer before it has the whole body, and need no more of it.
    public var bytesSent: ByteCount
    /// How many attempts there were.
    public var attempts: Int
    /// How long it took.
    public var duration: Duration
}
