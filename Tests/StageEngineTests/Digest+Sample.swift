import StageModel

extension Digest {
    /// Returns a distinct digest for each one-digit number.
    static func sample(_ number: UInt8) -> Digest {
        guard let digest = try? Digest(hexadecimal: String(repeating: "0\(number)", count: 32))
        else { preconditionFailure("64 hexadecimal digits are a digest") }
        return digest
    }
}
