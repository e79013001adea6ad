extension DecodingError {
    /// Maximum size of a text that is parsed to name the location of an error: the parsed value takes several times the memory of the text.
    private static let longestText = 1 << 20

    /// Returns the location and the cause of the error in plain words; `json` is the text that could not be decoded.
    ///
    /// Foundation's own descriptions name Swift types, and not the position of a syntax error. Those of this package, which are kept,
    /// begin with a lower-case letter.
    package func text(in json: [UInt8]) -> String {
        var document: JSONTree?
        if json.count <= Self.longestText {
            do throws(ManifestError) {
                document = try JSONNode(json: json).value
            } catch {
                return "\(error)"
            }
        }
        switch self {
        case .typeMismatch(let type, let context), .valueNotFound(let type, let context):
            return Self.text(of: "expected \(Self.noun(of: type))", at: context, in: document)
        case .keyNotFound(let key, let context):
            return Self.memberPath(of: context)
                + "the member '\(key.stringValue.forDisplay())' is missing"
        case .dataCorrupted(let context):
            if context.debugDescription.first?.isLowercase ?? false {
                return Self.memberPath(of: context) + context.debugDescription
            }
            // Foundation does not tell which number of a valid document it cannot represent.
            if document != nil, context.codingPath.isEmpty {
                return "a value is not within its limits"
            }
            let expected =
                switch document?.value(at: context.codingPath) {
                case .integer?, .number?: "expected a number within the limits"
                default: "expected a known value"
                }
            return Self.text(of: expected, at: context, in: document)
        @unknown default:
            return "it is not valid"
        }
    }

    /// Returns the fault with the path of its member, and with the actual value, if the document has it.
    private static func text(
        of fault: String,
        at context: Context,
        in document: JSONTree?
    ) -> String {
        let found: String? =
            switch document?.value(at: context.codingPath) {
            case nil: nil
            case .string(let text)?: "'\(text.forDisplay(atMost: 60))'"
            case let value?: value.noun
            }
        return memberPath(of: context) + fault + (found.map { ", found \($0)" } ?? "")
    }

    /// Returns the path of a member, such as `'tasks[0].kind': `; empty for the whole document.
    private static func memberPath(of context: Context) -> String {
        let steps = context.codingPath.map { key in
            key.intValue.map { JSONNode.Step.element($0) } ?? .member(key.stringValue)
        }
        return steps.isEmpty ? "" : "'\(ManifestError.path(steps).forDisplay())': "
    }

    /// Returns the kind of JSON value that a type is decoded from.
    private static func noun(of type: Any.Type) -> String {
        let name = String(describing: type)
        return switch name {
        case "String": "a string"
        case "Bool": "a boolean"
        case "Double", "Float": "a number"
        case _ where name.hasPrefix("Int") || name.hasPrefix("UInt"): "a whole number"
        case _ where name.hasPrefix("Array<"): "an array"
        case _ where name.hasPrefix("Dictionary<"): "an object"
        default: "another value"
        }
    }
}

extension JSONTree {
    /// Returns the value at a path, or `nil` if there is none.
    fileprivate func value(at path: [any CodingKey]) -> JSONTree? {
        var value = self
        for key in path {
            let next: JSONTree? =
                if let index = key.intValue {
                    value.elements.indices.contains(index) ? value.elements[index] : nil
                } else {
                    value[key.stringValue]
                }
            guard let next else { return nil }
            value = next
        }
        return value
    }
}
