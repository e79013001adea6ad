import StageDisplay

/// The name of the schema of a JSON document that a command prints, as in `Manifests/output.schema.json`.
///
/// The number at the end of the name increases when a member is removed or changes its meaning, but not when
/// members are added.
struct OutputSchema: Sendable {
    /// The schema of the running command's output.
    @TaskLocal static var current = OutputSchema("stagepack")
    /// The schema of a failure.
    static let error = OutputSchema("error")

    /// The value of the member `schema`.
    let text: String

    /// Creates the name of a schema, usually from the names of the command and its parents.
    init(_ name: String) { text = "stagepack/\(name)/1" }
}

/// A value with the name of its schema.
struct OutputDocument<Value: Encodable>: Encodable {
    var schema: OutputSchema
    var value: Value

    private enum Key: String, CodingKey { case schema }

    /// Encodes the name of the schema and the members of the value, which must be an object.
    func encode(to encoder: any Encoder) throws {
        try value.encode(to: encoder)
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(schema.text, forKey: .schema)
    }
}

/// A list of values, which is printed as an array in a JSON object, or with one value on each line.
struct Listing<Element: Encodable & CustomStringConvertible>: Encodable, CustomStringConvertible {
    var elements: [Element]
    /// The name of the array's member.
    var name = "items"

    var description: String { elements.map(\.description).joined(separator: "\n") }

    private struct Key: CodingKey {
        var stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(elements, forKey: Key(stringValue: name))
    }
}

extension Listing: StyledReport where Element: StyledReport {
    var styled: [StyledText] { elements.flatMap(\.styled) }
}
