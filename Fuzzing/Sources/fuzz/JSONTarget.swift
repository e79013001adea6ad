import StageModel
import StageTrust

@testable import StagePublish

/// The strict JSON parser, compact and canonical JSON, and JSON with comments.
///
/// - Parsing the compact form of a value gives an equal value, with the same compact form.
/// - The same holds for the canonical form, unless a string has control characters, which it does not escape.
/// - Blanking comments and trailing commas does not change strict JSON, and a second time changes nothing.
enum JSONTarget: FuzzTarget {
    static func test(_ bytes: [UInt8]) {
        let relaxed = parsed { () throws(ManifestError) in try RelaxedJSON.strict(bytes) }
        if let relaxed {
            require(relaxed.count <= bytes.count, "blanking comments adds nothing")
            let again = parsed { () throws(ManifestError) in try RelaxedJSON.strict(relaxed) }
            require(again == relaxed, "comments are blanked once")
        }
        guard let node = node(bytes) else { return }
        require(relaxed == bytes, "strict JSON has no comments")
        let text = Array(node.value.text.utf8)
        guard let compact = Self.node(text) else { fatalError("compact JSON is no JSON") }
        require(compact.value.isSame(as: node.value), "compact JSON is the same value")
        require(Array(compact.value.text.utf8) == text, "compact JSON stays as it is")
        checkCanonical(node)
    }

    /// Checks the canonical form of a value, if it has one.
    static func checkCanonical(_ node: JSONNode) {
        let form = parsed { () throws(ManifestError) in try CanonicalJSON.bytes(of: node) }
        require((form == nil) == node.value.hasFraction, "all but fractions have a canonical form")
        guard let form else { return }
        let value = Self.node(form)
        guard !form.contains(where: { $0 < 0x20 }) else {
            return require(value == nil, "control characters are escaped in JSON")
        }
        guard let value else { fatalError("canonical JSON is no JSON") }
        require(value.value.isSame(as: node.value), "canonical JSON is the same value")
        let again = parsed { () throws(ManifestError) in try CanonicalJSON.bytes(of: value) }
        require(again == form, "canonical JSON stays as it is")
    }

    private static func node(_ bytes: [UInt8]) -> JSONNode? {
        parsed { () throws(ManifestError) in try JSONNode(json: bytes) }
    }

    static func seeds() -> [[UInt8]] {
        utf8(
            "null",
            "[]",
            "{}",
            " [true, false, null] ",
            #"{"a": {"b": [1, -2.5e3, 0.1, 1e300, -0, 9223372036854775807]}, "": ""}"#,
            #"["\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00", "é", "\u0065\u0301", "日本"]"#,
            "{\"é\": 1, \"z\": 2, \"a\": 3}",
            "// comment\n{\"a\": [1, 2, /* two */ ], }\n",
            String(repeating: "[", count: 64) + String(repeating: "]", count: 64)
        )
    }

    static let words = utf8(
        "null",
        "true",
        "false",
        "{\"",
        "\":",
        "\\u",
        "\\ud83d\\ude00",
        "\\n",
        "//",
        "/*",
        "*/",
        ",]",
        ",}",
        "1e",
        "-0",
        "0.",
        "9223372036854775808",
        "é",
        "e\u{301}",
        "\u{FEFF}"
    )
}

extension JSONTree {
    /// Returns whether two values are equal: numbers by value, strings by bytes, members in any order.
    func isSame(as other: JSONTree) -> Bool {
        switch (self, other) {
        case (.null, .null): return true
        case (.boolean(let left), .boolean(let right)): return left == right
        case (.integer(let left), .integer(let right)): return left == right
        case (.number(let left), .number(let right)): return left == right
        case (.string(let left), .string(let right)): return left.utf8.elementsEqual(right.utf8)
        case (.array(let left), .array(let right)):
            return left.count == right.count && zip(left, right).allSatisfy { $0.isSame(as: $1) }
        case (.object(let left), .object(let right)):
            let (left, right) = (Self.sorted(left), Self.sorted(right))
            return left.count == right.count
                && zip(left, right).allSatisfy {
                    $0.name.utf8.elementsEqual($1.name.utf8) && $0.value.isSame(as: $1.value)
                }
        default: return false
        }
    }

    /// `true` if the value is, or contains, a number that is not a 64-bit integer.
    var hasFraction: Bool {
        switch self {
        case .number: true
        case .array(let values): values.contains { $0.hasFraction }
        case .object(let members): members.contains { $0.value.hasFraction }
        default: false
        }
    }

    private static func sorted(_ members: [Member]) -> [Member] {
        members.sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
    }
}
