import CCurl
import StageModel

/// An absolute URL that libcurl and ``URLReference``, by which everything else decides, read alike: what is judged is
/// what is asked.
@safe struct TransferURL: Hashable, Sendable {
    /// The whole URL.
    let text: String
    /// The URL without a user's name and password; for messages and records.
    let display: String
    /// `http`, `https` or `file`.
    let scheme: String
    /// The host as ``URLOrigin`` has it; empty for a file.
    let host: String
    /// The port, the scheme's own where none is given.
    let port: String
    /// The path, percent-decoded.
    let path: String

    /// The host and port: what connections, limits and memory are kept for.
    var authority: String { "\(host):\(port)" }

    /// Whether the host is this machine, by its name or its address.
    var isLoopback: Bool { ManifestTrust.isLoopback(host) }

    /// Whether what is sent there stays between this process and the server, so that it may hold a
    /// user's credentials: encrypted, or on this machine.
    var isConfidential: Bool { scheme == "https" || isLoopback }

    /// Whether the URL is a local file's.
    var isFile: Bool { scheme == "file" }

    /// Creates a URL from the text of an absolute one.
    ///
    /// - Throws: ``TransferError/unacceptable(url:_:)`` if it is not http, https or file, if the two parsers differ,
    ///   and for a file whose path is relative.
    init(_ text: String) throws(TransferError) {
        guard let url = Self(reading: text, from: nil) else {
            throw TransferError(unreadable: text)
        }
        self = url
    }

    /// Returns the URL that a reference such as a `Location` field means here, without any name or
    /// password, or `nil` if it is none that can be fetched.
    func resolving(_ reference: String) -> TransferURL? {
        Self(reading: reference, from: text)
    }

    /// Whether credentials for one may be sent to the other (RFC 6454, section 5).
    func hasSameOrigin(as other: TransferURL) -> Bool {
        scheme == other.scheme && authority == other.authority
    }

    private init?(reading reference: String, from base: String?) {
        // C would end the text there.
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
        func part(_ part: CURLUPart, _ flags: CInt = 0) -> String? {
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
        let path = part(CURLUPART_PATH, CURLU_URLDECODE) ?? ""
        let text = base == nil ? whole ?? plain : plain
        // Without a base the reference itself is what others judge; the other text is what libcurl reads again.
        let readings = [URLReference(base == nil ? reference : text), URLReference(text)]
        if scheme == "file" {
            // libcurl takes 'file:name', too, and shows it as 'file://name', which it refuses; of 'file:///',
            // a directory, it makes 'file://(nil)'.
            guard path != "/", readings.allSatisfy({ $0.filePath == path }) else { return nil }
            (host, port) = ("", "")
        } else {
            let origin = URLOrigin(
                scheme: scheme,
                host: part(CURLUPART_HOST) ?? "",
                port: part(CURLUPART_PORT, CURLU_DEFAULT_PORT) ?? ""
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
    /// The refusal of a text that is no URL to fetch from.
    package init(unreadable text: String) {
        let isAmbiguous = URLReference(text).hasAmbiguousHost
        self = .unacceptable(url: text.withoutUser, isAmbiguous ? .host : .url)
    }
}
