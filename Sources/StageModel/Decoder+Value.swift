extension Decoder {
    /// Decodes a string and converts it with `make`, so that an error names its member.
    package func value<Value>(
        _ make: (String) throws(ValueError) -> Value
    ) throws -> Value {
        let container = try singleValueContainer()
        let text = try container.decode(String.self)
        do {
            return try make(text)
        } catch {
            throw DecodingError.dataCorruptedError(
                in: container,
                debugDescription: error.description
            )
        }
    }
}
