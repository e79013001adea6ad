import FoundationEssentials
import StageControl
import Testing

@testable import StageDaemon

struct EventFeedTests {
    /// Progress events that the feed keeps.
    private static let limit = 4096

    @Test func onlyTheClientWhoseEventIsDroppedHasMissedOne() {
        let feed = EventFeed()
        let (first, second) = (
            Subscription(session: 1, after: 0), Subscription(session: 2, after: 0)
        )
        for subscription in [first, second] {
            feed.attach(subscription)
            #expect(subscription.takeMissedEvents())
        }
        let event = SessionEvent(.progress, time: Date(timeIntervalSince1970: 0))
        feed.report(event, of: 1)
        for _ in 1..<Self.limit { feed.report(event, of: 2) }
        #expect(!first.takeMissedEvents())
        feed.report(event, of: 2)
        #expect(first.takeMissedEvents())
        #expect(!second.takeMissedEvents())
        #expect(feed.takeProgress().count == Self.limit)
    }
}
