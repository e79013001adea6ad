extension Decoder {
    /// Decodes one string and makes a value of it, so that a broken rule names the member it is in.
    func value<Value>(
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
