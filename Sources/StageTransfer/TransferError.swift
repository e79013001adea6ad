public import StageModel
public import StageSystem
public import SystemPackage

/// Error of a transfer.
///
/// The text of a URL never contains a user's name or password.
@nonexhaustive
public indirect enum TransferError: Error, Equatable, Sendable {
    /// The server could not be reached, or the connection broke; `detail` says how, and names host and
    /// port where the connection failed.
    case unreachable(url: String, ConnectionFault = .lost, detail: String)

    /// The server responded with an unsuccessful status; `retryAfter` is the delay that it asks for, if any.
    case refused(url: String, status: Int, retryAfter: Duration? = nil)

    /// A captive portal responded with a web page instead of the server: `answeredBy` is its URL.
    case captivePortal(url: String, answeredBy: String)

    /// The content has another size than expected; `actual` is `nil` if the server did not announce it and sent more
    /// than `expected`.
    ///
    /// For a file that became shorter during its upload, `url` is its path.
    case wrongSize(url: String, expected: ByteCount, actual: ByteCount?)

    /// The content has the expected size but fails verification; the digests are `nil` if only a part was verified.
    case wrongDigest(url: String, DigestMismatch? = nil)

    /// The URL, or its response, is not accepted.
    case unacceptable(url: String, Unacceptable)

    /// The certificate of the server, or of the proxy, could not be verified; `detail` says why.
    case untrusted(url: String, CertificateFault, detail: String)

    /// The file system that contains `path` is full.
    case outOfSpace(FilePath)

    /// Another operation on the file system failed, except reading the file of a file URL.
    case storage(FileError)

    /// The task was cancelled; the download can be resumed.
    case cancelled

    /// Fault of a connection to a server.
    @nonexhaustive
    public enum ConnectionFault: Equatable, Sendable {
        /// The name of the host could not be resolved.
        case nameLookup
        /// This machine has no route to the address, or its network is down.
        case noRoute
        /// The connection could not be established for another reason.
        case connect
        /// The TLS handshake failed, for another reason than the server's certificate.
        case handshake
        /// Nothing was transferred within the time limit.
        case timeout
        /// The connection broke before the response was complete, or the response does not tell whether the server
        /// processed the request.
        case lost
        /// The fault is at the proxy, or its setting is not valid, so the server was not reached.
        indirect case proxy(ConnectionFault)
    }

    /// Reason why a URL or a response is not accepted.
    @nonexhaustive
    public enum Unacceptable: Equatable, Sendable {
        /// The text is not an absolute http, https or file URL.
        case url
        /// URL parsers disagree about the host.
        case host
        /// There is no usable URL.
        case noMirror
        /// The file of a file URL cannot be read.
        case file(FileError)
        /// The host is not among the allowed domains.
        case domain(String)
        /// The server is on this machine or its link, where the request is not allowed.
        case localAddress
        /// A redirect leads to a URL that is not allowed.
        case redirect(to: String)
        /// There were more redirects than this.
        case redirects(limit: Int)
        /// The server does not support range requests.
        case ranges
        /// The body has a content coding that was not requested.
        case contentEncoding(String)
        /// The body has an unknown content coding, or cannot be decoded.
        case undecodable(String)
        /// The response violates HTTP.
        case answer(String)
        /// The content exceeds the limit.
        case size(limit: ByteCount)
        /// The request itself violates HTTP.
        case request(String)
        /// libcurl lacks a required feature.
        case library(String)
    }

    /// Fault of a server's certificate.
    @nonexhaustive
    public enum CertificateFault: Equatable, Sendable {
        /// The certificate is not valid yet: often the clock of this machine is wrong.
        case notYetValid
        /// The certificate has expired, or the clock of this machine is wrong.
        case expired
        /// No trusted authority has signed the certificate; it may be self-signed.
        case unknownAuthority
        /// The certificate is for another host.
        case otherHost
        /// The certificate could not be verified, since the file of trusted authorities cannot be loaded.
        case unloadableAuthorities
        /// The certificate could not be verified for another reason.
        case unverified
    }
}

extension TransferError {
    /// Advice about when to retry.
    @nonexhaustive
    public enum RetryAdvice: Equatable, Sendable {
        /// Retry soon: the failure of the network or the server is temporary.
        case soon
        /// Retry after a person or the publisher has corrected the cause.
        case afterCorrection
        /// Do not retry this request.
        case never
    }

    /// Advice about when a retry could succeed.
    public var retryAdvice: RetryAdvice {
        switch self {
        case .unreachable, .cancelled: .soon
        case .refused(_, let status, _): Self.advice(forStatus: status)
        case .captivePortal, .wrongSize, .wrongDigest, .untrusted, .outOfSpace,
            .unacceptable(_, .file):
            .afterCorrection
        case .storage, .unacceptable: .never
        }
    }

    /// `true` if the same request may succeed soon without intervention.
    public var isWorthRetrying: Bool { retryAdvice == .soon }

    private static func advice(forStatus status: Int) -> RetryAdvice {
        switch status {
        case _ where ResponseSummary.isTransient(status): .soon
        case 401, 403, 404, 407, 410: .afterCorrection
        default: .never
        }
    }

    /// Wraps a file system error, distinguishing a full disk from others.
    init(_ error: FileError) {
        self = error.isOutOfSpace ? .outOfSpace(error.path) : .storage(error)
    }

    /// Wraps the error of reading the file of a file URL, unless a limit of this system is the cause.
    init(reading source: TransferURL, _ error: FileError) {
        self =
            error.isRefusedByLimit
            ? .storage(error) : .unacceptable(url: source.display, .file(error))
    }

    /// `true` if the failure of a request for a range may be due to the range.
    var mayConcernRange: Bool {
        switch self {
        case .unreachable: true
        // An overloaded server refuses any request.
        case .refused(_, let status, _): ![429, 503].contains(status)
        default: false
        }
    }

    /// `true` if the failure is evidence against the host, not only against the resource.
    var blamesHost: Bool {
        switch self {
        case .unreachable, .captivePortal, .wrongSize, .wrongDigest, .untrusted: true
        case .refused(_, let status, _): status >= 500 || status == 429 || status == 511
        default: false
        }
    }
}

extension TransferError: CustomStringConvertible {
    /// Reason, as a sentence fragment for people.
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
        case .captivePortal(let url, let answerer) where url == answerer:
            "'\(url.forDisplay())' was answered with a web page: a login page intercepted the download, or the "
                + "URL is wrong"
        case .captivePortal(let url, let answerer):
            "a login page intercepted the download of '\(url.forDisplay())': "
                + "'\(answerer.forDisplay())' answered"
        case .wrongSize(let url, let expected, let actual):
            "expected \(expected.rawValue.quantity(of: "byte")) from '\(url.forDisplay())', found "
                + (actual.map { "\($0.rawValue)" } ?? "more")
        case .wrongDigest(let url, nil):
            "the content from '\(url.forDisplay())' is not the expected one"
        case .wrongDigest(let url, let digests?):
            "the content from '\(url.forDisplay())' is not the expected one: expected the SHA-256 digest "
                + "\(digests.expected), found \(digests.found.map { "\($0)" } ?? "fewer bytes")"
        case .unacceptable(let url, let reason):
            reason.description(of: url.forDisplay())
        case .untrusted(let url, _, let detail):
            "'\(url.forDisplay())' cannot be trusted: \(detail.forDisplay())"
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
        case .file(let error): "\(error)"
        case .domain(let host): "'\(url)' is on '\(host)', which is none of the allowed domains"
        case .localAddress:
            "'\(url)' is on this machine or its link, where requests are not allowed"
        case .redirect(let target):
            "'\(url)' redirects to '\(target.forDisplay())', which is not allowed"
        case .redirects(let limit):
            "'\(url)' leads to more than \(limit.quantity(of: "redirect"))"
        case .ranges: "the server of '\(url)' does not support range requests"
        case .contentEncoding(let name):
            "'\(url)' was sent in the encoding '\(name.forDisplay())', which was not requested"
        case .undecodable(let detail):
            "'\(url)' sent content that cannot be decoded: \(detail.forDisplay())"
        case .answer(let detail): "'\(url)' sent an invalid response: \(detail.forDisplay())"
        case .request(let detail): "the request to '\(url)' is invalid: \(detail.forDisplay())"
        case .size(let limit): "'\(url)' is larger than \(limit.rawValue.quantity(of: "byte"))"
        case .library(let detail):
            "libcurl cannot send a request to '\(url)': \(detail.forDisplay())"
        }
    }
}

extension TransferError.CertificateFault: CustomStringConvertible {
    /// Fault, as a predicate to the certificate.
    public var description: String {
        switch self {
        case .notYetValid: "is not valid yet by this machine's clock"
        case .expired: "has expired by this machine's clock"
        case .unknownAuthority: "is not signed by an authority that this machine trusts"
        case .otherHost: "is for another host"
        case .unloadableAuthorities:
            "cannot be verified, since the trusted authorities cannot be loaded"
        case .unverified: "cannot be verified"
        }
    }
}
