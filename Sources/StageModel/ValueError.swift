/// An error for text or a number that is not a valid value.
///
/// `expected` and `found` are sentence fragments: `expected 64 hexadecimal digits, found 'abc'`.
public struct ValueError: Error, Equatable, Sendable, Codable {
    /// A description of valid values.
    public var expected: String
    /// The actual value, quoted if it is text.
    public var found: String

    /// Creates an error from the expected and the actual value.
    public init(expected: String, found: String) {
        self.expected = expected
        self.found = found
    }

    /// Creates an error for a text, which is quoted and shortened to fit a line.
    public init(expected: String, text: String) {
        self.init(expected: expected, found: "'\(text.forDisplay(atMost: 60))'")
    }
}

extension ValueError: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    public var description: String {
        "expected \(expected), found \(found)"
    }
}

extension String {
    /// Returns the text, shortened to `limit` characters, with control and bidirectional characters escaped:
    /// safe to print on a terminal.
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
    /// Indicates whether the scalar can move the cursor, hide text or reorder it: C0 and C1 controls, and the
    /// bidirectional controls of UAX #9.
    public var isUnsafeForDisplay: Bool {
        switch value {
        case 0..<0x20, 0x7F..<0xA0: true
        case 0x200E, 0x200F, 0x061C, 0x202A...0x202E, 0x2066...0x2069, 0x2028, 0x2029: true
        default: false
        }
    }
}
