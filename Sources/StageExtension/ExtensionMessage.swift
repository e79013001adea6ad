import StageModel
public import SystemPackage

/// What a host says to a downloader extension: one JSON object on standard input, once a process.
public enum ExtensionMessage: Hashable, Sendable {
    /// The version of the protocol that this code speaks, the member `protocol` of each message.
    public static let protocolVersion = 1

    /// Asks what to download.
    case downloads(ExtensionRequest)
    /// Tells that a download has ended well, and where the file is, or the directory of a pack.
    case finished(ExtensionRequest, ExtensionDownload, file: FilePath)
    /// Tells that a download has failed, and asks what to download instead.
    case failed(ExtensionRequest, ExtensionDownload, ExtensionFailure)
    /// Asks how to answer a server that wants to know who asks.
    case challenge(ExtensionRequest, ExtensionDownload, ExtensionChallenge)

    /// What all messages have.
    public var request: ExtensionRequest {
        switch self {
        case .downloads(let request), .finished(let request, _, _), .failed(let request, _, _),
            .challenge(let request, _, _):
            request
        }
    }

    /// The member `kind`.
    enum Kind: String, CaseIterable {
        case downloads
        case finished
        case failed
        case challenge
    }

    /// The member `kind` of this message.
    var kind: Kind {
        switch self {
        case .downloads: .downloads
        case .finished: .finished
        case .failed: .failed
        case .challenge: .challenge
        }
    }
}

/// Why a download failed.
public struct ExtensionFailure: Hashable, Sendable {
    /// The reason as a number, one of Apple's `BAErrorCode`.
    public var code: Int
    /// The reason as a sentence fragment.
    public var message: String

    /// Creates a failure from its code and reason.
    public init(code: Int, message: String) {
        self.code = code
        self.message = message
    }
}

/// What a server wants to know before it hands out a file.
public struct ExtensionChallenge: Hashable, Sendable {
    /// How it wants to know: `basic`, `digest` or `serverTrust`.
    public var method: String
    /// The name of the server.
    public var host: String
    /// The part of the server that asks, in the server's words; `nil` where it names none.
    public var realm: String?

    /// Creates a challenge from its parts.
    public init(method: String, host: String, realm: String? = nil) {
        self.method = method
        self.host = host
        self.realm = realm
    }
}

/// What a downloader extension says: one JSON object on standard output, before it exits with 0.
public enum ExtensionAnswer: Hashable, Sendable {
    /// What to download; the answer to ``ExtensionMessage/downloads(_:)`` and
    /// ``ExtensionMessage/failed(_:_:_:)``.
    case downloads([ExtensionDownload])
    /// Nothing; the answer to ``ExtensionMessage/finished(_:_:file:)``.
    case nothing
    /// How to answer a server.
    case challenge(ExtensionChallengeAnswer)
}

/// How a server is answered that wants to know who asks.
///
/// The names are those of Apple's `URLSession.AuthChallengeDisposition`.
public enum ExtensionChallengeAnswer: Hashable, Sendable {
    /// As if there were no extension.
    case performDefaultHandling
    /// With this name and password.
    case useCredential(user: String, password: String)
    /// Not at all: the download fails.
    case cancelAuthenticationChallenge
    /// Not for this part of the server: another way may be tried.
    case rejectProtectionSpace
}
