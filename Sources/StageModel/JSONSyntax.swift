/// Finds where a text stops being JSON (RFC 8259), which the decoder does not tell.
struct JSONSyntax {
    /// The place and kind of a fault: `line 2, column 17: expected a value, found 'o'`.
    typealias Fault = String

    private enum Expected: String {
        case value = "a value"
        case valueOrEnd = "a value or ']'"
        case name = "a member's name"
        case nameOrEnd = "a member's name or '}'"
        case colon = "':'"
        case commaOrBracket = "',' or ']'"
        case commaOrBrace = "',' or '}'"
        case end = "the end"
    }

    private let bytes: [UInt8]
    private var index = 0
    private var isInObject: [Bool] = []

    private init(_ bytes: [UInt8]) { self.bytes = bytes }

    /// Returns the first fault of a text, or `nil` if there is none that this finds: text that is not
    /// UTF-8 and numbers of the wrong form are left to the decoder.
    static func firstFault(in bytes: [UInt8]) -> Fault? {
        var syntax = JSONSyntax(bytes)
        return syntax.firstFault()
    }

    private mutating func firstFault() -> Fault? {
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { index = 3 }
        var expected = Expected.value
        while true {
            while let byte = current, [0x20, 0x09, 0x0A, 0x0D].contains(byte) { index += 1 }
            if current == nil, expected == .end { return nil }
            guard let byte = current, let next = step(byte, expected) else {
                return fault(expected.rawValue)
            }
            expected = next
        }
    }

    private var current: UInt8? { index < bytes.count ? bytes[index] : nil }

    /// Takes one token, and returns what has to follow it; `nil` if it is not what was expected.
    private mutating func step(_ byte: UInt8, _ expected: Expected) -> Expected? {
        switch (expected, byte) {
        case (.valueOrEnd, UInt8(ascii: "]")), (.nameOrEnd, UInt8(ascii: "}")),
            (.commaOrBracket, UInt8(ascii: "]")), (.commaOrBrace, UInt8(ascii: "}")):
            index += 1
            isInObject.removeLast()
            return afterValue
        case (.commaOrBracket, UInt8(ascii: ",")):
            index += 1
            return .value
        case (.commaOrBrace, UInt8(ascii: ",")):
            index += 1
            return .name
        case (.name, UInt8(ascii: "\"")), (.nameOrEnd, UInt8(ascii: "\"")):
            return takeString() ? .colon : nil
        case (.colon, UInt8(ascii: ":")):
            index += 1
            return .value
        case (.value, _), (.valueOrEnd, _):
            return takeValue(byte)
        default:
            return nil
        }
    }

    private mutating func takeValue(_ byte: UInt8) -> Expected? {
        switch byte {
        case UInt8(ascii: "{"):
            index += 1
            isInObject.append(true)
            return .nameOrEnd
        case UInt8(ascii: "["):
            index += 1
            isInObject.append(false)
            return .valueOrEnd
        case UInt8(ascii: "\""):
            return takeString() ? afterValue : nil
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"):
            while let byte = current, "+-.eE0123456789".utf8.contains(byte) { index += 1 }
            return afterValue
        default:
            for word in ["true", "false", "null"] where bytes[index...].starts(with: word.utf8) {
                index += word.utf8.count
                return afterValue
            }
            return nil
        }
    }

    private var afterValue: Expected {
        isInObject.last.map { $0 ? .commaOrBrace : .commaOrBracket } ?? .end
    }

    /// Takes a string; where it is none, stays at the byte that no string has there.
    private mutating func takeString() -> Bool {
        index += 1
        while let byte = current, byte >= 0x20 {
            index += 1
            if byte == UInt8(ascii: "\"") { return true }
            guard byte == UInt8(ascii: "\\") else { continue }
            guard let escaped = current, "\"\\/bfnrtu".utf8.contains(escaped) else { return false }
            index += 1
        }
        return false
    }

    private func fault(_ expected: String) -> Fault {
        let before = bytes[..<index]
        let line = before.count { $0 == 0x0A } + 1
        let start = before.lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
        // Bytes that continue a character of UTF-8 are not columns of their own.
        let column = before[start...].count { $0 & 0xC0 != 0x80 } + 1
        var found = "the end"
        if index < bytes.count {
            let text = String(decoding: bytes[index..<min(index + 4, bytes.count)], as: UTF8.self)
            found = "'\(String(text.prefix(1)).forDisplay())'"
        }
        return "line \(line), column \(column): expected \(expected), found \(found)"
    }
}
