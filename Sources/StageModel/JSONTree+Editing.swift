extension JSONTree {
    /// The members of an object; none of anything else.
    package var members: [Member] {
        guard case .object(let members) = self else { return [] }
        return members
    }

    /// The elements of an array; none of anything else.
    package var elements: [JSONTree] {
        guard case .array(let elements) = self else { return [] }
        return elements
    }

    /// The text of a string; `nil` of anything else.
    package var string: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    /// The value of an integer; `nil` of anything else.
    package var integer: Int? {
        guard case .integer(let value) = self else { return nil }
        return Int(value)
    }

    /// The value of a member; `nil` where there is none, and of anything but an object.
    package subscript(name: String) -> JSONTree? {
        get { members.first { $0.name == name }?.value }
        set { self = setting(name, to: newValue) }
    }

    /// Returns the object with a member set, in its place where it is there already, or removed for `nil`.
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
