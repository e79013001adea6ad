extension JSONTree {
    /// The members of an object; empty for other values.
    package var members: [Member] {
        guard case .object(let members) = self else { return [] }
        return members
    }

    /// The elements of an array; empty for other values.
    package var elements: [JSONTree] {
        guard case .array(let elements) = self else { return [] }
        return elements
    }

    /// The text of a string; `nil` for other values.
    package var string: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    /// The value of an integer; `nil` for other values.
    package var integer: Int? {
        guard case .integer(let value) = self else { return nil }
        return Int(value)
    }

    /// The value of a member; `nil` if it is missing or this is not an object.
    package subscript(name: String) -> JSONTree? {
        get { members.first { $0.name == name }?.value }
        set { self = setting(name, to: newValue) }
    }

    /// Returns the object with a member added or replaced, or removed for `nil`; a replaced member keeps its
    /// position.
    package func setting(_ name: String, to value: JSONTree?) -> JSONTree {
        var members = members
        guard let value else { return .object(members.filter { $0.name != name }) }
        if let index = members.firstIndex(where: { $0.name == name }) {
            members[index] = Member(name, value)
        } else {
            members.append(Member(name, value))
        }
        return .object(members)
    }
}
