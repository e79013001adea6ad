import FoundationEssentials
import StageModel

/// Status line and header fields of a response.
struct ResponseHead: Equatable, Sendable {
    var status: Int
    var contentLength: Int64?
    /// Reason why the length is unusable: it is not a number, or the response has two different ones.
    var lengthFault: String?
    var contentRange: ContentRange?
    /// Media type in lower case, without parameters.
    var contentType: String?
    var contentEncoding: String?
    var entityTag: String?
    var lastModified: String?
    var date: String?
    var location: String?
    /// Value of the `Retry-After` field.
    var retryAfter: String?
    /// `true` if a transfer coding frames the body, so that `Content-Length` does not count (RFC 9112, section 6.3).
    var hasTransferEncoding = false
    /// All header fields, as received.
    var fields: [HeaderField] = []
    /// Connection that the response came over.
    var connection: ConnectionSummary?
    /// Size of the field lines in bytes.
    private var size = 0

    /// Maximum number of fields of a response, and of their bytes.
    static let limits = (fields: 256, bytes: 1 << 16)

    init(status: Int) { self.status = status }

    /// Begins a head with its status line; `nil` if the line is not one.
    init?(statusLine line: Substring) {
        // The reason phrase may be missing, with the space before it.
        let words = line.trimmingBlanks.split(separator: " ", maxSplits: 2)
        guard line.hasPrefix("HTTP/"), words.count >= 2, let status = Int(words[1]) else {
            return nil
        }
        self.init(status: status)
    }

    /// `true` if the head exceeds ``limits``.
    var isTooLarge: Bool { fields.count > Self.limits.fields || size > Self.limits.bytes }

    /// Size of the body in bytes, if the head announces it.
    var bodyLength: Int64? { hasTransferEncoding ? nil : contentLength }

    /// `true` if the body is a web page.
    var isHTML: Bool {
        contentType == "text/html" || contentType == "application/xhtml+xml"
    }

    /// `true` if the body consists of several parts, each with a head of its own (RFC 9110, section 14.6): no request asks for
    /// several ranges.
    var hasSeveralParts: Bool { contentType == "multipart/byteranges" }

    /// Content coding of the body, if there is one.
    var encoding: String? {
        guard let contentEncoding else { return nil }
        let isCoded = contentEncoding.split(separator: ",").contains { coding in
            !["", "identity"].contains(coding.trimmingBlanks.lowercased())
        }
        return isCoded ? contentEncoding : nil
    }

    /// Delay that the server asks for, up to 24 hours, from either form of `Retry-After`; a date counts from the
    /// response's own `Date`, and without one from this machine's clock.
    var retryDelay: Duration? {
        retryAfter.flatMap { RetryAfter.delay(in: $0, answeredAt: date, readAt: .now) }
    }

    /// Parses a field line.
    ///
    /// All fields are kept; those that the engine uses are also parsed.
    mutating func read(_ line: Substring) {
        size += line.utf8.count
        if line.first == " " || line.first == "\t" { return unfold(line) }
        guard let colon = line.utf8.firstIndex(of: UInt8(ascii: ":")) else { return }
        let name = line[..<colon]
        let text = line[line.utf8.index(after: colon)...]
        func value() -> String { String(text.trimmingBlanks) }
        fields.append(HeaderField(name: String(name.trimmingBlanks), value: value()))
        // Comparing lengths first avoids most comparisons of text.
        switch (name.utf8.count, name.lowercased()) {
        case (4, "date"): date = single(value(), after: date)
        case (4, "etag"): entityTag = single(value(), after: entityTag)
        case (8, "location"): location = value()
        case (11, "retry-after"): retryAfter = value()
        case (12, "content-type"):
            contentType = value().lowercased().split(separator: ";").first.map {
                String($0.trimmingBlanks)
            }
        case (13, "last-modified"): lastModified = single(value(), after: lastModified)
        case (13, "content-range"):
            let range = ContentRange(value())
            contentRange = contentRange == nil || contentRange == range ? range : .malformed
        case (14, "content-length"): readLength(text.trimmingBlanks)
        case (16, "content-encoding"):
            // A list, which may have several lines (RFC 9110, section 5.3).
            contentEncoding = contentEncoding.map { "\($0), \(value())" } ?? value()
        case (17, "transfer-encoding"): hasTransferEncoding = true
        default: break
        }
    }

    /// Returns the value of a field that a response has once; the text is empty, and so not usable, if an earlier line has
    /// another value.
    private func single(_ value: String, after earlier: String?) -> String {
        earlier == nil || earlier == value ? value : ""
    }

    /// Parses a `Content-Length`, which may be repeated with equal values (RFC 9110, section 8.6).
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

    /// Appends a continuation line to the previous field (RFC 9112, section 5.2).
    private mutating func unfold(_ line: Substring) {
        guard let last = fields.indices.last else { return }
        fields[last].value += " \(line.trimmingBlanks)"
    }
}

/// Value of a `Content-Range` field (RFC 9110, section 14.4).
enum ContentRange: Equatable, Sendable {
    /// The body is these bytes of `total`; `nil` stands for `*`.
    case bytes(ClosedRange<Int64>, total: Int64?)
    /// The requested range does not exist; the content has `total` bytes.
    case unsatisfied(total: Int64)
    /// The value cannot be parsed.
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

    /// Parses decimal digits without sign.
    static func number(_ text: Substring) -> Int64? {
        text.utf8.allSatisfy { (0x30...0x39).contains($0) } ? Int64(text) : nil
    }
}

extension StringProtocol where SubSequence == Substring {
    /// The text without surrounding spaces, tabs and line ends.
    var trimmingBlanks: Substring {
        // Compares bytes: comparing characters took most of the time of parsing a head.
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
    /// `true` if the line is a status line, which begins a head.
    var beginsHead: Bool { utf8.starts(with: "HTTP/".utf8) }
}

extension HTTPDate {
    /// The current time.
    static var now: HTTPDate { HTTPDate(seconds: Int64(Date.now.timeIntervalSince1970)) }
}
