import StageModel

extension JSONTree {
    /// The members of an object; none of anything else.
    var members: [Member] {
        guard case .object(let members) = self else { return [] }
        return members
    }

    /// The elements of an array; none of anything else.
    var elements: [JSONTree] {
        guard case .array(let elements) = self else { return [] }
        return elements
    }

    /// The value of a member.
    subscript(name: String) -> JSONTree? { members.first { $0.name == name }?.value }

    /// The object with a member set, in its place where it is there already.
    func setting(_ name: String, to value: JSONTree) -> JSONTree {
        var members = members
        if let index = members.firstIndex(where: { $0.name == name }) {
            members[index] = Member(name, value)
        } else {
            members.append(Member(name, value))
        }
        return .object(members)
    }

    /// The value as JSON for people: a line for each member and element, the members in their order.
    ///
    /// Arrays of values that hold no others are one line.
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
