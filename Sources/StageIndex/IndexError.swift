/// The reason why bytes are not a valid index.
public struct IndexError: Error, Equatable, Sendable {
    /// The offset of the fault in the decompressed index, in bytes.
    public var offset: Int
    /// The fault, as a sentence fragment.
    public var reason: String

    /// Creates the error from its parts.
    public init(offset: Int, reason: String) {
        self.offset = offset
        self.reason = reason
    }
}

extension IndexError: CustomStringConvertible {
    /// The fault and its offset.
    public var description: String { "\(reason), at byte \(offset)" }
}
