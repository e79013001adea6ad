import StageControl
import StageModel
import StageTransfer

extension RequestLimits {
    /// Maximum number of presigned parts, and maximum total bytes of their URLs, which fit into a request.
    static let parts = (count: 1000, bytes: 7 << 17)

    /// Checks the presigned parts of an upload.
    static func check(
        _ parts: UploadParts,
        of request: TransferRequest
    ) throws(ControlRefusal) {
        guard request.kind == .upload, [nil, "POST"].contains(request.method) else {
            throw ControlRefusal(.invalid, message: "only an upload by POST has 'parts'")
        }
        guard (1...Self.parts.count).contains(parts.parts.count),
            parts.urls.reduce(0, { $0 + $1.utf8.count }) <= Self.parts.bytes
        else {
            throw ControlRefusal(
                .invalid,
                message:
                    "expected 1 to \(Self.parts.count) parts whose URLs have at most \(Self.parts.bytes) bytes"
            )
        }
        guard let size = parts.size, size.rawValue <= Self.size else {
            throw ControlRefusal(
                .invalid,
                message:
                    "expected parts of at least 1 byte, and of at most \(Self.size) bytes together"
            )
        }
        let allowed = request.allowedDomains.map(AllowedDomains.init)
        for url in parts.urls {
            let host = try origin(of: url).host
            guard allowed?.contains(host) ?? true else {
                throw ControlRefusal(.invalid, message: "a URL is on none of the 'allowedDomains'")
            }
        }
        // These requests carry the task's header fields and so must go to the origin of `url`.
        for url in [parts.completionURL, parts.abortURL].compactMap(\.self) {
            guard try origin(of: url) == origin(of: request.url) else {
                throw ControlRefusal(
                    .invalid,
                    message: "expected 'completionURL' and 'abortURL' of the origin of 'url'"
                )
            }
        }
    }
}
