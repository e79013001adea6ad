extension StringProtocol {
    /// The number of columns that the text takes at a terminal: two for a wide East Asian character or an
    /// emoji, none for a combining mark (Unicode Standard Annex 11).
    package var terminalColumns: Int { reduce(0) { $0 + $1.terminalColumns } }

    /// Returns the text, cut so that it has at most `limit` columns, with an ellipsis at the end of a cut
    /// text.
    package func fitted(toColumns limit: Int) -> String {
        guard terminalColumns > limit else { return String(self) }
        guard limit > 0 else { return "" }
        var columns = 0
        let kept = prefix { character in
            columns += character.terminalColumns
            return columns < limit
        }
        return String(kept) + "…"
    }

    /// Returns the text, cut or padded with spaces to a number of columns.
    package func filling(columns: Int) -> String {
        let text = fitted(toColumns: columns)
        return text + String(repeating: " ", count: columns - text.terminalColumns)
    }
}

extension Character {
    /// The number of columns that the character takes at a terminal.
    fileprivate var terminalColumns: Int {
        if let value = asciiValue { return value < 0x20 || value == 0x7F ? 0 : 1 }
        // The variation selector requests the emoji form of the character, which is wide.
        if unicodeScalars.contains("\u{FE0F}") { return 2 }
        return unicodeScalars.reduce(0) { Swift.max($0, $1.terminalColumns) }
    }
}

extension Unicode.Scalar {
    fileprivate var terminalColumns: Int {
        switch properties.generalCategory {
        case .nonspacingMark, .enclosingMark, .format, .control: return 0
        default: break
        }
        if properties.isEmojiPresentation { return 2 }
        return Self.wide.contains { $0.contains(value) } ? 2 : 1
    }

    /// The blocks of wide and full-width characters.
    private static let wide: [ClosedRange<UInt32>] = [
        0x1100...0x115F, 0x2E80...0x303E, 0x3041...0x4DBF, 0x4E00...0xA4CF, 0xA960...0xA97F,
        0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE10...0xFE19, 0xFE30...0xFE6F, 0xFF01...0xFF60,
        0xFFE0...0xFFE6, 0x16FE0...0x18DFF, 0x1AFF0...0x1B2FF, 0x1F200...0x1F2FF,
        0x20000...0x3FFFD,
    ]
}
