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
