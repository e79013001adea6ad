extension BinaryInteger {
    /// Returns the number with its noun, which is in the plural unless the number is 1: `1 file`, `0 files`.
    ///
    /// `plural` is for nouns whose plural does not end in a mere `s`. Every message that counts something takes its words from here,
    /// which `.ci/check-house` checks.
    package func quantity(of noun: String, plural: String? = nil) -> String {
        "\(self) \(self == 1 ? noun : plural ?? "\(noun)s")"
    }
}
