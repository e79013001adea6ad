import StageModel
import Testing

@testable import StageOrigin

@Suite
struct IndexPageTests {
    @Test
    func namesAreEscapedWhereverTheyStand() {
        let name = "<script>\"&'\u{202E}"
        let line = IndexPage.Line(
            name: name,
            isDirectory: false,
            size: ByteCount(1500),
            modified: HTTPDate(seconds: 784_111_777)
        )
        let html = IndexPage(title: "/<b>/", lines: [line]).html
        #expect(!html.contains("<script>") && !html.contains("<b>") && !html.contains("\u{202E}"))
        #expect(html.contains("<h1>/&lt;b&gt;/</h1>"))
        #expect(html.contains("href=\"./%3Cscript%3E%22%26%27%E2%80%AE\""))
        #expect(html.contains(">&lt;script&gt;&quot;&amp;&#39;\u{FFFD}</a>"))
        #expect(html.contains("1.5 kB") && html.contains("1994-11-06 08:49"))
    }

    @Test(arguments: [
        ("a.json", "application/json"), ("a.TAR.ZST", "application/zstd"),
        ("a.tar", "application/x-tar"),
        ("a.tar.gz", "application/gzip"), ("a", "application/octet-stream"),
        ("a.", "application/octet-stream"), ("json", "application/octet-stream"),
        ("a.svg", "image/svg+xml"), ("a.txt", "text/plain; charset=utf-8"),
    ])
    func theEndingOfANameDecidesItsMediaType(name: String, type: String) {
        #expect(MediaType.of(fileNamed: name) == type)
    }
}
