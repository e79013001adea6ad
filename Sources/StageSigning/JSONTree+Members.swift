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

    /// The text of a string; `nil` of anything else.
    var string: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    /// The value of an integer; `nil` of anything else.
    var integer: Int? {
        guard case .integer(let value) = self else { return nil }
        return Int(value)
    }

    /// The value of a member.
    subscript(name: String) -> JSONTree? { members.first { $0.name == name }?.value }

    /// The object with a member set, or removed for `nil`.
    func setting(_ name: String, to value: JSONTree?) -> JSONTree {
        var members = members.filter { $0.name != name }
        if let value { members.append(Member(name, value)) }
        return .object(members)
    }
}
