public import Foundation
import FoundationNetworking
import StageControl
import StageModel

extension URLSessionConfiguration {
    /// A protocol by which uploads resume.
    ///
    /// Not of Apple's class.
    public enum UploadProtocol: String, CaseIterable, Sendable {
        /// None: an upload that breaks off begins again at its first byte.
        case plain
        /// Resumable uploads of HTTP (draft-ietf-httpbis-resumable-upload, interop version 6), which Apple's
        /// `NIOResumableUpload` speaks, too.
        ///
        /// The header of an upload has two more fields, which say so. A server that does not know them answers as if
        /// they were not there, and is sent no other request.
        case resumable
        /// tus 1.0, which the servers of the session have to speak: the URL of a request creates the upload.
        ///
        /// The upload ends with the answer to its last part, which has no body. Metadata is a field of the request
        /// (`Upload-Metadata`).
        case tus
    }
}

extension URLSession {
    /// Requests that the application has had signed in advance to upload one file in parts, as the multipart uploads of
    /// S3 and of servers that speak its protocol.
    ///
    /// Not of Apple's class. The requests are signed for as long as the upload may take: one that has expired is answered
    /// with an error status (403), which is the task's answer.
    public struct PresignedParts: Hashable, Sendable {
        /// A part of the file.
        public struct Part: Hashable, Sendable {
            /// The URL that takes the part by `PUT` (UploadPart).
            public var url: URL
            /// The bytes of the part, at least one; S3 asks for 5 MiB at least of all parts but the last.
            public var size: Int64

            /// Creates a part.
            public init(url: URL, size: Int64) { (self.url, self.size) = (url, size) }
        }

        /// The parts in their order, numbered from 1: at most 1,000, whose URLs have 896 KiB together.
        public var parts: [Part]
        /// The URL that completes the upload by `POST` (CompleteMultipartUpload), whose answer is the task's.
        public var completionURL: URL
        /// The URL that forgets the parts by `DELETE` (AbortMultipartUpload); `nil` for none.
        ///
        /// It has the origin of ``completionURL``, and is used, as far as the server can be reached, when the task is
        /// cancelled or its time is over.
        public var abortURL: URL?

        /// Creates the requests of an upload.
        public init(parts: [Part], completionURL: URL, abortURL: URL? = nil) {
            (self.parts, self.completionURL, self.abortURL) = (parts, completionURL, abortURL)
        }
    }

    /// Creates an upload of a file in presigned parts, suspended.
    ///
    /// The parts have to be all of the file. The daemon takes a copy of it, which must stay as it is until then: see
    /// ``URLSessionTask/isStored``. It sends the parts one after the other, each again after a failure that may pass, and
    /// goes on with the first one that was not acknowledged after the end of the application, of the daemon or of the
    /// machine. The task's request and answer have the URL of the completion without its query, which is a secret.
    ///
    /// Not of Apple's class.
    public func uploadTask(
        withPresignedParts parts: PresignedParts,
        fromFile file: URL
    ) -> URLSessionUploadTask {
        make([Draft(parts: parts, file: file, rules: configuration)]) {
            URLSessionUploadTask($0, session: self)
        }[0]
    }
}

extension Draft {
    /// Drafts an upload in presigned parts.
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
