public import StageModel

/// Protocol by which an upload that broke off is resumed.
public enum UploadProtocol: String, CaseIterable, Sendable {
    /// None: every attempt sends the whole body from its first byte.
    case plain
    /// Resumable uploads of HTTP (draft-ietf-httpbis-resumable-upload, interop version 6).
    ///
    /// The request says that the client can resume. A server that does not know that answers it as any other, and
    /// hears of no other request.
    case resumable
    /// tus 1.0, which the server has to speak: the URL of the request is the one that creates uploads.
    case tus
    /// Parts sent to URLs that the application has signed in advance (``UploadRequest/parts``).
    case presignedParts
}

/// Place on a server at which an upload that broke off resumes.
public struct UploadResource: Equatable, Sendable {
    /// The URL that tells the offset and takes the rest of the body.
    public var url: String
    /// The protocol that the resource speaks.
    public var uploadProtocol: UploadProtocol
    /// The bytes that the server had when it was last asked.
    public var offset: ByteCount
    /// Whether all of the body may have been sent, so that the server may have acted on the request.
    ///
    /// A request that may be repeated does not wait for that to be written down: what an earlier process kept may say
    /// `false` of it and be wrong.
    public var mayBeComplete: Bool
    /// Whether the origin of the request named it, and no other one that a redirect led to: only then do the request's
    /// credentials go there.
    public var isNamedByOrigin: Bool
    /// The bytes of the body; `nil` where that is not known.
    public var size: ByteCount?
    /// The entity tags of the parts that the server has, in order; `nil` for an upload that is not in presigned parts,
    /// whose ``url`` is empty.
    public var entityTags: [String]?

    /// Creates a resource that the request's origin named and no byte is known to have reached.
    public init(url: String, uploadProtocol: UploadProtocol) {
        self.url = url
        self.uploadProtocol = uploadProtocol
        offset = .zero
        mayBeComplete = false
        isNamedByOrigin = true
    }
}
