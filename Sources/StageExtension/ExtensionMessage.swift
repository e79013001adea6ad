import StageModel
public import SystemPackage

/// Message of a host to a downloader extension: one JSON object on standard input, one per process.
@nonexhaustive
public enum ExtensionMessage: Hashable, Sendable {
    /// Protocol version of this code, sent as the member `protocol`.
    public static let protocolVersion = 1

    /// Asks what to download.
    case downloads(ExtensionRequest)
    /// Reports a completed download, with its file or the directory of the pack.
    case finished(ExtensionRequest, ExtensionDownload, file: FilePath)
    /// Reports a failed download, and asks what to download instead.
    case failed(ExtensionRequest, ExtensionDownload, ExtensionFailure)
    /// Asks how to answer an authentication challenge.
    case challenge(ExtensionRequest, ExtensionDownload, ExtensionChallenge)

    /// Request that the message belongs to.
    public var request: ExtensionRequest {
        switch self {
        case .downloads(let request), .finished(let request, _, _), .failed(let request, _, _),
            .challenge(let request, _, _):
            request
        }
    }

    /// Values of the member `kind`.
    enum Kind: String, CaseIterable {
        case downloads
        case finished
        case failed
        case challenge
    }

    /// Value of the member `kind`.
    var kind: Kind {
        switch self {
        case .downloads: .downloads
        case .finished: .finished
        case .failed: .failed
        case .challenge: .challenge
        }
    }
}

/// Reason why a download failed.
public struct ExtensionFailure: Hashable, Sendable {
    /// Code of Apple's `BAErrorCode`.
    public var code: Int
    /// The reason, as a sentence fragment.
    public var message: String

    /// Creates a failure from its code and message.
    public init(code: Int, message: String) {
        self.code = code
        self.message = message
    }
}

/// Authentication challenge of a server.
public struct ExtensionChallenge: Hashable, Sendable {
    /// Authentication method: `basic`, `digest` or `serverTrust`.
    public var method: String
    /// Host name of the server.
    public var host: String
    /// Realm, in the server's words; `nil` if there is none.
    public var realm: String?

    /// Creates a challenge.
    public init(method: String, host: String, realm: String? = nil) {
        self.method = method
        self.host = host
        self.realm = realm
    }
}

/// Answer of a downloader extension: one JSON object on standard output, before it exits with status 0.
@nonexhaustive
public enum ExtensionAnswer: Hashable, Sendable {
    /// Downloads requested in answer to ``ExtensionMessage/downloads(_:)`` or ``ExtensionMessage/failed(_:_:_:)``.
    case downloads([ExtensionDownload])
    /// Empty answer to ``ExtensionMessage/finished(_:_:file:)``.
    case nothing
    /// Answer to an authentication challenge.
    case challenge(ExtensionChallengeAnswer)
}

/// Answer to an authentication challenge.
///
/// Named like Apple's `URLSession.AuthChallengeDisposition`.
@nonexhaustive
public enum ExtensionChallengeAnswer: Hashable, Sendable {
    /// Proceed as if there were no extension.
    case performDefaultHandling
    /// Use this name and password.
    case useCredential(user: String, password: String)
    /// Cancel the request, so that the download fails.
    case cancelAuthenticationChallenge
    /// Reject this protection space; another one may be tried.
    case rejectProtectionSpace
}
