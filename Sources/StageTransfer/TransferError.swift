public import StageModel
public import StageSystem
public import SystemPackage

/// Why content could not be brought here.
///
/// The text of a URL never holds a user's name or password.
@nonexhaustive
public indirect enum TransferError: Error, Equatable, Sendable {
    /// The server could not be reached, or the connection did not last; `detail` is in libcurl's
    /// words.
    case unreachable(url: String, ConnectionFault = .lost, detail: String)

    /// The server answered with a status that is no success; `retryAfter` is how long it asks to be
    /// left alone, where it says so.
    case refused(url: String, status: Int, retryAfter: Duration? = nil)

    /// Something between here and the server answered in its place, with a page for a person:
    /// `answeredBy` is the URL it answered at.
    case captivePortal(url: String, answeredBy: String)

    /// The content has another size than was promised; `actual` is `nil` where the server did not
    /// say and sent more than `expected`.
    ///
    /// For a file that became shorter while it was uploaded, `url` is its path.
    case wrongSize(url: String, expected: ByteCount, actual: ByteCount?)

    /// The content has the size that was promised, and is something else.
    case wrongDigest(url: String)

    /// The URL, or the answer that it gave, is one that is not taken.
    case unacceptable(url: String, Unacceptable)

    /// The server could not prove who it is.
    case untrusted(url: String, CertificateFault, detail: String)

    /// The file system that holds `path` is full.
    case outOfSpace(FilePath)

    /// The file system refused something else.
    case storage(FileError)

    /// The task was cancelled; what was received can be resumed.
    case cancelled

    /// What failed on the way to a server.
    public enum ConnectionFault: Equatable, Sendable {
        /// The name of the host, or of the proxy, could not be resolved.
        case nameLookup
        /// No connection came about.
        case connect
        /// The TLS handshake failed, for another reason than the server's certificate.
        case handshake
        /// Nothing was transferred for the time limit.
        case timeout
        /// The connection ended before the answer was complete, or the answer leaves open what became of the request.
        case lost
    }

    /// What made a URL or an answer unacceptable.
    public enum Unacceptable: Equatable, Sendable {
        /// The text is not the absolute URL of an http, https or file resource.
        case url
        /// Programs read the host in different ways.
        case host
        /// There was no URL to try.
        case noMirror
        /// The host is none of the allowed domains.
        case domain(String)
        /// It is on this machine or its link, where the request may not be made.
        case thisMachine
        /// A redirect leads where none may lead.
        case redirect(to: String)
        /// There were more redirects than this.
        case redirects(limit: Int)
        /// The server does not give parts of what it has.
        case ranges
        /// The body is encoded in a way that was not asked for.
        case contentEncoding(String)
        /// The body is encoded in a way that is not known, or cannot be decoded.
        case undecodable(String)
        /// The answer breaks the rules of HTTP.
        case answer(String)
        /// The content is larger than it may be.
        case size(limit: ByteCount)
        /// The request itself breaks the rules of HTTP.
        case request(String)
        /// libcurl does not support what is needed.
        case library(String)
    }

    /// What is wrong with the certificate of a server.
    public enum CertificateFault: Equatable, Sendable {
        /// It becomes valid later: often the clock of this machine is wrong.
        case notYetValid
        /// It was valid once: the clock may be wrong.
        case expired
        /// Nothing here vouches for it, or it names another host.
        case unverified
    }
}

extension TransferError {
    /// Says when another attempt could end differently.
    public enum RetryAdvice: Equatable, Sendable {
        /// Soon: the network or the server was at fault for a moment.
        case soon
        /// Once a person or a publisher has changed something outside.
        case later
        /// Not with this request.
        case never
    }

    /// When another attempt could end differently.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .unreachable, .cancelled: .soon
        case .refused(_, let status, _): Self.advice(forStatus: status)
        case .captivePortal, .wrongSize, .wrongDigest, .untrusted, .outOfSpace: .later
        case .storage, .unacceptable: .never
        }
    }

    /// Whether the same request may succeed soon without anybody changing anything.
    public var isWorthRetrying: Bool { retryAdvice == .soon }

    private static func advice(forStatus status: Int) -> RetryAdvice {
        switch status {
        case 408, 425, 429, 500, 502, 503, 504: .soon
        case 401, 403, 404, 407, 410: .later
        default: .never
        }
    }

    /// Turns a failed call on the file system into the error that tells the two cases apart.
    init(_ error: FileError) {
        self = error.isOutOfSpace ? .outOfSpace(error.path) : .storage(error)
    }

    /// Whether the failure speaks against the host, and not only against the one resource.
    var blamesHost: Bool {
        switch self {
        case .unreachable, .captivePortal, .wrongSize, .wrongDigest, .untrusted: true
        case .refused(_, let status, _): status >= 500 || status == 429 || status == 511
        default: false
        }
    }
}

extension TransferError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .unreachable(let url, _, let detail):
            "the request to '\(url.forDisplay())' failed: \(detail.forDisplay())"
        case .refused(let url, 407, _):
            "the proxy to '\(url.forDisplay())' requires credentials (status 407)"
        case .refused(let url, 423, _):
            "'\(url.forDisplay())' is locked by another request (status 423)"
        case .refused(let url, let status, let pause):
            "'\(url.forDisplay())' was answered with status \(status)"
                + (pause.map { "; the server asks to wait \($0.inWords)" } ?? "")
        case .captivePortal(let url, let answerer):
            "'\(url.forDisplay())' was answered with a web page by '\(answerer.forDisplay())': "
                + "the network may want a login first"
        case .wrongSize(let url, let expected, let actual):
            "expected \(expected.rawValue.quantity(of: "byte")) from '\(url.forDisplay())', found "
                + (actual.map { "\($0.rawValue)" } ?? "more")
        case .wrongDigest(let url):
            "what '\(url.forDisplay())' sends is not what was promised"
        case .unacceptable(let url, let reason):
            reason.description(of: url.forDisplay())
        case .untrusted(let url, let fault, let detail):
            "'\(url.forDisplay())' cannot be trusted: \(fault): \(detail.forDisplay())"
        case .outOfSpace(let path):
            "no space left for '\(path)'"
        case .storage(let error):
            "\(error)"
        case .cancelled:
            "the transfer was cancelled"
        }
    }
}

extension TransferError.Unacceptable {
    fileprivate func description(of url: String) -> String {
        switch self {
        case .url: "expected an absolute http, https or file URL, found '\(url)'"
        case .host:
            "the host of '\(url)' can be read in more than one way: expected ASCII letters, digits, '-', '_' and '.', "
                + "or an address such as '127.0.0.1' or '[::1]'"
        case .noMirror: "there is no URL to fetch from"
        case .domain(let host): "'\(url)' is on '\(host)', which is none of the allowed domains"
        case .thisMachine: "'\(url)' is on this machine or its link, where nothing may be asked for"
        case .redirect(let target): "'\(url)' leads to '\(target.forDisplay())', which is refused"
        case .redirects(let limit):
            "'\(url)' leads through more than \(limit.quantity(of: "redirect"))"
        case .ranges: "the server of '\(url)' does not give parts of it"
        case .contentEncoding(let name):
            "'\(url)' was sent in the encoding '\(name.forDisplay())', which was not asked for"
        case .undecodable(let detail):
            "'\(url)' sent content that cannot be decoded: \(detail.forDisplay())"
        case .answer(let detail): "'\(url)' sent an invalid answer: \(detail.forDisplay())"
        case .request(let detail): "'\(url)' cannot be asked for: \(detail.forDisplay())"
        case .size(let limit): "'\(url)' is larger than \(limit.rawValue.quantity(of: "byte"))"
        case .library(let detail):
            "libcurl cannot send a request to '\(url)': \(detail.forDisplay())"
        }
    }
}

extension TransferError.CertificateFault: CustomStringConvertible {
    /// What is wrong, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .notYetValid: "its certificate is not valid yet by this machine's clock"
        case .expired: "its certificate has expired by this machine's clock"
        case .unverified: "its certificate cannot be verified"
        }
    }
}
