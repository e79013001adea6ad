import FoundationEssentials

/// The members of a JSON object, whose faults are reported with the path of the member.
struct JSONMembers<Key: CodingKey> {
    private let container: KeyedDecodingContainer<Key>

    /// Creates the members of the object that `decoder` stands at.
    ///
    /// - Throws: ``ManifestError/invalid(member:_:)`` if it is not an object.
    init(_ decoder: any Decoder, keyedBy keys: Key.Type) throws {
        do {
            container = try decoder.container(keyedBy: keys)
        } catch {
            let found = try? decoder.singleValueContainer().decode(JSONValue.self)
            throw ManifestError.invalid(
                member: ManifestError.path(decoder.codingPath),
                ValueError(expected: "an object", found: found?.noun ?? "nothing")
            )
        }
    }

    /// The names of the members, of which `Key` knows.
    var keys: [Key] { container.allKeys }

    /// Whether there is such a member, and it is not null.
    func has(_ key: Key) -> Bool {
        // What cannot be asked for its nullity is not there.
        container.contains(key) && !((try? container.decodeNil(forKey: key)) ?? true)
    }

    /// Returns the value of a member; `expected` names its type for the message.
    func value<Value: Decodable>(
        _ type: Value.Type,
        _ key: Key,
        expected: String
    ) throws -> Value {
        do {
            return try container.decode(type, forKey: key)
        } catch let error as ManifestError {
            throw error
        } catch {
            throw fault(key, ValueError(expected: expected, found: found(key)))
        }
    }

    /// Returns a string.
    func string(_ key: Key) throws -> String { try value(String.self, key, expected: "a string") }

    /// Returns an array of strings, empty if there is no such member.
    func strings(_ key: Key, atMost limit: Int) throws -> [String] {
        guard has(key) else { return [] }
        let strings = try value([JSONString].self, key, expected: "an array of strings").map(\.text)
        try check(count: strings.count, limit: limit, of: key)
        return strings
    }

    /// Returns a whole number within `range`.
    func number(_ key: Key, in range: ClosedRange<Int>) throws -> Int {
        let number = try value(Int.self, key, expected: "a whole number")
        guard range.contains(number) else {
            let limits =
                range.upperBound == .max
                ? "of \(range.lowerBound) or more"
                : "from \(range.lowerBound) to \(range.upperBound)"
            throw fault(key, ValueError(expected: "a whole number \(limits)", found: "\(number)"))
        }
        return number
    }

    /// Returns a number of bytes of at most `limit`.
    func byteCount(_ key: Key, atMost limit: ByteCount) throws -> ByteCount {
        ByteCount(try number(key, in: 0...Int(limit.rawValue)))
    }

    /// Returns what `make` makes of a string.
    func text<Value>(
        _ key: Key,
        _ make: (String) throws(ValueError) -> Value
    ) throws -> Value {
        let text = try string(key)
        do throws(ValueError) {
            return try make(text)
        } catch {
            throw fault(key, error)
        }
    }

    /// Refuses an array of more than `limit` elements.
    func check(count: Int, limit: Int, of key: Key) throws {
        guard count <= limit else {
            throw fault(key, ValueError(expected: "at most \(limit) elements", found: "\(count)"))
        }
    }

    /// Checks each of some strings, and reports the path of the element.
    func check<Elements: Sequence>(
        _ elements: Elements,
        of key: Key,
        _ check: (Elements.Element) throws(ValueError) -> Void
    ) throws {
        for (index, element) in elements.enumerated() {
            do throws(ValueError) {
                try check(element)
            } catch {
                throw ManifestError.invalid(member: "\(path(key))[\(index)]", error)
            }
        }
    }

    /// The path of a member.
    func path(_ key: Key) -> String { ManifestError.path(container.codingPath + [key]) }

    /// The error for a member.
    func fault(_ key: Key, _ error: ValueError) -> ManifestError {
        .invalid(member: path(key), error)
    }

    /// What there is instead, in words.
    func found(_ key: Key) -> String {
        // A member that cannot be read as any value is absent.
        (try? container.decode(JSONValue.self, forKey: key))?.noun ?? "nothing"
    }
}

/// A string in an array, whose faults name the element.
struct JSONString: Decodable {
    var text: String

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        do {
            text = try container.decode(String.self)
        } catch {
            // Whatever is no JSON value at all has been refused before.
            let found = try? container.decode(JSONValue.self)
            throw ManifestError.invalid(
                member: ManifestError.path(decoder.codingPath),
                ValueError(expected: "a string", found: found?.noun ?? "nothing")
            )
        }
    }
}

extension ManifestError {
    /// The path of a member as people write it; the whole document has one too.
    static func path(_ codingPath: [any CodingKey]) -> String {
        var path = ""
        for key in codingPath {
            if let index = key.intValue {
                path += "[\(index)]"
            } else {
                path += path.isEmpty ? key.stringValue : ".\(key.stringValue)"
            }
        }
        return path.isEmpty ? "the document" : path
    }

    /// Decodes a document of at most `limit` bytes.
    static func decode<Value: Decodable>(
        _ type: Value.Type,
        from json: [UInt8],
        limit: Int
    ) throws(ManifestError) -> Value {
        guard json.count <= limit else {
            throw .tooLarge(limit: ByteCount(limit), found: ByteCount(json.count))
        }
        // JSON of other encodings than UTF-8 has them; valid JSON in UTF-8 has none.
        guard !json.contains(0) else { throw .notJSON("expected UTF-8, found a zero byte") }
        do {
            return try JSONDecoder().decode(type, from: Data(json))
        } catch let error as ManifestError {
            throw error
        } catch DecodingError.dataCorrupted(let context) where context.codingPath.isEmpty {
            throw .notJSON(JSONSyntax.firstFault(in: json) ?? context.debugDescription)
        } catch {
            throw .notJSON("\(error)")
        }
    }

    /// Refuses a document of another major version.
    static func check(version found: Int, known: Int) throws(ManifestError) {
        guard found == known else { throw .unknownVersion(found: found, known: known) }
    }
}
