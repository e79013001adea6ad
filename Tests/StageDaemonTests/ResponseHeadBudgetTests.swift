import StageControl
import Testing

@testable import StageDaemon

struct ResponseHeadBudgetTests {
    /// A head of which seven are within the limit.
    private let head = TransferResponse(
        url: "http://a.example/",
        status: 503,
        headers: [["A", String(repeating: "x", count: ResponseHeadBudget.limit / 8)]]
    )

    @Test func theHeadsOfEachUserHaveALimit() {
        var budget = ResponseHeadBudget()
        let kept = (1...9).map { budget.add(head, of: Int64($0), user: 1) }
        #expect(kept == Array(repeating: true, count: 7) + [false, false])
        let other = budget.add(head, of: 10, user: 2)
        #expect(other == true)
        // A later head of a task takes the place of the earlier one.
        let again = budget.add(head, of: 1, user: 1)
        budget.remove(2)
        let next = budget.add(head, of: 8, user: 1)
        let last = budget.add(head, of: 9, user: 1)
        #expect([again, next, last] == [true, true, false])
    }

    @Test func aReducedHeadIsShort() {
        #expect(head.reduced == TransferResponse(url: head.url, status: 503, headers: []))
        let long = "http://a.example/" + String(repeating: "x", count: 1000)
        #expect(TransferResponse(url: long, status: 503, headers: []).reduced == nil)
    }
}
