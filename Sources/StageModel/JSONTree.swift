/// A parsed JSON value; members keep their order, and their names are unique.
package enum JSONTree {
    case null
    case boolean(Bool)
    case integer(Int64)
    case number(Double)
    case string(String)
    case array([JSONTree])
    case object([Member])

    /// A member of an object.
    package struct Member {
        /// The name, without escapes.
        package let name: String
        /// The value.
        package let value: JSONTree

        /// Creates a member.
        package init(_ name: String, _ value: JSONTree) {
            self.name = name
            self.value = value
        }
    }

    /// The value's type with its article, for messages; numbers are named by their value.
    package var noun: String {
        switch self {
        case .null: "null"
        case .boolean: "a boolean"
        case .integer(let number): "\(number)"
        case .number(let number): "\(number)"
        case .string: "a string"
        case .array: "an array"
        case .object: "an object"
        }
    }

    /// The value as compact JSON with its members sorted by name.
    package var text: String {
        var bytes: [UInt8] = []
        write(to: &bytes)
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The value as compact JSON with a newline.
    package var line: [UInt8] {
        var bytes: [UInt8] = []
        write(to: &bytes)
        return bytes + [UInt8(ascii: "\n")]
    }

    /// Appends the value as compact JSON with its members sorted by name.
    package func write(to bytes: inout [UInt8]) {
        switch self {
        case .null: bytes += "null".utf8
        case .boolean(let value): bytes += (value ? "true" : "false").utf8
        case .integer(let value): bytes += String(value).utf8
        case .number(let value): bytes += "\(value)".utf8
        case .string(let string): Self.write(string, to: &bytes)
        case .array(let values):
            bytes.append(UInt8(ascii: "["))
            for (index, value) in values.enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                value.write(to: &bytes)
            }
            bytes.append(UInt8(ascii: "]"))
        case .object(let members): Self.write(members, to: &bytes)
        }
    }

    private static func write(_ members: [Member], to bytes: inout [UInt8]) {
        let isSorted = zip(members, members.dropFirst()).allSatisfy { $0.name < $1.name }
        bytes.append(UInt8(ascii: "{"))
        let sorted = isSorted ? members : members.sorted { $0.name < $1.name }
        for (index, member) in sorted.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            write(member.name, to: &bytes)
            bytes.append(UInt8(ascii: ":"))
            member.value.write(to: &bytes)
        }
        bytes.append(UInt8(ascii: "}"))
    }

    private static func write(_ string: String, to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "\""))
        defer { bytes.append(UInt8(ascii: "\"")) }
        let start = bytes.count
        bytes += string.utf8
        let isPlain = bytes[start...].allSatisfy { $0 >= 0x20 && $0 != 0x22 && $0 != 0x5C }
        guard !isPlain else { return }
        bytes.removeLast(bytes.count - start)
        for byte in string.utf8 {
            switch byte {
            case UInt8(ascii: "\""): bytes += "\\\"".utf8
            case UInt8(ascii: "\\"): bytes += "\\\\".utf8
            case 0x08: bytes += "\\b".utf8
            case 0x0C: bytes += "\\f".utf8
            case UInt8(ascii: "\n"): bytes += "\\n".utf8
            case UInt8(ascii: "\r"): bytes += "\\r".utf8
            case UInt8(ascii: "\t"): bytes += "\\t".utf8
            case 0..<0x20:
                let digits = String(byte, radix: 16)
                bytes += ("\\u" + String(repeating: "0", count: 4 - digits.count) + digits).utf8
            default: bytes.append(byte)
            }
        }
    }
}

/// A JSON value and its path in the document.
package struct JSONNode {
    /// The value.
    package let value: JSONTree
    /// The members and elements that lead from the document's root to the value.
    package let path: [Step]

    /// Creates a node; without a `path`, the value is the root of a document.
    package init(value: JSONTree, path: [Step] = []) {
        self.value = value
        self.path = path
    }

    /// A step from a value to one within it.
    package enum Step {
        case member(String)
        case element(Int)
    }

    /// Returns the error for this value.
    package func fault(_ error: ValueError) -> ManifestError {
        .invalid(member: ManifestError.path(path), error)
    }

    /// The elements of an array, or `nil` for other values.
    package var elements: [JSONNode]? {
        guard case .array(let values) = value else { return nil }
        return values.enumerated().map { index, value in
            JSONNode(value: value, path: path + [.element(index)])
        }
    }

    /// The text of a string, or `nil` for other values.
    package var string: String? {
        guard case .string(let text) = value else { return nil }
        return text
    }
}

/// A type that is decoded from a JSON value.
package protocol JSONReadable {
    /// Decodes the value.
    ///
    /// - Throws: ``ManifestError/invalid(member:_:)`` for the first invalid member.
    init(reading node: JSONNode) throws(ManifestError)
}

extension Array: JSONReadable where Element: JSONReadable {
    /// Decodes the elements of an array.
    package init(reading node: JSONNode) throws(ManifestError) {
        guard let nodes = node.elements else {
            throw node.fault(ValueError(expected: "an array", found: node.value.noun))
        }
        self = []
        reserveCapacity(nodes.count)
        for node in nodes { append(try Element(reading: node)) }
    }
}
