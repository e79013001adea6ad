import Logging
import StageTransfer
import Synchronization
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

    /// Returns the lines that a handler writes for `body`.
    private static func lines(
        isForJournal: Bool = true,
        _ body: (Logger) -> Void
    ) -> [String] {
        let lines = Lines()
        var logger = Logger(label: "test") { label in
            LineLogHandler(label: label, isForJournal: isForJournal) { line, _ in
                lines.all.withLock { $0.append(line) }
            }
        }
        logger.logLevel = .trace
        body(logger)
        return lines.all.withLock(\.self)
    }

    private final class Lines: Sendable {
        let all = Mutex<[String]>([])
    }

    @Test func linesForTheJournalHaveAPriorityAndNoTime() {
        let lines = Self.lines { logger in
            logger.critical("a")
            logger.error("b", metadata: ["path": "/x", "error": "full"])
            logger.warning("c")
            logger.notice("d")
            logger.info("e")
            logger.debug("f\n<0>g")
        }
        #expect(
            lines == [
                "<2>test: a", "<3>test: b error=full path=/x", "<4>test: c", "<5>test: d",
                "<6>test: e", #"<7>test: f\u{a}<0>g"#,
            ]
        )
    }

    @Test func aFailureOfThirtyTasksIsOneLine() {
        let lines = Self.lines(isForJournal: false) { logger in
            for task in 1...30 {
                logger.error(
                    "A file could not be staged",
                    metadata: ["error": "full", "task": "\(task)"]
                )
            }
            logger.error("A file could not be staged", metadata: ["error": "denied"])
        }
        #expect(
            lines == [
                "test: error: A file could not be staged: full task=1",
                "test: error: A file could not be staged: denied",
            ]
        )
    }
}
