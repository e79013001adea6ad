/// The members of a JSON object; errors name the path of the member.
package struct JSONMembers<Key: CodingKey> {
    private let members: [JSONTree.Member]
    private let node: JSONNode

    /// Creates the members of an object.
    ///
    /// - Throws: ``ManifestError/invalid(member:_:)`` if it is not an object.
    package init(_ node: JSONNode, keyedBy keys: Key.Type) throws(ManifestError) {
        guard case .object(let members) = node.value else {
            throw node.fault(ValueError(expected: "an object", found: node.value.noun))
        }
        self.members = members
        self.node = node
    }

    /// The names of the members.
    package var names: [String] { members.map(\.name) }

    /// Returns whether the member exists and is not null.
    package func has(_ key: Key) -> Bool {
        guard let value = value(key) else { return false }
        if case .null = value { return false }
        return true
    }

    private func value(_ key: Key) -> JSONTree? {
        let name = key.stringValue
        return members.first { $0.name == name }?.value
    }

    /// Returns a member and its path; errors name `expected` as its type.
    package func node(_ key: Key, expected: String) throws(ManifestError) -> JSONNode {
        guard let value = value(key) else {
            throw fault(for: key, ValueError(expected: expected, found: "nothing"))
        }
        return JSONNode(value: value, path: node.path + [.member(key.stringValue)])
    }

    /// Decodes a member.
    package func value<Value: JSONReadable>(
        _ type: Value.Type,
        for key: Key,
        expected: String = "an object"
    ) throws(ManifestError) -> Value {
        try Value(reading: try node(key, expected: expected))
    }

    /// Decodes a member that is an array.
    package func values<Value: JSONReadable>(
        _ type: Value.Type,
        for key: Key,
        expected: String,
        atMost limit: Int
    ) throws(ManifestError) -> [Value] {
        let node = try node(key, expected: expected)
        guard let elements = node.elements else {
            throw node.fault(ValueError(expected: expected, found: node.value.noun))
        }
        guard elements.count <= limit else {
            throw fault(
                for: key,
                ValueError(
                    expected: "at most \(limit.quantity(of: "element"))",
                    found: "\(elements.count)"
                )
            )
        }
        var values: [Value] = []
        values.reserveCapacity(elements.count)
        for element in elements { values.append(try Value(reading: element)) }
        return values
    }

    /// Returns a string member.
    package func string(_ key: Key) throws(ManifestError) -> String {
        guard case .string(let text)? = value(key) else {
            throw fault(for: key, ValueError(expected: "a string", found: found(key)))
        }
        return text
    }

    /// Returns a member that is an array of strings, empty if it is missing.
    package func strings(_ key: Key, atMost limit: Int) throws(ManifestError) -> [String] {
        guard has(key) else { return [] }
        return try values(
            JSONString.self,
            for: key,
            expected: "an array of strings",
            atMost: limit
        ).map(\.text)
    }

    /// Returns a boolean member.
    package func boolean(_ key: Key) throws(ManifestError) -> Bool {
        guard case .boolean(let value) = try node(key, expected: "a boolean").value else {
            throw fault(for: key, ValueError(expected: "a boolean", found: found(key)))
        }
        return value
    }

    /// Returns a member that is a whole number within `range`.
    package func number(_ key: Key, in range: ClosedRange<Int>) throws(ManifestError) -> Int {
        guard case .integer(let value)? = value(key), let number = Int(exactly: value) else {
            throw fault(for: key, ValueError(expected: "a whole number", found: found(key)))
        }
        guard range.contains(number) else {
            let limits =
                range.upperBound == .max
                ? "of \(range.lowerBound) or more"
                : "from \(range.lowerBound) to \(range.upperBound)"
            throw fault(
                for: key,
                ValueError(expected: "a whole number \(limits)", found: "\(number)")
            )
        }
        return number
    }

    /// Returns a member that is a number of bytes, at most `limit`.
    package func byteCount(_ key: Key, atMost limit: ByteCount) throws(ManifestError) -> ByteCount {
        ByteCount(try number(key, in: 0...Int(limit.rawValue)))
    }

    /// Returns a string member converted with `make`.
    package func text<Value>(
        _ key: Key,
        as make: (String) throws(ValueError) -> Value
    ) throws(ManifestError) -> Value {
        let text = try string(key)
        do throws(ValueError) {
            return try make(text)
        } catch {
            throw fault(for: key, error)
        }
    }

    /// Returns a pack's `userInfo` as compact JSON, or `nil` if it is missing.
    package func userInfo(_ key: Key) throws(ManifestError) -> String? {
        guard has(key) else { return nil }
        let text = try node(key, expected: "a value").value.text
        guard text.utf8.count <= ManifestLimits.userInfoLength else {
            let expected = "at most \(ManifestLimits.userInfoLength) bytes as compact JSON"
            throw fault(for: key, ValueError(expected: expected, found: "\(text.utf8.count)"))
        }
        return text
    }

    /// Checks each element; errors name the path of the element.
    package func check<Elements: Sequence>(
        _ elements: Elements,
        of key: Key,
        check: (Elements.Element) throws(ValueError) -> Void
    ) throws(ManifestError) {
        for (index, element) in elements.enumerated() {
            do throws(ValueError) {
                try check(element)
            } catch {
                throw .invalid(member: "\(path(key))[\(index)]", error)
            }
        }
    }

    /// Returns the path of a member.
    package func path(_ key: Key) -> String {
        ManifestError.path(node.path + [.member(key.stringValue)])
    }

    /// Returns the error for a member.
    package func fault(for key: Key, _ error: ValueError) -> ManifestError {
        .invalid(member: path(key), error)
    }

    /// Returns the type of the member's actual value, for messages.
    package func found(_ key: Key) -> String { value(key)?.noun ?? "nothing" }
}

extension JSONMembers where Key: CaseIterable {
    /// Throws if the object has a member with an unknown name.
    package func checkForUnknownMembers() throws(ManifestError) {
        let known = Key.allCases.map(\.stringValue)
        for name in names where !known.contains(name) {
            let list = known.map { "'\($0)'" }.joined(separator: ", ")
            let similar = name.mostSimilar(in: known)
            let question = similar.map { "; did you mean '\($0)'?" } ?? ""
            throw .invalid(
                member: ManifestError.path(node.path + [.member(name)]),
                ValueError(expected: "a member of \(list)", found: "an unknown one\(question)")
            )
        }
    }
}

/// A string in an array; errors name the element.
package struct JSONString: JSONReadable {
    /// The string.
    package var text: String

    package init(reading node: JSONNode) throws(ManifestError) {
        guard let text = node.string else {
            throw node.fault(ValueError(expected: "a string", found: node.value.noun))
        }
        self.text = text
    }
}

extension ManifestError {
    /// Returns a path for messages, such as `packs[3].archive`; the root is 'the document'.
    package static func path(_ steps: [JSONNode.Step]) -> String {
        var path = ""
        for step in steps {
            switch step {
            case .element(let index): path += "[\(index)]"
            case .member(let name): path += path.isEmpty ? name : ".\(name)"
            }
        }
        return path.isEmpty ? "the document" : path
    }

    /// Decodes a document of at most `limit` bytes, which may come from anyone.
    package static func decode<Value: JSONReadable>(
        _ type: Value.Type,
        from json: [UInt8],
        limit: Int
    ) throws(ManifestError) -> Value {
        guard json.count <= limit else {
            throw .tooLarge(limit: ByteCount(limit), found: ByteCount(json.count))
        }
        // Zero bytes occur in other encodings than UTF-8; valid JSON in UTF-8 has none.
        guard !json.contains(0) else { throw .notJSON("expected UTF-8, found a zero byte") }
        try CombiningSequence.check(json: json)
        var parser = JSONParser(json)
        return try Value(reading: JSONNode(value: try parser.document(), path: []))
    }

    /// Throws for a document of another major version.
    package static func check(version found: Int, known: Int) throws(ManifestError) {
        guard found == known else { throw .unknownVersion(found: found, known: known) }
    }
}
