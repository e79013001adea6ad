import StageModel

/// Checks that a request must pass before it is sent.
package enum RequestRules {
    /// Checks the fields and the method of a download, which are sent verbatim.
    static func check(_ request: DownloadRequest) throws(TransferError) {
        let url = request.mirrors.first ?? ""
        try check(request.fields, of: url)
        guard request.method.isHTTPToken, request.method == request.method.uppercased(),
            request.method != "CONNECT"
        else {
            throw refusal(of: url, "the method '\(request.method)' cannot be used for a download")
        }
    }

    /// Checks the header fields of an upload, which are sent verbatim.
    static func check(_ request: UploadRequest) throws(TransferError) {
        try check(request.fields, of: request.url)
        try checkFraming(of: request.fields, url: request.url)
    }

    /// Checks the fields and the method of a streamed request, which are sent verbatim.
    static func check(_ request: StreamedRequest) throws(TransferError) {
        try check(request.fields, of: request.url)
        try checkFraming(of: request.fields, url: request.url)
        guard request.method.isHTTPToken, request.method != "CONNECT" else {
            throw refusal(of: request.url, "'\(request.method)' is not a method of a request")
        }
    }

    /// Returns whether requests of a method are idempotent (RFC 9110, section 9.2.2).
    static func isIdempotent(_ method: String) -> Bool {
        ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"].contains(method)
    }

    /// Returns the fields that declare an empty body, for the methods that could have one (RFC 9110, section 8.6).
    static func fieldsWithoutBody(of method: String) -> [String] {
        ["POST", "PUT", "PATCH"].contains(method) ? ["Content-Length: 0"] : []
    }

    private static func check(_ fields: [String], of url: String) throws(TransferError) {
        for line in fields {
            guard line.isHTTPFieldValue else {
                throw refusal(of: url, "a header field has a control character")
            }
            guard name(of: line).isHTTPToken else {
                throw refusal(of: url, "a header field has no name")
            }
        }
    }

    /// Checks that no field frames the body.
    ///
    /// The engine does: two conflicting framings allow request smuggling (RFC 9112, section 11.2).
    private static func checkFraming(of fields: [String], url: String) throws(TransferError) {
        for line in fields where framing.contains(name(of: line)) {
            throw refusal(of: url, "the field '\(name(of: line))' is reserved for the engine")
        }
    }

    private static func refusal(of url: String, _ detail: String) -> TransferError {
        // Text that is not a URL is refused as such later.
        .unacceptable(url: (try? TransferURL(url))?.display ?? url.withoutUser, .request(detail))
    }

    /// Returns the name of a field line in lower case.
    ///
    /// libcurl takes a semicolon for the end of a name without a value.
    static func name(of line: String) -> String {
        let name = line.utf8.prefix { $0 != UInt8(ascii: ":") && $0 != UInt8(ascii: ";") }
        return Substring(name).lowercased()
    }

    /// Names, in lower case, of the fields that frame a body, which the engine sets.
    package static let framing: Set<String> = ["content-length", "expect", "transfer-encoding"]
}
