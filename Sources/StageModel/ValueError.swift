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
    ///
    /// One character can consist of any number of scalars, so these are limited as well, to eight for each character, and
    /// combining ones to 30 in a row: records, and messages to other processes, contain the text.
    public func forDisplay(atMost limit: Int = 200) -> String {
        let scalars = unicodeScalars.prefix(8 * min(limit, .max / 8))
        let shown = String(scalars).prefix(limit)
        let text = CombiningSequence.shortened(String(shown))
        let isMarked = shown.utf8.count == utf8.count || text.unicodeScalars.last == "…"
        return text.escapedForDisplay + (isMarked ? "" : "…")
    }

    /// The whole text on one line, with control and bidirectional characters, line breaks among them, escaped: safe
    /// to print on a terminal as part of a line.
    public var escapedForDisplay: String {
        escapingUnsafeScalars { "\\u{\(String($0.value, radix: 16))}" }
    }

    /// The lines of the text, with other control and bidirectional characters escaped: safe to print on a terminal.
    package var linesForDisplay: String {
        escapingUnsafeScalars(keepsLineBreaks: true) { "\\u{\(String($0.value, radix: 16))}" }
    }

    /// JSON with the control and bidirectional characters in its strings escaped that an encoder leaves as they are.
    ///
    /// The line breaks between members stay, since the encoder has escaped those in strings.
    package var jsonForDisplay: String {
        escapingUnsafeScalars(keepsLineBreaks: true) { scalar in
            let digits = String(scalar.value, radix: 16)
            return "\\u" + String(repeating: "0", count: 4 - digits.utf8.count) + digits
        }
    }

    /// Returns the text with each unsafe character replaced; only reads each byte once if there is none.
    ///
    /// - Parameters:
    ///   - keepsLineBreaks: Pass `true` if line breaks are safe.
    ///   - escaped: Returns the replacement of a character.
    /// - Returns: The text with the replacements.
    private func escapingUnsafeScalars(
        keepsLineBreaks: Bool = false,
        _ escaped: (Unicode.Scalar) -> String
    ) -> String {
        var shown = ""
        // The start of the text that is not in `shown` yet.
        var start = utf8.startIndex
        var index = start
        while index < utf8.endIndex {
            guard utf8[index].mayBeginUnsafeScalar else {
                utf8.formIndex(after: &index)
                continue
            }
            let scalar = unicodeScalars[index]
            let next = unicodeScalars.index(after: index)
            if scalar.isUnsafeForDisplay, scalar != "\n" || !keepsLineBreaks {
                shown += self[start..<index]
                shown += escaped(scalar)
                start = next
            }
            index = next
        }
        return start == startIndex ? self : shown + self[start...]
    }
}

extension UInt8 {
    /// Indicates whether the UTF-8 of an unsafe character can begin with this byte; that of safe ones may, too.
    fileprivate var mayBeginUnsafeScalar: Bool {
        switch self {
        case 0..<0x20, 0x7F, 0xC2, 0xD8, 0xE2: true
        default: false
        }
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
