import Foundation

/// A value that is a member of a document of the journal.
///
/// The forms are the journal's own: a type of the control protocol that is coded in another way, or gets
/// other names, is stored as before. A property that a form does not list is not stored.
protocol Storable: Sendable {
    /// Writes the value as the member `name`.
    func store(as name: StoredName, in container: inout StoredWriter) throws

    /// Reads the member `name`; `nil` if there is none.
    static func restored(from name: StoredName, in container: StoredReader) throws -> Self?
}

typealias StoredWriter = KeyedEncodingContainer<StoredName>
typealias StoredReader = KeyedDecodingContainer<StoredName>

/// A value that is stored as an object of JSON, member by member.
protocol StoredDocument: Storable {
    /// The value that members are read into.
    static var blank: Self { get }

    /// The members that are stored.
    static var storedMembers: [StoredMember<Self>] { get }
}

extension StoredDocument {
    fileprivate func write(to container: inout StoredWriter) throws {
        for member in Self.storedMembers { try member.write(self, &container) }
    }

    fileprivate static func read(from container: StoredReader) throws -> Self {
        var value = blank
        for member in storedMembers { try member.read(&value, container) }
        return value
    }

    func store(as name: StoredName, in container: inout StoredWriter) throws {
        var nested = container.nestedContainer(keyedBy: StoredName.self, forKey: name)
        try write(to: &nested)
    }

    static func restored(from name: StoredName, in container: StoredReader) throws -> Self? {
        guard container.contains(name) else { return nil }
        return try read(from: container.nestedContainer(keyedBy: StoredName.self, forKey: name))
    }
}

/// A member of a stored object: its name on disk, and the property with its value.
struct StoredMember<Document>: Sendable {
    fileprivate let write: @Sendable (Document, inout StoredWriter) throws -> Void
    fileprivate let read: @Sendable (inout Document, StoredReader) throws -> Void

    /// Creates a member that every object has.
    init<Value: Storable>(
        _ name: StoredName,
        at path: any WritableKeyPath<Document, Value> & Sendable
    ) {
        write = { try $0[keyPath: path].store(as: name, in: &$1) }
        read = { document, container in
            guard let value = try Value.restored(from: name, in: container) else {
                throw DecodingError.keyNotFound(
                    name,
                    DecodingError.Context(codingPath: [], debugDescription: "it is missing")
                )
            }
            document[keyPath: path] = value
        }
    }

    /// Creates a member that objects have whose property is not `nil`.
    init<Value: Storable>(
        _ name: StoredName,
        at path: any WritableKeyPath<Document, Value?> & Sendable
    ) {
        write = { try $0[keyPath: path]?.store(as: name, in: &$1) }
        read = { $0[keyPath: path] = try Value.restored(from: name, in: $1) }
    }
}

/// The name of a member on disk.
struct StoredName: CodingKey, ExpressibleByStringLiteral {
    let stringValue: String
    var intValue: Int? { nil }

    init(stringLiteral value: String) { stringValue = value }
    init(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }
}

/// A document as a column has it: JSON with the version of its form.
enum StoredForm {
    /// The version of all forms, which every document names.
    ///
    /// A change to a form is a step of ``Journal/migrator`` that rewrites the columns, and the next version.
    static let version = 1

    private static let versionName: StoredName = "version"
    private static let encoder = {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return encoder
    }()
    private static let decoder = JSONDecoder()

    /// Writes a document as the content of a column.
    static func encode(_ document: some StoredDocument) throws -> Data {
        try encoder.encode(Versioned(document: document))
    }

    /// Reads the content of a column.
    ///
    /// - Throws: `DecodingError` for content of another version, and what is damaged.
    static func decode<Document: StoredDocument>(
        _ type: Document.Type,
        from data: Data
    ) throws -> Document {
        try decoder.decode(Versioned<Document>.self, from: data).document
    }

    private struct Versioned<Document: StoredDocument>: Codable {
        let document: Document

        init(document: Document) { self.document = document }

        init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: StoredName.self)
            guard try container.decode(Int.self, forKey: versionName) == version else {
                throw DecodingError.dataCorruptedError(
                    forKey: versionName,
                    in: container,
                    debugDescription: "expected \(version)"
                )
            }
            document = try .read(from: container)
        }

        func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: StoredName.self)
            try container.encode(version, forKey: versionName)
            try document.write(to: &container)
        }
    }
}

/// A value of the standard library, which Foundation writes as it is.
protocol StoredPlainly: Storable, Codable {}

extension StoredPlainly {
    func store(as name: StoredName, in container: inout StoredWriter) throws {
        try container.encode(self, forKey: name)
    }

    static func restored(from name: StoredName, in container: StoredReader) throws -> Self? {
        try container.decodeIfPresent(Self.self, forKey: name)
    }
}

extension UInt32: StoredPlainly {}
extension Array: Storable, StoredPlainly where Element: StoredPlainly {}
extension Dictionary: Storable, StoredPlainly where Key == String, Value: StoredPlainly {}

// The same again: of these types a method of their own is called, which is several times as fast as the one for any type.

extension Bool: StoredPlainly {
    func store(as name: StoredName, in container: inout StoredWriter) throws {
        try container.encode(self, forKey: name)
    }
}

extension Double: StoredPlainly {
    func store(as name: StoredName, in container: inout StoredWriter) throws {
        try container.encode(self, forKey: name)
    }
}

extension Int: StoredPlainly {
    func store(as name: StoredName, in container: inout StoredWriter) throws {
        try container.encode(self, forKey: name)
    }
}

extension Int64: StoredPlainly {
    func store(as name: StoredName, in container: inout StoredWriter) throws {
        try container.encode(self, forKey: name)
    }
}

extension String: StoredPlainly {
    func store(as name: StoredName, in container: inout StoredWriter) throws {
        try container.encode(self, forKey: name)
    }
}

/// A value that is stored as one of another type.
protocol StoredAs: Storable {
    associatedtype StoredValue: Storable

    /// The value that is stored.
    ///
    /// - Throws: `EncodingError` for a value that the journal does not store.
    func storedValue() throws -> StoredValue

    /// Creates a value from a stored one, or returns `nil` if it stands for none.
    init?(storedValue: StoredValue)
}

extension StoredAs {
    func store(as name: StoredName, in container: inout StoredWriter) throws {
        try storedValue().store(as: name, in: &container)
    }

    static func restored(from name: StoredName, in container: StoredReader) throws -> Self? {
        guard let stored = try StoredValue.restored(from: name, in: container) else { return nil }
        guard let value = Self(storedValue: stored) else {
            throw DecodingError.dataCorruptedError(
                forKey: name,
                in: container,
                debugDescription: "expected a value of '\(Self.self)'"
            )
        }
        return value
    }
}

/// A kind that is stored by a name of the journal's.
protocol StoredByName: StoredAs, CaseIterable {
    /// The name on disk; `nil` of a kind that the journal does not store.
    var storedName: String? { get }
}

extension StoredByName {
    func storedValue() throws -> String {
        guard let storedName else {
            throw EncodingError.invalidValue(
                self,
                EncodingError.Context(codingPath: [], debugDescription: "it is not stored")
            )
        }
        return storedName
    }

    init?(storedValue: String) {
        guard let kind = Self.allCases.first(where: { $0.storedName == storedValue }) else {
            return nil
        }
        self = kind
    }
}
