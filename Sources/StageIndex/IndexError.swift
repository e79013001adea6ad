/// The reason why bytes are not a valid index.
package struct IndexError: Error, Equatable, Sendable {
    /// The offset of the fault in the decompressed index, in bytes.
    package var offset: Int
    /// The fault, as a sentence fragment.
    package var reason: String

    /// Creates the error from its parts.
    package init(offset: Int, reason: String) {
        self.offset = offset
        self.reason = reason
    }
}

extension IndexError: CustomStringConvertible {
    /// The fault and its offset.
    package var description: String { "\(reason), at byte \(offset)" }
}
