/// Text that is equal only to text of the same bytes: `String` also equates different normalizations.
protocol ExactText: Hashable, Sendable {
    /// The text.
    var text: String { get }
}

extension ExactText {
    /// Whether two texts have the same bytes.
    public static func == (left: Self, right: Self) -> Bool {
        left.text.utf8.elementsEqual(right.text.utf8)
    }

    /// Feeds the bytes of the text to a hasher.
    public func hash(into hasher: inout Hasher) {
        for byte in text.utf8 { hasher.combine(byte) }
        hasher.combine(text.utf8.count)
    }
}
