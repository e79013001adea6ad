/// Why bytes are not an index.
public struct IndexError: Error, Equatable, Sendable {
    /// Where in the decompressed index the fault was found, in bytes.
    public var offset: Int
    /// What is wrong, as a sentence fragment.
    public var reason: String

    /// Creates the error from its parts.
    public init(offset: Int, reason: String) {
        self.offset = offset
        self.reason = reason
    }
}

extension IndexError: CustomStringConvertible {
    /// The fault and its place.
    public var description: String { "\(reason), at byte \(offset)" }
}
