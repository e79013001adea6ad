package import StageModel

/// The reason why bytes are not a valid index, or cannot be decoded on this machine.
package struct IndexError: Error, Equatable, Sendable {
    /// The offset of the fault in the decompressed index, in bytes.
    package var offset: Int
    /// The fault, as a sentence fragment.
    package var reason: String
    /// The memory that the decoded index needs, if that exceeds ``IndexBounds/memory``; `nil` if the bytes are not a
    /// valid index.
    package var neededMemory: ByteCount?

    /// Creates the error from its parts.
    package init(offset: Int, reason: String, neededMemory: ByteCount? = nil) {
        self.offset = offset
        self.reason = reason
        self.neededMemory = neededMemory
    }
}

extension IndexError: CustomStringConvertible {
    /// The fault and its offset.
    package var description: String { "\(reason), at byte \(offset)" }
}
