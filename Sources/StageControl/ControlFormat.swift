public import FoundationEssentials
import StageModel

/// How messages between the daemon and its clients are written: JSON whose dates are RFC 3339 with
/// milliseconds and whose members a reader passes over where it does not know them.
public enum ControlFormat {
    /// The version of the protocol, the first component of every path.
    public static let version = "v1"

    /// The largest body of a request, in bytes.
    public static let bodyLimit = 1 << 20

    /// The most tasks that one request creates or changes.
    public static let taskLimit = 1000

    /// How often a stream of events says that it is alive.
    public static let heartbeat = Duration.seconds(15)

    /// Writes a value on one line.
    public static func encode(_ value: some Encodable) throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .custom { date, encoder in
            var container = encoder.singleValueContainer()
            try container.encode(InternetTime(date).textWithMilliseconds)
        }
        return try encoder.encode(value)
    }

    /// Reads a value.
    public static func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value
    {
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .custom { decoder in
            let container = try decoder.singleValueContainer()
            return try InternetTime(try container.decode(String.self)).date
        }
        return try decoder.decode(type, from: data)
    }
}
