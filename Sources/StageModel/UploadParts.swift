/// Presigned requests to upload a file in parts, as in S3 multipart uploads.
///
/// Each URL is a capability: knowing it is enough to use it. Parts are numbered from 1, in order.
public struct UploadParts: Hashable, Codable, Sendable {
    /// A part of the file.
    public struct Part: Hashable, Codable, Sendable {
        /// The URL that accepts the part by `PUT` and returns its `ETag`.
        public var url: String
        /// The size of the part in bytes.
        public var size: ByteCount

        /// Creates a part.
        public init(url: String, size: ByteCount) {
            (self.url, self.size) = (url, size)
        }
    }

    /// The parts of the file, in order.
    public var parts: [Part]
    /// The URL that combines the parts: it receives the list of part numbers and entity tags by `POST`.
    public var completionURL: String
    /// The URL that discards the parts by `DELETE`, used when the upload is cancelled; `nil` for none.
    public var abortURL: String?

    /// Creates the requests of an upload.
    public init(parts: [Part], completionURL: String, abortURL: String? = nil) {
        (self.parts, self.completionURL, self.abortURL) = (parts, completionURL, abortURL)
    }

    /// The bytes of all parts; `nil` if the sum overflows 64 bits or a part is empty.
    public var size: ByteCount? {
        var sum: Int64 = 0
        for part in parts {
            let (next, overflow) = sum.addingReportingOverflow(part.size.rawValue)
            guard part.size > .zero, !overflow else { return nil }
            sum = next
        }
        return ByteCount(sum)
    }

    /// All URLs.
    public var urls: [String] { parts.map(\.url) + [completionURL] + (abortURL.map { [$0] } ?? []) }
}
