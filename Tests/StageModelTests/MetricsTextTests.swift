import StageModel
import Testing

@Suite struct MetricsTextTests {
    /// A value cannot leave its quotation marks, even if a character consists of several scalars.
    @Test(arguments: [
        ("plain", "plain"), ("a\\b", #"a\\b"#), ("a\"b", #"a\"b"#), ("a\nb", #"a\nb"#),
        ("a\r\nb 1", "a\r\\nb 1"), ("a\"\u{301}} 1", "a\\\"\u{301}} 1"),
        ("a\\\u{301}", "a\\\\\u{301}"),
    ])
    func labelsAreEscaped(value: String, escaped: String) {
        var metrics = MetricsText([.init("stagepack_x", help: "X.")])
        metrics.add("stagepack_x", labels: ["a": value], value: 1)
        let head = "# HELP stagepack_x X.\n# TYPE stagepack_x gauge\n"
        let expected = head + "stagepack_x{a=\"" + escaped + "\"} 1\n"
        #expect(Array(metrics.text.utf8) == Array(expected.utf8))
    }
}
