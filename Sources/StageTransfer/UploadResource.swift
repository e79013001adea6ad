public import StageModel

/// Protocol by which an interrupted upload is resumed.
@nonexhaustive
public enum UploadProtocol: String, CaseIterable, Sendable {
    /// None: every attempt sends the whole body from its first byte.
    case plain
    /// Resumable uploads of HTTP (draft-ietf-httpbis-resumable-upload, interop version 6).
    ///
    /// The request announces that the client can resume. A server without support for that responds as to any
    /// request, and receives no further ones.
    case resumable
    /// tus 1.0, which the server must support: the URL of the request is the one that creates uploads.
    case tus
    /// Parts sent to URLs that the application has signed in advance (``UploadRequest/parts``).
    case presignedParts
}

/// Resource on a server at which an interrupted upload resumes.
public struct UploadResource: Equatable, Sendable {
    /// URL that reports the offset and receives the rest of the body.
    public var url: String
    /// Protocol of the resource.
    public var uploadProtocol: UploadProtocol
    /// Number of bytes that the server last reported.
    public var offset: ByteCount
    /// `true` if all of the body may have been sent, so that the server may have processed the request.
    ///
    /// An idempotent request does not wait until that is stored: a stored `false` from an earlier process may be
    /// wrong for it.
    public var mayBeComplete: Bool
    /// `true` if the origin of the request named the resource, not one that a redirect led to: only then does it
    /// receive the request's credentials.
    public var isNamedByOrigin: Bool
    /// Size of the body; `nil` if unknown.
    public var size: ByteCount?
    /// Entity tags of the uploaded parts, in order; `nil` for an upload that is not in presigned parts, whose ``url``
    /// is empty.
    public var entityTags: [String]?

    /// Creates a resource that the request's origin named, without any known bytes.
    public init(url: String, uploadProtocol: UploadProtocol) {
        self.url = url
        self.uploadProtocol = uploadProtocol
        offset = .zero
        mayBeComplete = false
        isNamedByOrigin = true
    }
}
