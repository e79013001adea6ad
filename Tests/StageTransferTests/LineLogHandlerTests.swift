import Logging
import StageTransfer
import Testing

struct LineLogHandlerTests {
    @Test func textInAMessageBeginsNoLine() async throws {
        let result = await #expect(
            processExitsWith: .success,
            observing: [\.standardErrorContent]
        ) {
            let logger = Logger(label: "test") { LineLogHandler(label: $0) }
            logger.warning("a\n<0>b\u{1b}[2J", metadata: ["name": "c\r\n<0>d"])
        }
        let text = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        let lines = text.split(whereSeparator: \.isNewline).filter { $0.contains("<0>") }
        #expect(lines.count == 1, "\(text)")
        let line = try #require(lines.first)
        #expect(
            line.contains(#"a\u{a}<0>b\u{1b}[2J"#) && line.contains(#"c\u{d}\u{a}<0>d"#),
            "\(line)"
        )
        #expect(!line.hasPrefix("<0>"))
    }
}
