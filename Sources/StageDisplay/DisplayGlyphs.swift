/// The characters of bars, spinners and outcomes.
package struct DisplayGlyphs: Equatable, Sendable {
    /// The filled part of a bar.
    var filled: String
    /// The half-filled column of a bar; `nil` if bars have only whole columns.
    var half: String?
    /// The unfilled part of a bar.
    var empty: String
    /// The frames of the spinner, in order.
    var spinner: [String]
    /// The mark of a staged pack.
    var success: String
    /// The mark of a failed pack.
    var failure: String

    /// Characters for terminals that show Unicode.
    package static let unicode = DisplayGlyphs(
        filled: "━",
        half: "╸",
        empty: "─",
        spinner: ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"],
        success: "✓",
        failure: "✗"
    )

    /// Characters for all other terminals.
    package static let ascii = DisplayGlyphs(
        filled: "#",
        half: nil,
        empty: "-",
        spinner: ["-", "\\", "|", "/"],
        success: "+",
        failure: "x"
    )

    /// Returns the frame of the spinner at a time in seconds; the frame changes ten times a second.
    func spinner(at time: Double) -> String {
        spinner[Int(max(time, 0) * 10) % spinner.count]
    }

    /// Returns a bar with a number of columns; it is full only if the fraction is 1.
    func bar(_ fraction: Double, columns: Int) -> StyledText {
        let halves = Int((min(max(fraction, 0), 1) * Double(columns) * 2).rounded(.down))
        let whole = halves / 2
        var text = String(repeating: filled, count: whole)
        var count = whole
        if let half, halves % 2 == 1 {
            text += half
            count += 1
        }
        return StyledText(text, style: .accent)
            + StyledText(String(repeating: empty, count: columns - count), style: .faint)
    }
}
