extension BinaryInteger {
    /// Returns the number with its noun, in the plural unless the number is 1: `1 file`, `0 files`.
    ///
    /// Pass `plural` for nouns whose plural is not formed with `s`. All messages with counts use this
    /// function; `.ci/check-house` checks that.
    package func quantity(of noun: String, plural: String? = nil) -> String {
        "\(self) \(self == 1 ? noun : plural ?? "\(noun)s")"
    }
}
