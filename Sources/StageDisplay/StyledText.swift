import StageModel

/// The meaning of a piece of text, which determines its style at a terminal.
package enum TextStyle: Equatable, Sendable {
    case plain
    /// The name of a pack or an application.
    case name
    case success
    case failure
    case warning
    /// A hint, or the filled part of a bar.
    case accent
    /// The unfilled part of a bar, or secondary text.
    case faint

    /// The parameter of the control sequence for the style (ECMA-48, SGR); `nil` for plain text.
    fileprivate var parameter: String? {
        switch self {
        case .plain: nil
        case .name: "1"
        case .success: "32"
        case .failure: "1;31"
        case .warning: "33"
        case .accent: "36"
        case .faint: "2"
        }
    }
}

/// Text for one line of a terminal, in pieces of one style each.
///
/// Control and bidirectional characters of the pieces are escaped, but for line breaks, so that the only control
/// sequences are those of the styles.
package struct StyledText: Equatable, Sendable {
    /// A piece of one style.
    package struct Piece: Equatable, Sendable {
        /// The text without control sequences.
        package var text: String
        /// The style of the text.
        package var style: TextStyle
    }

    /// The pieces from left to right.
    package private(set) var pieces: [Piece] = []

    /// Creates text of one style; control and bidirectional characters are escaped, but for line breaks.
    package init(_ text: String, style: TextStyle = .plain) {
        if !text.isEmpty { pieces = [Piece(text: text.linesForDisplay, style: style)] }
    }

    /// Concatenates two texts.
    package static func + (left: Self, right: Self) -> Self {
        var sum = left
        sum.pieces += right.pieces
        return sum
    }

    /// Appends text in the plain style.
    package static func + (left: Self, right: String) -> Self { left + StyledText(right) }

    /// The number of columns that the text takes at a terminal.
    package var terminalColumns: Int { pieces.reduce(0) { $0 + $1.text.terminalColumns } }

    /// Returns the text, cut so that it has at most `limit` columns.
    package func fitted(toColumns limit: Int) -> StyledText {
        var rest = limit
        var fitted = StyledText("")
        for piece in pieces where rest > 0 {
            let text = piece.text.fitted(toColumns: rest)
            fitted.pieces.append(Piece(text: text, style: piece.style))
            // After a cut text, which ends with an ellipsis, no pieces follow.
            rest = text == piece.text ? rest - text.terminalColumns : 0
        }
        return fitted
    }

    /// The text with control sequences for its styles.
    package var coloured: String {
        pieces.map { piece in
            guard let parameter = piece.style.parameter else { return piece.text }
            return "\u{1B}[\(parameter)m\(piece.text)\u{1B}[0m"
        }.joined()
    }
}

extension StyledText: CustomStringConvertible {
    /// The text without styles.
    package var description: String { pieces.map(\.text).joined() }
}
