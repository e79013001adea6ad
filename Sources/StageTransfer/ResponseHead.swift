import StageModel

/// What matters of the status line and the header fields of an answer.
struct ResponseHead: Equatable, Sendable {
    var status: Int
    var contentLength: Int64?
    /// The reason that the length is unusable: it is no number, or the answer has two that differ.
    var lengthFault: String?
    var contentRange: ContentRange?
    /// The media type in lower case, without parameters.
    var contentType: String?
    var contentEncoding: String?
    var entityTag: String?
    var lastModified: String?
    var date: String?
    var location: String?
    /// How long the server asks to be left alone.
    var retryAfter: String?
    /// Whether the body is framed by something other than its length, which then does not count
    /// (RFC 9112, section 6.3).
    var hasTransferEncoding = false
    /// All header fields, as they came.
    var fields: [HeaderField] = []
    /// The connection that the answer came over.
    var connection: ConnectionSummary?
    /// How many bytes the lines of the fields have.
    private var size = 0

    /// How many fields an answer may have, and how many bytes in all.
    static let limits = (fields: 256, bytes: 1 << 16)

    init(status: Int) { self.status = status }

    /// Begins a head from its status line, or returns `nil` if the line is none.
    init?(statusLine line: Substring) {
        // The reason may be missing, with the blank before it.
        let words = line.trimmingBlanks.split(separator: " ", maxSplits: 2)
        guard line.hasPrefix("HTTP/"), words.count >= 2, let status = Int(words[1]) else {
            return nil
        }
        self.init(status: status)
    }

    /// Whether there are more fields, or longer ones, than are kept.
    var isTooLarge: Bool { fields.count > Self.limits.fields || size > Self.limits.bytes }

    /// How many bytes the body has, where the head tells.
    var bodyLength: Int64? { hasTransferEncoding ? nil : contentLength }

    /// Whether the body is a page for a person.
    var isHTML: Bool {
        contentType == "text/html" || contentType == "application/xhtml+xml"
    }

    /// The encoding of the body, if there is one.
    var encoding: String? {
        guard let contentEncoding, contentEncoding.lowercased() != "identity" else { return nil }
        return contentEncoding
    }

    /// How long the server asks to be left alone, 0 to 24 hours, in either form of the field; a date is
    /// measured from the answer's own.
    var pause: Duration? {
        retryAfter.flatMap { RetryAfter.delay(in: $0, answeredAt: date) }
    }

    /// Reads one line of the head; all are kept, and few of them matter here.
    mutating func read(_ line: Substring) {
        size += line.utf8.count
        if line.first == " " || line.first == "\t" { return unfold(line) }
        guard let colon = line.utf8.firstIndex(of: UInt8(ascii: ":")) else { return }
        let name = line[..<colon]
        let text = line[line.utf8.index(after: colon)...]
        func value() -> String { String(text.trimmingBlanks) }
        fields.append(HeaderField(name: String(name.trimmingBlanks), value: value()))
        // The length decides first: most lines need no comparison of text at all.
        switch (name.utf8.count, name.lowercased()) {
        case (4, "date"): date = value()
        case (4, "etag"): entityTag = value()
        case (8, "location"): location = value()
        case (11, "retry-after"): retryAfter = value()
        case (12, "content-type"):
            contentType = value().lowercased().split(separator: ";").first.map {
                String($0.trimmingBlanks)
            }
        case (13, "last-modified"): lastModified = value()
        case (13, "content-range"): contentRange = ContentRange(value())
        case (14, "content-length"): readLength(text.trimmingBlanks)
        case (16, "content-encoding"): contentEncoding = value()
        case (17, "transfer-encoding"): hasTransferEncoding = true
        default: break
        }
    }

    /// Reads a `Content-Length`, which may be repeated if all of its values are equal (RFC 9110, section
    /// 8.6).
    private mutating func readLength(_ text: Substring) {
        for value in text.split(separator: ",", omittingEmptySubsequences: false) {
            guard let length = ContentRange.number(value.trimmingBlanks) else {
                lengthFault = "'Content-Length: \(text)'"
                continue
            }
            if let contentLength, contentLength != length {
                lengthFault = "two lengths, \(contentLength) and \(length)"
            }
            contentLength = length
        }
    }

    /// Adds a line that continues the field before it (RFC 9112, section 5.2).
    private mutating func unfold(_ line: Substring) {
        guard let last = fields.indices.last else { return }
        fields[last].value += " \(line.trimmingBlanks)"
    }
}

/// What a `Content-Range` field says (RFC 9110, section 14.4).
enum ContentRange: Equatable, Sendable {
    /// The body is these bytes of `total`; `nil` stands for `*`.
    case bytes(ClosedRange<Int64>, total: Int64?)
    /// No byte that was asked for exists; there are `total`.
    case unsatisfied(total: Int64)
    /// The field is there and says something else.
    case malformed

    init(_ text: String) {
        self = Self.parse(text) ?? .malformed
    }

    private static func parse(_ text: String) -> ContentRange? {
        let words = text.split(separator: " ")
        guard words.count == 2, words[0].lowercased() == "bytes" else { return nil }
        let parts = words[1].split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2 else { return nil }
        let total = number(parts[1])
        guard total != nil || parts[1] == "*" else { return nil }
        if parts[0] == "*" { return total.map { .unsatisfied(total: $0) } }
        let bounds = parts[0].split(separator: "-", omittingEmptySubsequences: false)
        guard bounds.count == 2, let first = number(bounds[0]), let last = number(bounds[1]),
            first <= last, total.map({ last < $0 }) ?? true
        else { return nil }
        return .bytes(first...last, total: total)
    }

    /// Reads digits and nothing else.
    static func number(_ text: Substring) -> Int64? {
        text.utf8.allSatisfy { (0x30...0x39).contains($0) } ? Int64(text) : nil
    }
}

extension StringProtocol where SubSequence == Substring {
    /// The text without spaces, tabs and line ends around it.
    var trimmingBlanks: Substring {
        // By bytes: comparing characters took most of the time of reading a head.
        func isText(_ byte: UInt8) -> Bool {
            byte != 0x20 && byte != 0x09 && byte != 0x0D && byte != 0x0A
        }
        let text = self[startIndex...]
        guard let first = text.utf8.firstIndex(where: isText),
            let last = text.utf8.lastIndex(where: isText)
        else { return "" }
        return text[first..<text.utf8.index(after: last)]
    }
}

extension Substring {
    /// Whether the line is a status line, with which a head begins.
    var beginsHead: Bool { utf8.starts(with: "HTTP/".utf8) }
}
