/// The names of the members that a format defines for an object, and for the objects in it.
struct MemberNames: Sendable {
    private var names: [String: MemberNames?] = [:]

    /// Creates the names of an object's coding keys.
    ///
    /// - Parameters:
    ///   - keys: The coding keys.
    ///   - nested: The names of members that are objects, or arrays of objects.
    init<Key: CodingKey & CaseIterable & Hashable>(
        _ keys: Key.Type,
        nested: [Key: MemberNames] = [:]
    ) {
        for key in keys.allCases { names[key.stringValue] = .some(nested[key]) }
    }

    /// Creates the names of an object whose members are objects with the same names.
    init(_ members: [String], of names: MemberNames) {
        for member in members { self.names[member] = .some(names) }
    }

    /// Returns the unknown members of a value, and of the values in it, that resemble a member that is absent.
    func misspelt(in tree: JSONTree, at path: [JSONNode.Step] = []) -> [MisspeltMember] {
        switch tree {
        case .object(let members):
            let absent = names.keys.filter { name in !members.contains { $0.name == name } }
            return members.flatMap { member -> [MisspeltMember] in
                let path = path + [.member(member.name)]
                if let known = names[member.name] {
                    return known?.misspelt(in: member.value, at: path) ?? []
                }
                return member.name.mostSimilar(in: absent.sorted()).map { name in
                    [MisspeltMember(path: ManifestError.path(path), name: name)]
                } ?? []
            }
        case .array(let elements):
            return elements.enumerated().flatMap { index, element in
                misspelt(in: element, at: path + [.element(index)])
            }
        default: return []
        }
    }
}

/// A member that readers ignore since the format does not define it, and that resembles a defined one.
package struct MisspeltMember: Equatable, Sendable, CustomStringConvertible {
    /// The path of the member, such as `packs[3].polcy`.
    package var path: String
    /// The name of the defined member.
    package var name: String

    /// The finding without the path, as a fragment.
    package var finding: String { "it is ignored, as an unknown member: did you mean '\(name)'?" }

    /// The path and the finding, as a fragment.
    package var description: String { "\(path): \(finding)" }
}

extension Manifest {
    /// Returns the members of a manifest that are ignored, and are probably misspelt; none if it is not JSON.
    package static func misspeltMembers(in json: [UInt8]) -> [MisspeltMember] {
        memberNames.misspelt(inDocument: json)
    }
}

extension Registration {
    /// Returns the members of a registration that are ignored, and are probably misspelt; none if it is not
    /// JSON.
    package static func misspeltMembers(in json: [UInt8]) -> [MisspeltMember] {
        memberNames.misspelt(inDocument: json)
    }
}

extension MemberNames {
    fileprivate func misspelt(inDocument json: [UInt8]) -> [MisspeltMember] {
        // The parser of the format reports a text that is not JSON.
        guard let node = try? JSONNode(json: json) else { return [] }
        return misspelt(in: node.value)
    }
}
