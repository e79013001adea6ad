import StageModel
import Testing

@testable import StageTransfer

struct ResponseSummaryTests {
    @Test(
        arguments: [
            (200, "Content-Length", "10", 10), (200, "content-length", "0", 0),
            (200, "Content-Length", "-5", nil), (200, "Content-Length", "+5", nil),
            (200, "Content-Length", "9223372036854775808", nil), (200, "X", "10", nil),
            (200, "Content-Range", "bytes 5-9/10", nil),
            (206, "Content-Range", "bytes 5-9/10", 10), (206, "Content-Range", "bytes 5-9/-5", nil),
            (206, "Content-Range", "bytes 5-9/*", nil), (206, "Content-Range", "bytes 5-9/7", nil),
            (206, "Content-Range", "bytes */10", nil), (206, "Content-Range", "10", nil),
            (206, "Content-Length", "10", nil),
        ] as [(Int, String, String, Int64?)]
    )
    func theTotalOfTheContentIsANumber(
        status: Int,
        name: String,
        value: String,
        total: Int64?
    ) {
        let field = HeaderField(name: name, value: value)
        let summary = ResponseSummary(
            url: "http://a/b",
            status: status,
            fields: [field],
            redirects: 0
        )
        #expect(summary.contentTotal?.rawValue == total)
    }
}
