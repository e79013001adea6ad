import CCurl
import StageModel

/// An absolute URL that libcurl and ``URLReference``, which makes all decisions, parse alike: the URL that was
/// checked is the URL that is requested.
@safe struct TransferURL: Hashable, Sendable {
    /// The whole URL.
    let text: String
    /// The URL without user name and password, for messages and records.
    let display: String
    /// `http`, `https` or `file`.
    let scheme: String
    /// Host in the canonical form of ``URLOrigin``; empty for a file.
    let host: String
    /// Port, or the scheme's default port.
    let port: String
    /// Path, percent-decoded.
    let path: String

    /// Host and port: the key for connections, limits and credentials.
    var authority: String { "\(host):\(port)" }

    /// ``display`` without the query, in which servers change signatures and other facts of a request.
    var resource: String { String(Substring(display.utf8.prefix { $0 != UInt8(ascii: "?") })) }

    /// `true` if the host is this machine, by its name or its address.
    var isLoopback: Bool { ManifestTrust.isLoopback(host) }

    /// `true` if a request to the URL may carry credentials: it is encrypted, or stays on this machine.
    var isConfidential: Bool { scheme == "https" || isLoopback }

    /// `true` for a file URL.
    var isFile: Bool { scheme == "file" }

    /// Parses an absolute URL.
    ///
    /// - Throws: ``TransferError/unacceptable(url:_:)`` if it is not http, https or file, if the two parsers
    ///   disagree, and for a file whose path is relative.
    init(_ text: String) throws(TransferError) {
        guard let url = Self(reading: text, from: nil) else {
            throw TransferError(unreadable: text)
        }
        self = url
    }

    /// Resolves a reference, such as that of a `Location` field, against this URL, without user name and password;
    /// `nil` if the result cannot be requested.
    func resolving(_ reference: String) -> TransferURL? {
        Self(reading: reference, from: text)
    }

    /// Returns whether credentials for this URL may be sent to the other one (RFC 6454, section 5).
    func hasSameOrigin(as other: TransferURL) -> Bool {
        scheme == other.scheme && authority == other.authority
    }

    /// Returns this URL with the user name and password of another one.
    func withUser(of other: TransferURL) -> TransferURL {
        let other = URLReference(other.text)
        guard !isFile, other.hasUser else { return self }
        // The text of two URLs that both parsers accept is accepted, too; otherwise the request has no credentials.
        return (try? TransferURL(URLReference(text).withUser(of: other).text)) ?? self
    }

    private init?(reading reference: String, from base: String?) {
        // A C string would end there.
        guard !reference.utf8.contains(0) else { return nil }
        guard let handle = unsafe curl_url() else { return nil }
        defer { unsafe curl_url_cleanup(handle) }
        if let base {
            guard unsafe curl_url_set(handle, CURLUPART_URL, base, 0) == CURLUE_OK else {
                return nil
            }
        }
        let flags = UInt32(CURLU_NON_SUPPORT_SCHEME) | (base == nil ? 0 : UInt32(CURLU_URLENCODE))
        guard unsafe curl_url_set(handle, CURLUPART_URL, reference, flags) == CURLUE_OK else {
            return nil
        }
        func part(_ part: CURLUPart, flags: CInt = 0) -> String? {
            var text: UnsafeMutablePointer<CChar>?
            guard unsafe curl_url_get(handle, part, &text, UInt32(flags)) == CURLUE_OK,
                let text = unsafe text
            else { return nil }
            defer { unsafe curl_free(text) }
            return unsafe String(cString: text)
        }
        let whole = part(CURLUPART_URL)
        guard unsafe curl_url_set(handle, CURLUPART_USER, nil, 0) == CURLUE_OK,
            unsafe curl_url_set(handle, CURLUPART_PASSWORD, nil, 0) == CURLUE_OK,
            unsafe curl_url_set(handle, CURLUPART_FRAGMENT, nil, 0) == CURLUE_OK,
            let plain = part(CURLUPART_URL),
            let scheme = part(CURLUPART_SCHEME),
            ["http", "https", "file"].contains(scheme)
        else { return nil }
        let path = part(CURLUPART_PATH, flags: CURLU_URLDECODE) ?? ""
        let text = base == nil ? whole ?? plain : plain
        // Without a base, callers judge the reference itself; libcurl parses the other text again.
        let readings = [URLReference(base == nil ? reference : text), URLReference(text)]
        if scheme == "file" {
            // libcurl accepts 'file:name', too, and prints it as 'file://name', which it then refuses; it prints
            // 'file:///', a directory, as 'file://(nil)'.
            guard path != "/", readings.allSatisfy({ $0.filePath == path }) else { return nil }
            (host, port) = ("", "")
        } else {
            let origin = URLOrigin(
                scheme: scheme,
                host: part(CURLUPART_HOST) ?? "",
                port: part(CURLUPART_PORT, flags: CURLU_DEFAULT_PORT) ?? ""
            )
            guard let origin, readings.allSatisfy({ $0.origin == origin }) else { return nil }
            (host, port) = (origin.host, "\(origin.port)")
        }
        self.text = text
        self.display = plain
        self.scheme = scheme
        self.path = path
    }
}

extension TransferError {
    /// Creates the error for text that is not a usable URL.
    package init(unreadable text: String) {
        let isAmbiguous = URLReference(text).hasAmbiguousHost
        self = .unacceptable(url: text.withoutUser, isAmbiguous ? .host : .url)
    }
}
