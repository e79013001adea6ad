/// The characters of bars, spinners and outcomes.
public struct DisplayGlyphs: Equatable, Sendable {
    /// The filled part of a bar.
    var filled: String
    /// The half of a column of a bar; `nil` where bars have no halves.
    var half: String?
    /// The unfilled part of a bar.
    var empty: String
    /// The pictures of a spinner, in turn.
    var spinner: [String]
    /// The mark of a pack that was staged.
    var success: String
    /// The mark of a pack that could not be staged.
    var failure: String

    /// Characters for terminals that show Unicode.
    public static let unicode = DisplayGlyphs(
        filled: "━",
        half: "╸",
        empty: "─",
        spinner: ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"],
        success: "✓",
        failure: "✗"
    )

    /// Characters for all other terminals.
    public static let ascii = DisplayGlyphs(
        filled: "#",
        half: nil,
        empty: "-",
        spinner: ["-", "\\", "|", "/"],
        success: "+",
        failure: "x"
    )

    /// The picture of the spinner at a time, in seconds.
    func spinner(at time: Double) -> String {
        spinner[Int(max(time, 0) * 10) % spinner.count]
    }

    /// A bar of a number of columns; it is full only where the fraction is 1.
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
