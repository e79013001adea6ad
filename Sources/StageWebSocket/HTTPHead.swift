/// Header field of a request or a response.
public struct WebSocketField: Hashable, Sendable {
    /// Name as it was sent.
    public var name: String
    /// Value without surrounding white space.
    public var value: String

    /// Creates a field.
    public init(name: String, value: String) {
        self.name = name
        self.value = value
    }
}

/// First line and header fields of an HTTP/1.1 message (RFC 9112).
public struct HTTPHead: Equatable, Sendable {
    /// The request line or status line.
    public var line: String
    /// The fields in order.
    public var fields: [WebSocketField]

    /// Maximum size of a head in bytes.
    public static let limit = 1 << 16

    /// Creates a head.
    public init(line: String, fields: [WebSocketField]) {
        self.line = line
        self.fields = fields
    }

    /// Encoded form, including the empty line at the end.
    public var bytes: [UInt8] {
        let lines = fields.map { "\($0.name): \($0.value)\r\n" }.joined()
        return Array("\(line)\r\n\(lines)\r\n".utf8)
    }

    /// Returns the size of the head at the start of `bytes`; `nil` if it is incomplete.
    ///
    /// - Throws: ``HandshakeFault/headTooLarge(limit:)``.
    static func length(in bytes: [UInt8], from start: Int = 0) throws(WebSocketError) -> Int? {
        let end: [UInt8] = [13, 10, 13, 10]
        var index = max(start - 3, 0)
        while index + 4 <= bytes.count {
            if bytes[index] == 13, bytes[index..<index + 4].elementsEqual(end) {
                guard index + 4 <= limit else { break }
                return index + 4
            }
            index += 1
        }
        guard bytes.count <= limit else { throw .handshake(.headTooLarge(limit: limit)) }
        return nil
    }

    /// Parses a complete head, including the empty line.
    ///
    /// - Throws: ``HandshakeFault/head`` if a line is not a field (RFC 9112, section 5).
    public init(reading bytes: ArraySlice<UInt8>) throws(WebSocketError) {
        let text = String(decoding: bytes, as: UTF8.self)
        let lines = text.unicodeScalars.split(separator: "\n", omittingEmptySubsequences: false)
            .map { line -> Substring in
                let text = Substring(line)
                return line.last == "\r" ? Substring(line.dropLast()) : text
            }
        guard let first = lines.first, !first.isEmpty else { throw .handshake(.head) }
        line = String(first)
        fields = []
        for text in lines.dropFirst() where !text.isEmpty {
            let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2, parts[0].isToken else { throw .handshake(.head) }
            let value = parts[1].trimmingSpaces
            guard value.isFieldValue else { throw .handshake(.head) }
            fields.append(WebSocketField(name: String(parts[0]), value: String(value)))
        }
    }

    /// Returns the values of a field; the name is compared without regard to case.
    public func values(of name: String) -> [String] {
        fields.filter { $0.name.lowercased() == name.lowercased() }.map(\.value)
    }

    /// Returns the elements of a field that is a list of tokens (RFC 9110, section 5.6.1).
    func list(_ name: String) -> [String] {
        values(of: name).flatMap { $0.split(separator: ",") }
            .map { String($0.trimmingSpaces) }.filter { !$0.isEmpty }
    }
}

extension StringProtocol where SubSequence == Substring {
    /// The text without surrounding spaces and tabs.
    var trimmingSpaces: Substring {
        let tail = drop { $0 == " " || $0 == "\t" }
        guard let last = tail.lastIndex(where: { $0 != " " && $0 != "\t" }) else { return "" }
        return tail[...last]
    }

    /// `true` if the text is a token (RFC 9110, section 5.6.2).
    var isToken: Bool {
        !isEmpty
            && utf8.allSatisfy { byte in
                byte > 0x20 && byte < 0x7F && !"\"(),/:;<=>?@[\\]{}".utf8.contains(byte)
            }
    }

    /// `true` if the text can be the value of a field (RFC 9110, section 5.5).
    var isFieldValue: Bool { utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 } }
}
