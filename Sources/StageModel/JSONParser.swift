/// A strict JSON parser (RFC 8259) that reports the position of the first error.
///
/// Foundation's decoder on Linux accepts trailing commas, control characters in strings and duplicate names,
/// and does not report positions. Signed documents must have the same meaning for all programs that read
/// them.
package struct JSONParser {
    private let bytes: [UInt8]
    private var position = 0
    private var depth = 0

    /// Creates a parser of a text in UTF-8.
    package init(_ bytes: [UInt8]) { self.bytes = bytes }

    /// Parses the whole text, which must contain one value; skips a byte order mark.
    package mutating func document() throws(ManifestError) -> JSONTree {
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { position = 3 }
        skipSpace()
        let value = try value()
        skipSpace()
        guard position == bytes.count else { throw unexpected("the end") }
        return value
    }

    private mutating func value() throws(ManifestError) -> JSONTree {
        switch current {
        case UInt8(ascii: "{"):
            return try nested { parser throws(ManifestError) in try parser.object() }
        case UInt8(ascii: "["):
            return try nested { parser throws(ManifestError) in try parser.array() }
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "t"): return try word("true", value: .boolean(true))
        case UInt8(ascii: "f"): return try word("false", value: .boolean(false))
        case UInt8(ascii: "n"): return try word("null", value: .null)
        case UInt8(ascii: "-"): return try number()
        case let byte? where byte.isDigit: return try number()
        default: throw unexpected("a value")
        }
    }

    private mutating func nested(
        _ read: (inout JSONParser) throws(ManifestError) -> JSONTree
    ) throws(ManifestError) -> JSONTree {
        guard depth < ManifestLimits.nesting else {
            throw fault(
                ValueError(
                    expected: "at most \(ManifestLimits.nesting) levels of nesting",
                    found: "more"
                ),
                at: position
            )
        }
        depth += 1
        position += 1
        skipSpace()
        let value = try read(&self)
        depth -= 1
        return value
    }

    private mutating func object() throws(ManifestError) -> JSONTree {
        var members: [JSONTree.Member] = []
        var names: Set<String> = []
        if take("}") { return .object([]) }
        repeat {
            skipSpace()
            let start = position
            guard current == UInt8(ascii: "\"") else { throw unexpected("a member's name") }
            let name = try string()
            // Small objects are searched linearly; from 16 members on a set is faster.
            if members.count == 16 { names = Set(members.map(\.name)) }
            let isKnown =
                members.count < 16
                ? members.contains { $0.name == name } : !names.insert(name).inserted
            if isKnown {
                throw fault(
                    ValueError(expected: "members of different names", text: name),
                    at: start
                )
            }
            skipSpace()
            guard take(":") else { throw unexpected("':'") }
            skipSpace()
            members.append(JSONTree.Member(name, try value()))
            skipSpace()
        } while take(",")
        guard take("}") else { throw unexpected("',' or '}'") }
        return .object(members)
    }

    private mutating func array() throws(ManifestError) -> JSONTree {
        var values: [JSONTree] = []
        if take("]") { return .array([]) }
        repeat {
            skipSpace()
            values.append(try value())
            skipSpace()
        } while take(",")
        guard take("]") else { throw unexpected("',' or ']'") }
        return .array(values)
    }

    private mutating func word(
        _ word: StaticString,
        value: JSONTree
    ) throws(ManifestError) -> JSONTree {
        let text = "\(word)"
        guard bytes[position...].starts(with: text.utf8) else { throw unexpected("a value") }
        position += text.utf8.count
        return value
    }

    private mutating func number() throws(ManifestError) -> JSONTree {
        let start = position
        _ = take("-")
        if !take("0") { try digits() }
        if take(".") { try digits() }
        if take("e") || take("E") {
            if !take("+") { _ = take("-") }
            try digits()
        }
        guard position - start <= ManifestLimits.numberLength else {
            throw fault(
                ValueError(
                    expected: "a number of at most \(ManifestLimits.numberLength) digits",
                    found: "\(position - start)"
                ),
                at: start
            )
        }
        let digits = String(decoding: bytes[start..<position], as: UTF8.self)
        if let value = Int64(digits) { return .integer(value) }
        guard let value = Double(digits), value.isFinite else {
            throw fault(
                ValueError(expected: "a number that a Double holds", text: digits),
                at: start
            )
        }
        // Equal numbers have one representation whether written 1.0 or 1e0, as in JSON Schema.
        return Int64(exactly: value).map { .integer($0) } ?? .number(value)
    }

    private mutating func digits() throws(ManifestError) {
        let start = position
        while let byte = current, byte.isDigit { position += 1 }
        if position == start { throw unexpected("a digit") }
    }

    private mutating func string() throws(ManifestError) -> String {
        position += 1
        let start = position
        position = bytes.span.endOfPlainStringContent(from: start)
        guard current == UInt8(ascii: "\"") else { return try escapedString(from: start) }
        position += 1
        return try text(start..<(position - 1))
    }

    /// Parses the rest of a string whose content begins at `start`, from its first escape on.
    private mutating func escapedString(from start: Int) throws(ManifestError) -> String {
        // The bytes are collected and decoded once: a stored manifest has tens of thousands of escapes.
        var content = Array(bytes[start..<position])
        while let byte = current {
            switch byte {
            case UInt8(ascii: "\""):
                position += 1
                return try text(content.span, at: start)
            case UInt8(ascii: "\\"):
                position += 1
                let scalar = try escape()
                if scalar.isASCII {
                    content.append(UInt8(truncatingIfNeeded: scalar.value))
                } else {
                    content += UTF8.encode(scalar) ?? UTF8.encodedReplacementCharacter
                }
                let plain = position
                position = bytes.span.endOfPlainStringContent(from: plain)
                content += bytes[plain..<position]
            default:
                throw unexpected("an escape such as '\\n' for a control character")
            }
        }
        throw fault(
            ValueError(expected: "a '\"' that ends the string", found: "none"),
            at: start - 1
        )
    }

    private mutating func escape() throws(ManifestError) -> Unicode.Scalar {
        guard let byte = current else { throw unexpected("an escape") }
        position += 1
        switch byte {
        case UInt8(ascii: "\""): return "\""
        case UInt8(ascii: "\\"): return "\\"
        case UInt8(ascii: "/"): return "/"
        case UInt8(ascii: "b"): return "\u{8}"
        case UInt8(ascii: "f"): return "\u{C}"
        case UInt8(ascii: "n"): return "\n"
        case UInt8(ascii: "r"): return "\r"
        case UInt8(ascii: "t"): return "\t"
        case UInt8(ascii: "u"): return try unicodeEscape()
        default:
            position -= 1
            throw unexpected("an escape")
        }
    }

    private mutating func unicodeEscape() throws(ManifestError) -> Unicode.Scalar {
        let start = position - 2
        let first = try codeUnit()
        if let scalar = Unicode.Scalar(first) { return scalar }
        guard UTF16.isLeadSurrogate(first), take("\\"), take("u") else {
            throw loneSurrogate(at: start)
        }
        let second = try codeUnit()
        guard UTF16.isTrailSurrogate(second) else { throw loneSurrogate(at: start) }
        let value = 0x10000 + (UInt32(first) - 0xD800) << 10 + (UInt32(second) - 0xDC00)
        guard let scalar = Unicode.Scalar(value) else { throw loneSurrogate(at: start) }
        return scalar
    }

    private mutating func codeUnit() throws(ManifestError) -> UInt16 {
        var value: UInt16 = 0
        for _ in 0..<4 {
            guard let digit = current?.hexadecimalValue else {
                throw unexpected("four hexadecimal digits")
            }
            value = value << 4 | UInt16(digit)
            position += 1
        }
        return value
    }

    private func loneSurrogate(at offset: Int) -> ManifestError {
        fault(ValueError(expected: "a pair of surrogates", found: "one"), at: offset)
    }

    private func text(_ range: Range<Int>) throws(ManifestError) -> String {
        try text(bytes.span.extracting(range), at: range.lowerBound)
    }

    /// Decodes bytes as UTF-8; errors name `offset`.
    private func text(_ bytes: Span<UInt8>, at offset: Int) throws(ManifestError) -> String {
        do {
            return String(copying: try UTF8Span(validating: bytes))
        } catch {
            throw fault(ValueError(expected: "UTF-8", found: "other bytes"), at: offset)
        }
    }

    // MARK: Bytes

    private var current: UInt8? { position < bytes.count ? bytes[position] : nil }

    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard current == UInt8(ascii: character) else { return false }
        position += 1
        return true
    }

    private mutating func skipSpace() {
        while position < bytes.count {
            switch bytes[position] {
            case 0x20, 0x0A, 0x0D, 0x09: position += 1
            default: return
            }
        }
    }

    // MARK: Faults

    private func unexpected(_ expected: String) -> ManifestError {
        guard position < bytes.count else {
            return fault(ValueError(expected: expected, found: "the end"), at: bytes.count)
        }
        let rest = bytes[position...].prefix(4)
        let character = String(decoding: rest, as: UTF8.self).prefix(1)
        return fault(ValueError(expected: expected, text: String(character)), at: position)
    }

    func fault(_ fault: ValueError, at offset: Int) -> ManifestError {
        let before = bytes[..<offset]
        let line = before.count { $0 == UInt8(ascii: "\n") } + 1
        let start = before.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0
        // Continuation bytes of UTF-8 do not count as columns.
        let column = bytes[start..<offset].count { $0 & 0xC0 != 0x80 } + 1
        return .notJSON("line \(line), column \(column): \(fault)")
    }
}

extension UInt8 {
    /// Indicates whether this is an ASCII digit.
    fileprivate var isDigit: Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(self) }

    /// The value of an ASCII hexadecimal digit of either case, or `nil`.
    var hexadecimalValue: UInt8? {
        switch self {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): self - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): self - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): self - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}
