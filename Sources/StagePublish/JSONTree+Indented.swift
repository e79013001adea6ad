import StageModel

extension JSONTree {
    /// Returns the value as indented JSON: a line for each member and element, with members in their order.
    ///
    /// Arrays of scalar values take one line.
    func indented(_ indentation: String = "") -> String {
        let inner = indentation + "  "
        switch self {
        case .object(let members) where !members.isEmpty:
            let lines = members.map { member in
                "\(inner)\(JSONTree.string(member.name).text): \(member.value.indented(inner))"
            }
            return "{\n\(lines.joined(separator: ",\n"))\n\(indentation)}"
        case .array(let elements) where elements.contains(where: \.isNested):
            let lines = elements.map { inner + $0.indented(inner) }
            return "[\n\(lines.joined(separator: ",\n"))\n\(indentation)]"
        case .array(let elements):
            return "[\(elements.map(\.text).joined(separator: ", "))]"
        case .object, .null, .boolean, .integer, .number, .string:
            return text
        }
    }

    private var isNested: Bool {
        switch self {
        case .object, .array: true
        default: false
        }
    }
}
