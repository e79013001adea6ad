import Foundation

/// Value that can be a member of a stored document.
///
/// The journal has its own encoding, so that changed names or encodings of the control protocol do not change stored
/// data. Properties that a document does not list are not stored.
protocol Storable: Sendable {
    /// Encodes the value as the member `name`.
    func store(as name: StoredName, in container: inout StoredWriter) throws

    /// Decodes the member `name`; returns `nil` if it is missing.
    static func restored(from name: StoredName, in container: StoredReader) throws -> Self?
}

typealias StoredWriter = KeyedEncodingContainer<StoredName>
typealias StoredReader = KeyedDecodingContainer<StoredName>

/// Value stored as a JSON object.
protocol StoredDocument: Storable {
    /// Initial value, which decoded members overwrite.
    static var blank: Self { get }

    /// Members of the JSON object.
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

/// Member of a stored document: its name on disk and its property.
struct StoredMember<Document>: Sendable {
    fileprivate let write: @Sendable (Document, inout StoredWriter) throws -> Void
    fileprivate let read: @Sendable (inout Document, StoredReader) throws -> Void

    /// Creates a required member.
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

    /// Creates an optional member, left out while the property is `nil`.
    init<Value: Storable>(
        _ name: StoredName,
        at path: any WritableKeyPath<Document, Value?> & Sendable
    ) {
        write = { try $0[keyPath: path]?.store(as: name, in: &$1) }
        read = { $0[keyPath: path] = try Value.restored(from: name, in: $1) }
    }
}

/// Name of a member on disk.
struct StoredName: CodingKey, ExpressibleByStringLiteral {
    let stringValue: String
    var intValue: Int? { nil }

    init(stringLiteral value: String) { stringValue = value }
    init(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }
}

/// Encoding of documents in the journal's columns: JSON with a version.
enum StoredForm {
    /// Version of all documents, stored in each.
    ///
    /// Changing a stored form requires a migration (``Journal/migrator``) that rewrites the columns, and the next
    /// version.
    static let version = 1

    private static let versionName: StoredName = "version"
    private static let encoder = {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return encoder
    }()
    private static let decoder = JSONDecoder()

    /// Encodes a document for a column.
    static func encode(_ document: some StoredDocument) throws -> Data {
        try encoder.encode(Versioned(document: document))
    }

    /// Decodes the content of a column.
    ///
    /// - Throws: `DecodingError` for damaged content and for another version.
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

/// Value of the standard library with its usual JSON encoding.
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

// Repeated for these types, because the concrete overloads are several times as fast as the generic method.

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

/// Value stored by converting it to another type.
protocol StoredAs: Storable {
    associatedtype StoredValue: Storable

    /// Returns the value to store.
    ///
    /// - Throws: `EncodingError` for a value that cannot be stored.
    func storedValue() throws -> StoredValue

    /// Creates a value from the stored one; fails if that is invalid.
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

/// Enumeration stored by a name that is independent of its cases' names.
protocol StoredByName: StoredAs, CaseIterable {
    /// Name on disk; `nil` for a case that is never stored.
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
