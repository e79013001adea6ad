/// Why a piece of text or a number is not a value of the model.
///
/// `expected` and `found` are fragments in the reader's terms: `expected 64 hexadecimal digits,
/// found 'abc'`.
public struct ValueError: Error, Equatable, Sendable, Codable {
    /// What would have been accepted.
    public var expected: String
    /// What was there instead, quoted where it is text.
    public var found: String

    /// Creates the error from what was expected and what was there.
    public init(expected: String, found: String) {
        self.expected = expected
        self.found = found
    }

    /// Creates the error for a piece of text, quoted and cut to a length that fits a line.
    public init(expected: String, text: String) {
        self.init(expected: expected, found: "'\(text.forDisplay(atMost: 60))'")
    }
}

extension ValueError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        "expected \(expected), found \(found)"
    }
}

extension String {
    /// The text with control and bidirectional characters made visible, cut to `limit` characters:
    /// safe to show on a terminal whoever wrote it.
    public func forDisplay(atMost limit: Int = 200) -> String {
        var shown = ""
        for scalar in prefix(limit).unicodeScalars {
            if scalar.isUnsafeForDisplay {
                shown += "\\u{\(String(scalar.value, radix: 16))}"
            } else {
                shown.unicodeScalars.append(scalar)
            }
        }
        return dropFirst(limit).isEmpty ? shown : shown + "…"
    }
}

extension Unicode.Scalar {
    /// Whether the scalar can move the cursor, hide text or reorder it: C0 and C1 controls, and the
    /// bidirectional controls of Unicode's UAX #9.
    public var isUnsafeForDisplay: Bool {
        switch value {
        case 0..<0x20, 0x7F..<0xA0: true
        case 0x200E, 0x200F, 0x061C, 0x202A...0x202E, 0x2066...0x2069, 0x2028, 0x2029: true
        default: false
        }
    }
}
