extension JSONNode {
    /// Returns the members, in order, of an object whose names are data.
    ///
    /// - Throws: ``ManifestError/invalid(member:_:)`` if the value is not an object.
    package func members() throws(ManifestError) -> [(name: String, node: JSONNode)] {
        guard case .object(let members) = value else {
            throw fault(ValueError(expected: "an object", found: value.noun))
        }
        return members.map { member in
            (member.name, JSONNode(value: member.value, path: path + [.member(member.name)]))
        }
    }

    /// Parses a JSON text, without a limit of its length.
    ///
    /// - Throws: ``ManifestError/notJSON(_:)`` if the text is not JSON.
    package init(json: [UInt8]) throws(ManifestError) {
        var parser = JSONParser(json)
        self.init(value: try parser.document(), path: [])
    }
}
