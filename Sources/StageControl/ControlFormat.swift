package import FoundationEssentials
import StageModel

/// Encoding of messages between the daemon and its clients: JSON with RFC 3339 dates in milliseconds.
///
/// Readers ignore unknown members.
package enum ControlFormat {
    /// Version of the protocol, the first component of every path.
    package static let version = "v1"

    /// Maximum bytes of a request's body.
    package static let bodyLimit = 1 << 20

    /// Maximum number of tasks that one request creates or changes.
    package static let taskLimit = 1000

    /// Interval of heartbeats in an event stream.
    package static let heartbeat = Duration.seconds(15)

    /// Encodes a value on one line.
    package static func encode(_ value: some Encodable) throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .custom { date, encoder in
            var container = encoder.singleValueContainer()
            try container.encode(InternetTime(date).textWithMilliseconds)
        }
        return try encoder.encode(value)
    }

    /// Decodes a value.
    package static func decode<Value: Decodable>(
        _ type: Value.Type,
        from data: Data
    ) throws -> Value {
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .custom { decoder in
            // Adds the path of the member to an error, so that a refusal names it.
            try decoder.value { text throws(ValueError) in try InternetTime(text) }.date
        }
        return try decoder.decode(type, from: data)
    }
}
