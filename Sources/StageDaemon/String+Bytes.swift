extension StringProtocol {
    /// Returns whether two texts have the same bytes, as SQLite compares them.
    ///
    /// Swift's `==` also equates different normalizations of a text.
    func hasSameBytes(as other: some StringProtocol) -> Bool { utf8.elementsEqual(other.utf8) }
}
