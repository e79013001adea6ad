/// Incremental parser of an HTTP/1.1 response (RFC 9112), for input in pieces of any size.
///
/// Does no I/O. Skips header fields that do not determine the length of the body, informational (1xx) responses,
/// chunk extensions and trailers.
struct ResponseParser {
    /// Parsed part of a response.
    enum Part: Equatable {
        /// Status code, after the complete head.
        case status(Int)
        /// Bytes of the body.
        case body([UInt8])
        /// End of the body; further input is ignored.
        case end
    }

    /// Maximum bytes of the head, of a chunk-size line, and of the trailers.
    static let headLimit = 64 << 10

    private enum State: Equatable {
        case head
        case body(left: Int)
        case bodyUntilEnd
        case chunkSize
        case chunk(left: Int)
        case chunkEnd
        case trailers
        case ended
    }

    private var state = State.head
    private var buffer: [UInt8] = []
    private var position = 0

    /// Parses further bytes; returns the parts that they complete.
    mutating func read(_ bytes: [UInt8]) throws(ControlError) -> [Part] {
        buffer.removeFirst(position)
        position = 0
        buffer += bytes
        var parts: [Part] = []
        while let part = try next() { parts += part }
        return parts
    }

    /// Set if the response is complete when the connection ends here.
    var isComplete: Bool { state == .ended || state == .bodyUntilEnd }

    /// Makes one step; returns `nil` if it needs more bytes.
    private mutating func next() throws(ControlError) -> [Part]? {
        switch state {
        case .head: return try readHead()
        case .body(let left):
            guard let bytes = take(atMost: left) else { return nil }
            let rest = left - bytes.count
            state = rest == 0 ? .ended : .body(left: rest)
            return rest == 0 ? [.body(bytes), .end] : [.body(bytes)]
        case .bodyUntilEnd: return take(atMost: .max).map { [.body($0)] }
        case .chunkSize:
            guard let line = try line() else { return nil }
            let size = try Self.chunkSize(line)
            state = size == 0 ? .trailers : .chunk(left: size)
            return []
        case .chunk(let left):
            guard let bytes = take(atMost: left) else { return nil }
            state = bytes.count == left ? .chunkEnd : .chunk(left: left - bytes.count)
            return [.body(bytes)]
        case .chunkEnd:
            guard let line = try line() else { return nil }
            guard line.isEmpty else { throw .malformed("a chunk is longer than it says") }
            state = .chunkSize
            return []
        case .trailers:
            guard let line = try line() else { return nil }
            guard line.isEmpty else { return [] }
            state = .ended
            return [.end]
        case .ended: return nil
        }
    }

    private mutating func readHead() throws(ControlError) -> [Part]? {
        let mark: [UInt8] = [13, 10, 13, 10]
        let rest = buffer[position...]
        guard let end = Self.index(of: mark, in: rest) else {
            guard rest.count <= Self.headLimit else { throw .tooLarge(limit: Self.headLimit) }
            return nil
        }
        try checkLimit(upTo: end + mark.count)
        position = end + mark.count
        let lines = String(decoding: rest[..<end], as: UTF8.self).split(separator: "\r\n")
        let status = try Self.status(lines.first ?? "")
        guard status >= 200 else { return [] }
        state = try Self.body(after: status, fields: lines.dropFirst())
        return state == .ended ? [.status(status), .end] : [.status(status)]
    }

    /// Returns the state after the head, which determines how the body ends.
    private static func body(
        after status: Int,
        fields: ArraySlice<Substring>
    ) throws(ControlError) -> State {
        guard status != 204, status != 304 else { return .ended }
        var length: Int?
        for field in fields {
            guard let colon = field.firstIndex(of: ":") else {
                throw .malformed("a line of the head is not a header field")
            }
            let name = field[..<colon].lowercased()
            let value = trimmed(field[field.index(after: colon)...]).lowercased()
            if name == "transfer-encoding" {
                guard value == "chunked" else { throw .malformed("it is sent as '\(value)'") }
                return .chunkSize
            }
            if name == "content-length" {
                guard let number = number(value), length ?? number == number else {
                    throw .malformed("it has a length of '\(value)'")
                }
                length = number
            }
        }
        guard let length else { return .bodyUntilEnd }
        return length == 0 ? .ended : .body(left: length)
    }

    private static func status(_ line: Substring) throws(ControlError) -> Int {
        let words = line.split(separator: " ", maxSplits: 2)
        guard words.count >= 2, words[0].hasPrefix("HTTP/1."), words[1].utf8.count == 3,
            let status = number(words[1]), status >= 100
        else { throw .malformed("it does not begin like one of HTTP/1.1") }
        return status
    }

    private static func chunkSize(_ line: [UInt8]) throws(ControlError) -> Int {
        let digits = String(decoding: line.prefix { $0 != 0x3B }, as: UTF8.self)
        guard let size = number(trimmed(digits[...]), radix: 16) else {
            throw .malformed("a chunk has a size of '\(digits)'")
        }
        return size
    }

    /// Returns the text without surrounding spaces and tabs.
    private static func trimmed(_ text: Substring) -> Substring {
        let isBlank = { (character: Character) in character == " " || character == "\t" }
        var rest = text.drop(while: isBlank)
        while let last = rest.last, isBlank(last) { rest.removeLast() }
        return rest
    }

    /// Takes bytes from the buffer; returns `nil` if it is empty.
    private mutating func take(atMost count: Int) -> [UInt8]? {
        let bytes = buffer[position...].prefix(count)
        guard !bytes.isEmpty else { return nil }
        position += bytes.count
        return Array(bytes)
    }

    /// Takes a line without its line break from the buffer.
    private mutating func line() throws(ControlError) -> [UInt8]? {
        let rest = buffer[position...]
        guard let end = Self.index(of: [13, 10], in: rest) else {
            guard rest.count <= Self.headLimit else { throw .tooLarge(limit: Self.headLimit) }
            return nil
        }
        try checkLimit(upTo: end + 2)
        position = end + 2
        return Array(rest[..<end])
    }

    /// Enforces the limit exactly, so that the result does not depend on how the input was divided.
    private func checkLimit(upTo end: Int) throws(ControlError) {
        guard end - position <= Self.headLimit + 1 else { throw .tooLarge(limit: Self.headLimit) }
    }

    /// Parses digits only; `Int` would accept signs.
    private static func number(_ digits: some StringProtocol, radix: Int = 10) -> Int? {
        digits.first?.isHexDigit == true ? Int(digits, radix: radix) : nil
    }

    private static func index(of mark: [UInt8], in bytes: ArraySlice<UInt8>) -> Int? {
        var start = bytes.startIndex
        while let found = bytes[start...].firstIndex(of: mark[0]) {
            if bytes[found...].starts(with: mark) { return found }
            start = found + 1
        }
        return nil
    }
}

/// Splits input in pieces of any size into lines.
struct LineSplitter {
    /// Maximum bytes of a line.
    static let limit = 4 << 20

    private var rest: [UInt8] = []

    /// Adds bytes; returns the lines that they complete, without line breaks and without empty lines.
    mutating func read(_ bytes: [UInt8]) throws(ControlError) -> [[UInt8]] {
        var lines: [[UInt8]] = []
        var left = bytes[...]
        while let end = left.firstIndex(of: 10) {
            rest += left[..<end]
            guard rest.count <= Self.limit else { throw .tooLarge(limit: Self.limit) }
            left = left[(end + 1)...]
            if rest.last == 13 { rest.removeLast() }
            if !rest.isEmpty { lines.append(rest) }
            rest = []
        }
        rest += left
        guard rest.count <= Self.limit else { throw .tooLarge(limit: Self.limit) }
        return lines
    }

    /// Bytes after the last line break.
    var remainder: [UInt8] { rest }
}
