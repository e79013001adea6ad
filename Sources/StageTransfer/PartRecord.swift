import FoundationEssentials

/// What is known of a part file beyond its bytes, as it is kept beside it.
struct PartRecord: Equatable, Codable, Sendable {
    /// The version of the format; a record of another one does not count.
    var format = Self.currentFormat
    /// Which of the files that followed one another the record is about.
    var generation: Int
    /// The size of the whole content; `nil` where nobody said, and then the bytes do not count once
    /// the process that received them is gone.
    var total: Int64?
    /// How many bytes are known to be on disk.
    var durable: Int64
    /// The version of the content that the bytes belong to.
    var validator: Validator?
    /// The URL that they came from.
    var url: String
    /// The run of the kernel that wrote them.
    var boot: String

    static let currentFormat = 1

    /// Reads a record, or returns `nil` if the bytes are none that makes sense.
    static func decode(_ bytes: [UInt8]) -> PartRecord? {
        // What cannot be read is as good as not there: the download starts again.
        guard let record = try? JSONDecoder().decode(PartRecord.self, from: Data(bytes)) else {
            return nil
        }
        let makesSense =
            record.format == currentFormat && record.generation > 0 && record.durable >= 0
            && record.durable <= record.total ?? .max && record.hasUsableValidator
        return makesSense ? record : nil
    }

    /// Whether the validator can be sent as it is.
    private var hasUsableValidator: Bool {
        switch validator {
        case nil: true
        case .entityTag(let tag): Validator.isStrong(tag)
        case .lastModified(let date): date.utf8.allSatisfy { (0x20...0x7E).contains($0) }
        }
    }

    /// The bytes that ``decode(_:)`` reads.
    func encoded() -> [UInt8] {
        // Numbers and text: there is nothing in a record that JSON cannot hold.
        guard let data = try? JSONEncoder().encode(self) else { return [] }
        return Array(data)
    }

    /// How many bytes of a file of `length` bytes count in this run of the kernel, or `nil` if the
    /// file cannot be the one that the record is about.
    func usableLength(of length: Int64, in boot: BootID) -> Int64? {
        guard let total, length >= durable else { return nil }
        let usable = boot.isSame(as: BootID(self.boot)) ? length : durable
        return usable <= total ? usable : nil
    }
}
