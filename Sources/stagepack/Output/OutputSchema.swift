import StageDisplay

/// The shape of a JSON document that a command prints, by its name in `Manifests/output.schema.json`.
///
/// The number behind the name becomes another one when a member is removed or changes its meaning; members may be
/// added.
struct OutputSchema: Sendable {
    /// The shape of what the running command prints.
    @TaskLocal static var current = OutputSchema("stagepack")
    /// The shape of a failure.
    static let error = OutputSchema("error")

    /// The value of the member `schema`.
    let text: String

    /// Creates the name of a shape: as a rule the words that call the command.
    init(_ name: String) { text = "stagepack/\(name)/1" }
}

/// A value with the name of its shape.
struct OutputDocument<Value: Encodable>: Encodable {
    var schema: OutputSchema
    var value: Value

    private enum Key: String, CodingKey { case schema }

    /// Encodes the members of the value, which has to be an object, and the name.
    func encode(to encoder: any Encoder) throws {
        try value.encode(to: encoder)
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(schema.text, forKey: .schema)
    }
}

/// A list of values, which prints as the array of a JSON object, or as one line each.
struct Listing<Element: Encodable & CustomStringConvertible>: Encodable, CustomStringConvertible {
    var elements: [Element]
    /// The member that has the array.
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
