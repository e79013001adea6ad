public import Foundation
public import FoundationNetworking
import StageControl
import StageModel

/// Known properties of a download's content, for which Apple's `URLRequest` has no members.
///
/// A download whose content does not match fails, and delivers no file.
public struct DownloadContent: Hashable, Sendable {
    /// Exact size in bytes.
    public var size: Int64?
    /// The SHA-256 digest, as 64 hexadecimal digits.
    public var sha256: String?
    /// Further URLs of the same content, which are tried in turn; they require a digest.
    public var mirrors: [URL]

    /// Creates a description; `nil` stands for an unknown property.
    public init(size: Int64? = nil, sha256: String? = nil, mirrors: [URL] = []) {
        self.size = size
        self.sha256 = sha256
        self.mirrors = mirrors
    }
}

extension URLSession {
    /// Creates a suspended download task whose content is identified by its size or digest.
    ///
    /// Not part of Apple's class.
    public func downloadTask(
        with request: URLRequest,
        content: DownloadContent
    ) -> URLSessionDownloadTask {
        var specification = TaskSpecification(download: request, rules: rules)
        if let size = content.size {
            specification.request.size = ByteCount(size)
            if size < 0 {
                let reason = "expected a number of bytes, found \(size)"
                specification.problem = URLError(.unsupportedURL, reason: reason)
            }
        }
        specification.request.sha256 = content.sha256
        // An error page is not the expected content.
        specification.request.acceptsErrorResponses = nil
        let mirrors = content.mirrors.map(\.absoluteString)
        specification.request.mirrors = mirrors.isEmpty ? nil : mirrors
        return make([specification]) { URLSessionDownloadTask($0, session: self) }[0]
    }
}
