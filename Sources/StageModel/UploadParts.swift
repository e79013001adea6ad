/// Requests that an application has signed in advance to upload one file in parts, as the multipart uploads of S3.
///
/// Every URL is a capability: to know it is enough to use it. Parts are numbered from 1, in their order.
public struct UploadParts: Hashable, Codable, Sendable {
    /// A part of the file.
    public struct Part: Hashable, Codable, Sendable {
        /// The URL that takes the part by `PUT` and answers with its `ETag`.
        public var url: String
        /// The bytes of the part.
        public var size: ByteCount

        /// Creates a part.
        public init(url: String, size: ByteCount) {
            (self.url, self.size) = (url, size)
        }
    }

    /// The parts, which together are the file.
    public var parts: [Part]
    /// The URL that makes one object of the parts: it gets the list of their numbers and entity tags by `POST`.
    public var completionURL: String
    /// The URL that forgets the parts by `DELETE`, which is used when the upload is cancelled; `nil` for none.
    public var abortURL: String?

    /// Creates the requests of an upload.
    public init(parts: [Part], completionURL: String, abortURL: String? = nil) {
        (self.parts, self.completionURL, self.abortURL) = (parts, completionURL, abortURL)
    }

    /// The bytes of all parts; `nil` where that is no number of 64 bits, or a part has none.
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
