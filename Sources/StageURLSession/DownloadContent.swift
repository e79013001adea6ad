public import Foundation
public import FoundationNetworking
import StageControl
import StageModel

/// What is known of a download's content before it is there, which Apple's `URLRequest` has no place for.
///
/// A download whose content turns out to be another fails, and no file of it is handed over.
public struct DownloadContent: Hashable, Sendable {
    /// The exact number of bytes.
    public var size: Int64?
    /// The SHA-256 digest, as 64 hexadecimal digits.
    public var sha256: String?
    /// Further places of the same content, which are tried in turn; they need a digest.
    public var mirrors: [URL]

    /// Creates a description; what is not known is `nil`.
    public init(size: Int64? = nil, sha256: String? = nil, mirrors: [URL] = []) {
        self.size = size
        self.sha256 = sha256
        self.mirrors = mirrors
    }
}

extension URLSession {
    /// Creates a download, suspended, whose content is known by its size or digest.
    ///
    /// Not of Apple's class.
    public func downloadTask(
        with request: URLRequest,
        content: DownloadContent
    ) -> URLSessionDownloadTask {
        var draft = Draft(download: request, rules: configuration)
        if let size = content.size {
            draft.request.size = ByteCount(size)
            if size < 0 {
                let reason = "expected a number of bytes, found \(size)"
                draft.problem = URLError(.unsupportedURL, reason: reason)
            }
        }
        draft.request.sha256 = content.sha256
        // The page of an error is not the content that is known.
        draft.request.acceptsErrorResponses = nil
        let mirrors = content.mirrors.map(\.absoluteString)
        draft.request.mirrors = mirrors.isEmpty ? nil : mirrors
        return make([draft]) { URLSessionDownloadTask($0, session: self) }[0]
    }
}
