import StageModel

/// What a request may be made of, before anything is sent.
enum RequestRules {
    /// Checks the parts of a download that go over the wire as they are.
    static func check(_ request: DownloadRequest) throws(TransferError) {
        let url = request.mirrors.first ?? ""
        try check(request.fields, url)
        guard isToken(request.method), request.method == request.method.uppercased(),
            request.method != "CONNECT"
        else {
            throw refusal(url, "'\(request.method)' is no method to download with")
        }
    }

    /// Checks the parts of an upload that go over the wire as they are.
    static func check(_ request: UploadRequest) throws(TransferError) {
        try check(request.fields, request.url)
        // What frames the body is the engine's: two opinions of it are how requests are smuggled
        // (RFC 9112, section 11.2).
        for line in request.fields where framing.contains(name(of: line)) {
            throw refusal(request.url, "the field '\(name(of: line))' is not the caller's to give")
        }
    }

    /// Checks the parts of a streamed request that go over the wire as they are.
    static func check(_ request: StreamedRequest) throws(TransferError) {
        try check(request.fields, request.url)
        for line in request.fields where framing.contains(name(of: line)) {
            throw refusal(request.url, "the field '\(name(of: line))' is not the caller's to give")
        }
        guard isToken(request.method), request.method != "CONNECT" else {
            throw refusal(request.url, "'\(request.method)' is no method of a request")
        }
    }

    /// Whether a server acts once on requests of a method, however often it gets them (RFC 9110, section 9.2.2).
    static func isIdempotent(_ method: String) -> Bool {
        ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"].contains(method)
    }

    /// What says that a request has no body, for the methods that could have one (RFC 9110, section
    /// 8.6).
    static func fieldsWithoutBody(of method: String) -> [String] {
        ["POST", "PUT", "PATCH"].contains(method) ? ["Content-Length: 0"] : []
    }

    private static func check(_ fields: [String], _ url: String) throws(TransferError) {
        for line in fields {
            guard !line.utf8.contains(where: { $0 < 0x20 && $0 != 0x09 || $0 == 0x7F }) else {
                throw refusal(url, "a header field holds a control character")
            }
            // libcurl takes a semicolon for the end of a name without a value.
            guard isToken(name(of: line)) else {
                throw refusal(url, "a header field has no name")
            }
        }
    }

    private static func refusal(_ url: String, _ detail: String) -> TransferError {
        // A text that is no URL is refused as such later.
        .unacceptable(url: (try? TransferURL(url))?.display ?? url.withoutUser, .request(detail))
    }

    private static func name(of line: String) -> String {
        line.prefix { $0 != ":" && $0 != ";" }.lowercased()
    }

    private static let framing: Set<String> = ["content-length", "expect", "transfer-encoding"]

    /// Whether the text is a token (RFC 9110, section 5.6.2).
    private static func isToken(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !delimiters.contains($0) }
    }

    private static let delimiters = Array("\"(),/:;<=>?@[\\]{}".utf8)
}
