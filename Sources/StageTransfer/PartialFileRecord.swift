import FoundationEssentials

/// The JSON record beside a partial file.
struct PartialFileRecord: Equatable, Codable, Sendable {
    /// Version of the format; records of other versions are ignored.
    var format = Self.currentFormat
    /// Number of the generation that the record describes.
    var generation: Int
    /// Size of the whole content; `nil` if unknown, in which case the bytes count only within the process that
    /// received them.
    var total: Int64?
    /// Number of bytes that are known to be on disk.
    var durable: Int64
    /// Version of the content that the bytes belong to.
    var validator: Validator?
    /// Mirror URL of the request for the bytes.
    var url: String
    /// URL of the resource that the bytes came from, after redirects and without its query, which may be a signature; `nil`
    /// if they came from several resources: then the validator alone identifies the content.
    var resource: String?
    /// Boot of the kernel that wrote the bytes.
    var boot: String

    static let currentFormat = 1

    /// Numbers of generations: a record with another number is damaged, and the next number never overflows.
    private static let generations = 1..<(1 << 30)

    /// The maximum size of a record, in bytes: an entity tag and the URL of a redirect may each fill the head of a response, and
    /// JSON may escape each of their bytes.
    static let sizeLimit = 1 << 20

    /// Decodes a record; `nil` if the bytes are not a valid one.
    static func decode(_ bytes: [UInt8]) -> PartialFileRecord? {
        // An unreadable record is ignored: the download starts again.
        guard let record = try? JSONDecoder().decode(PartialFileRecord.self, from: Data(bytes))
        else {
            return nil
        }
        let makesSense =
            record.format == currentFormat && generations.contains(record.generation)
            && record.durable >= 0 && record.durable <= record.total ?? .max
            && record.hasUsableValidator
        return makesSense ? record : nil
    }

    /// `true` if the validator can be sent as a header field.
    private var hasUsableValidator: Bool {
        switch validator {
        case nil: true
        case .entityTag(let tag): Validator.isStrong(tag)
        case .lastModified(let date): Validator.isPrintable(date)
        }
    }

    /// Returns the encoded form, which ``decode(_:)`` reads.
    func encoded() -> [UInt8] {
        // JSON can represent all of the record's numbers and strings, so encoding does not fail.
        guard let data = try? JSONEncoder().encode(self) else { return [] }
        return Array(data)
    }

    /// Returns how many of the file's `length` bytes count in this boot, or `nil` if the file does not match the
    /// record.
    func usableLength(of length: Int64, in boot: BootID) -> Int64? {
        guard let total, length >= durable else { return nil }
        let usable = boot.isSame(as: BootID(self.boot)) ? length : durable
        return usable <= total ? usable : nil
    }
}
