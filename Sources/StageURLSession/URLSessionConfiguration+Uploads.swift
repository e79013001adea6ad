public import Foundation
import FoundationNetworking
import StageControl
import StageModel

extension URLSessionConfiguration {
    /// Protocol by which uploads are resumed.
    ///
    /// Not part of Apple's class.
    @nonexhaustive
    public enum UploadProtocol: String, CaseIterable, Sendable {
        /// None: an interrupted upload starts again at its first byte.
        case plain
        /// Resumable uploads of HTTP (draft-ietf-httpbis-resumable-upload, interop version 6), which Apple's
        /// `NIOResumableUpload` also implements.
        ///
        /// Two more header fields of an upload announce the protocol. A server without support for it responds as if
        /// they were absent, and receives no other request.
        case resumable
        /// tus 1.0, which the servers of the session must support: the URL of a request creates the upload.
        ///
        /// The upload ends with the response to its last part, which has no body. The field `Upload-Metadata` of the
        /// request has the metadata.
        case tus
    }
}

extension URLSession {
    /// Presigned requests that upload one file in parts, as multipart uploads of S3 and compatible servers.
    ///
    /// Not part of Apple's class. The requests must be signed for as long as the upload may take: the server responds
    /// to an expired one with an error status (403), which is the task's response.
    public struct PresignedParts: Hashable, Sendable {
        /// A part of the file.
        public struct Part: Hashable, Sendable {
            /// URL that receives the part by `PUT` (UploadPart).
            public var url: URL
            /// Size of the part, at least one byte; S3 requires at least 5 MiB for all parts but the last.
            public var size: Int64

            /// Creates a part.
            public init(url: URL, size: Int64) { (self.url, self.size) = (url, size) }
        }

        /// The parts in order, numbered from 1: at most 1,000, with at most 896 KiB of URLs.
        public var parts: [Part]
        /// URL that completes the upload by `POST` (CompleteMultipartUpload); the response to it is the task's.
        public var completionURL: URL
        /// URL that deletes the parts by `DELETE` (AbortMultipartUpload); `nil` for none.
        ///
        /// It has the origin of ``completionURL``, and is used, if the server can be reached, when the task is
        /// cancelled or its time limit has passed.
        public var abortURL: URL?

        /// Creates the requests of an upload.
        public init(parts: [Part], completionURL: URL, abortURL: URL? = nil) {
            (self.parts, self.completionURL, self.abortURL) = (parts, completionURL, abortURL)
        }
    }

    /// Creates a suspended upload task for a file in presigned parts.
    ///
    /// The sizes of the parts must add up to that of the file. The daemon copies the file, which must not change
    /// until then: see ``URLSessionTask/isStored``. It sends the parts one after the other, repeats a part after a
    /// temporary failure, and continues with the first unacknowledged one after a restart of the application, of the
    /// daemon or of the machine. The task's request and response have the URL of the completion without its query,
    /// which is a secret.
    ///
    /// Not part of Apple's class.
    public func uploadTask(
        withPresignedParts parts: PresignedParts,
        fromFile file: URL
    ) -> URLSessionUploadTask {
        make([TaskSpecification(parts: parts, file: file, rules: rules)]) {
            URLSessionUploadTask($0, session: self)
        }[0]
    }
}

extension TaskSpecification {
    /// Creates a request for an upload in presigned parts.
    fileprivate init(
        parts: URLSession.PresignedParts,
        file: URL,
        rules: URLSessionConfiguration
    ) {
        var components = URLComponents(url: parts.completionURL, resolvingAgainstBaseURL: true)
        components?.query = nil
        components?.fragment = nil
        var original = URLRequest(url: components?.url ?? parts.completionURL)
        original.httpMethod = "POST"
        self.init(upload: original, file: file, rules: rules)
        request.parts = UploadParts(
            parts: parts.parts.map { part in
                UploadParts.Part(url: part.url.absoluteString, size: ByteCount(max(part.size, 0)))
            },
            completionURL: parts.completionURL.absoluteString,
            abortURL: parts.abortURL?.absoluteString
        )
    }
}
