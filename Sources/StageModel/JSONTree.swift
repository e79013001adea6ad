/// A JSON value as it was read: members in their order, each name once.
package indirect enum JSONTree {
    case null
    case boolean(Bool)
    case integer(Int64)
    case number(Double)
    case string(String)
    case array([JSONTree])
    case object([Member])

    /// A member of an object.
    package struct Member {
        package let name: String
        package let value: JSONTree

        package init(_ name: String, _ value: JSONTree) {
            self.name = name
            self.value = value
        }
    }

    /// The value's type with its article, for messages; the value itself where it is a number.
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
        var text = ""
        write(to: &text)
        return text
    }

    private func write(to text: inout String) {
        switch self {
        case .null: text += "null"
        case .boolean(let value): text += value ? "true" : "false"
        case .integer(let value): text += "\(value)"
        case .number(let value): text += "\(value)"
        case .string(let string): Self.write(string, to: &text)
        case .array(let values):
            text += "["
            for (index, value) in values.enumerated() {
                if index > 0 { text += "," }
                value.write(to: &text)
            }
            text += "]"
        case .object(let members):
            text += "{"
            for (index, member) in members.sorted(by: { $0.name < $1.name }).enumerated() {
                if index > 0 { text += "," }
                Self.write(member.name, to: &text)
                text += ":"
                member.value.write(to: &text)
            }
            text += "}"
        }
    }

    private static func write(_ string: String, to text: inout String) {
        text += "\""
        defer { text += "\"" }
        if string.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x22 && $0 != 0x5C }) {
            text += string
            return
        }
        for scalar in string.unicodeScalars {
            switch scalar {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            case "\u{8}": text += "\\b"
            case "\u{C}": text += "\\f"
            case "\n": text += "\\n"
            case "\r": text += "\\r"
            case "\t": text += "\\t"
            case "\u{0}"..<" ":
                let digits = String(scalar.value, radix: 16)
                text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: text.unicodeScalars.append(scalar)
            }
        }
    }
}

/// A JSON value and where it is.
package struct JSONNode {
    package let value: JSONTree
    package let path: [Step]

    /// Creates the node of a value, which is a document of its own unless `path` leads to it.
    package init(value: JSONTree, path: [Step] = []) {
        self.value = value
        self.path = path
    }

    /// What leads from a value to one within it.
    package enum Step {
        case member(String)
        case element(Int)
    }

    /// The error for the value.
    package func fault(_ error: ValueError) -> ManifestError {
        .invalid(member: ManifestError.path(path), error)
    }

    /// The elements of an array, or `nil` if this is none.
    package var elements: [JSONNode]? {
        guard case .array(let values) = value else { return nil }
        return values.enumerated().map { index, value in
            JSONNode(value: value, path: path + [.element(index)])
        }
    }

    /// The text, or `nil` if this is no string.
    package var string: String? {
        guard case .string(let text) = value else { return nil }
        return text
    }
}

/// What is made of a JSON value.
package protocol JSONReadable {
    /// Reads the value.
    ///
    /// - Throws: ``ManifestError/invalid(member:_:)`` for the first member that is wrong.
    init(reading node: JSONNode) throws(ManifestError)
}

extension Array: JSONReadable where Element: JSONReadable {
    /// Reads the elements of an array.
    package init(reading node: JSONNode) throws(ManifestError) {
        guard let nodes = node.elements else {
            throw node.fault(ValueError(expected: "an array", found: node.value.noun))
        }
        self = []
        reserveCapacity(nodes.count)
        for node in nodes { append(try Element(reading: node)) }
    }
}
