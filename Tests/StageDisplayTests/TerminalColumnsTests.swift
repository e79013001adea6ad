import StageDisplay
import Testing

struct TerminalColumnsTests {
    @Test(arguments: [
        ("", 0), ("aurora", 6), ("größe", 5), ("gro\u{308}ße", 5), ("日本語", 6), ("한국어", 6),
        ("ﾊﾝｶｸ", 4), ("Ｆｕｌｌ", 8), ("👩‍👩‍👧", 2), ("❤️", 2), ("🇳🇴", 2), ("━╸─✓⠋…", 6), ("\u{200B}", 0),
    ])
    func aTextHasTheColumnsThatATerminalGivesIt(text: String, columns: Int) {
        #expect(text.terminalColumns == columns)
    }

    @Test(arguments: [
        ("aurora", 6, "aurora"), ("aurora", 5, "auro…"), ("aurora", 1, "…"), ("aurora", 0, ""),
        ("日本語の壁紙", 12, "日本語の壁紙"), ("日本語の壁紙", 11, "日本語の壁…"),
        ("日本語の壁紙", 6, "日本…"), ("日本語", 2, "…"),
    ])
    func aTextIsCutAtWholeCharacters(text: String, columns: Int, expected: String) {
        #expect(text.fitted(toColumns: columns) == expected)
        #expect(expected.terminalColumns <= columns)
    }

    @Test(arguments: [("日本", 6, "日本  "), ("日本語", 5, "日本…"), ("日本語", 4, "日… "), ("ab", 2, "ab")])
    func aTextFillsItsColumns(text: String, columns: Int, expected: String) {
        #expect(text.filling(columns: columns) == expected)
    }

    @Test func styledTextIsCutWithoutItsStylesBeingCounted() {
        let text = StyledText("aurora", style: .name) + ": " + StyledText("failed", style: .failure)
        #expect(text.terminalColumns == 14)
        #expect(
            text.fitted(toColumns: 10).coloured
                == "\u{1B}[1maurora\u{1B}[0m: \u{1B}[1;31mf…\u{1B}[0m"
        )
        #expect(text.fitted(toColumns: 3).description == "au…")
    }
}
