/// Text that is compared by its bytes: `String` also equates different normalizations.
protocol ExactText: Hashable, Sendable {
    /// The text.
    var text: String { get }
}

extension ExactText {
    /// Compares the bytes of two texts.
    public static func == (left: Self, right: Self) -> Bool {
        left.text.utf8.elementsEqual(right.text.utf8)
    }

    /// Hashes the bytes of the text.
    public func hash(into hasher: inout Hasher) {
        for byte in text.utf8 { hasher.combine(byte) }
        hasher.combine(text.utf8.count)
    }
}
