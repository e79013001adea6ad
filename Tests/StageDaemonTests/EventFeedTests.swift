import FoundationEssentials
import StageControl
import StageSystem
import Testing

@testable import StageDaemon

struct EventFeedTests {
    private func attach(to feed: EventFeed, session: Int64) -> Subscription {
        let subscription = Subscription(session: session, after: 0)
        feed.attach(subscription)
        #expect(subscription.takeMissedEvents())
        return subscription
    }

    @Test func onlyTheClientWhoseEventIsDroppedHasMissedOne() {
        let feed = EventFeed()
        let (first, second) = (attach(to: feed, session: 1), attach(to: feed, session: 2))
        let event = SessionEvent(.progress, time: Date(timeIntervalSince1970: 0))
        feed.report(event, of: 1, user: 1)
        for _ in 1..<ProgressQueue.limit { feed.report(event, of: 2, user: 1) }
        #expect(!first.takeMissedEvents())
        feed.report(event, of: 2, user: 1)
        #expect(first.takeMissedEvents())
        #expect(!second.takeMissedEvents())
        #expect(feed.takeProgress().count == ProgressQueue.limit)
    }

    /// The events of the other user are fewer, smaller and older.
    @Test(arguments: [0, ProgressQueue.maximumBytes / 4])
    func progressOfOneUserDisplacesNoneOfAnother(sizeOfURL: Int) {
        let feed = EventFeed()
        let (first, second) = (attach(to: feed, session: 1), attach(to: feed, session: 2))
        var event = SessionEvent(.progress, time: Date(timeIntervalSince1970: 0))
        for _ in 1...3 { feed.report(event, of: 1, user: 1) }
        event.response = response(ofBytes: sizeOfURL)
        for _ in 1...ProgressQueue.limit { feed.report(event, of: 2, user: 2) }
        #expect(!first.takeMissedEvents())
        #expect(second.takeMissedEvents())
        let sessions = feed.takeProgress().map(\.session)
        let kept = sizeOfURL == 0 ? ProgressQueue.limit - 3 : 3
        #expect(sessions == [1, 1, 1] + Array(repeating: 2, count: kept))
        // The queue is empty again.
        for _ in 1...3 { feed.report(event, of: 2, user: 2) }
        #expect(!second.takeMissedEvents())
    }

    /// A feed with a watcher that reads nothing, to which `send` sends the end of a task and `report` its progress.
    private struct World {
        let feed = EventFeed()
        let watch: Watch
        private let session = SessionRecord(1)

        init() {
            watch = feed.watch(
                for: ClientCredentials(
                    identity: .init(user: 1, group: 1, groups: [1]),
                    process: 1
                )
            )
        }

        func send(_ sequence: Int64, response: TransferResponse? = nil) {
            var event = SessionEvent(.completed, time: Date(timeIntervalSince1970: 0))
            event.sequence = sequence
            event.response = response
            feed.sendToWatchers(event, of: session)
        }

        func report() {
            let event = SessionEvent(.progress, time: Date(timeIntervalSince1970: 0))
            feed.send(event, of: session)
        }

        /// The sequence numbers of the unread events; `nil` for progress.
        func unread() -> [Int64?] {
            var found: [Int64?] = []
            while let event = watch.next() { found.append(event.sequence) }
            return found
        }
    }

    @Test func aSlowWatcherMissesProgressAndNoEnd() {
        let world = World()
        world.send(1)
        for _ in 0..<1000 { world.report() }
        world.send(2)
        let unread = world.unread()
        #expect(unread.count == Subscription.limit)
        #expect(unread.compactMap(\.self) == [1, 2])
    }

    @Test func aWatcherThatWouldMissAnEndIsDisconnected() async {
        let world = World()
        for sequence in 1...Int64(Subscription.limit) { world.send(sequence) }
        world.report()
        #expect(world.unread().count == Subscription.limit)
        for sequence in 0...Int64(Subscription.limit) { world.send(sequence) }
        // The loop ends with the stream.
        for await _ in world.watch.wakes {}
    }

    /// The watcher has read, so its buffer has room again: later events would hide the missing ones.
    @Test func aDisconnectedWatcherReceivesNoLaterEvents() async {
        let world = World()
        let limit = Int64(Subscription.limit)
        for sequence in 1...limit + 1 { world.send(sequence) }
        #expect(world.watch.next()?.sequence == 1)
        world.send(limit + 2)
        world.report()
        #expect(world.unread() == Array(2...limit).map(Optional.some))
        world.send(limit + 3)
        #expect(world.unread() == [])
        // The loop ends with the stream.
        for await _ in world.watch.wakes {}
    }

    /// A response at a URL of this length.
    private func response(ofBytes count: Int) -> TransferResponse {
        TransferResponse(url: String(repeating: "x", count: count), status: 200, headers: [])
    }

    @Test func theMemoryOfAClientsEventsIsLimited() {
        let subscription = Subscription(session: 1, after: 0)
        #expect(subscription.takeMissedEvents())
        var event = SessionEvent(.progress, time: Date(timeIntervalSince1970: 0))
        event.response = response(ofBytes: Subscription.maximumBytes / 4)
        for _ in 0..<3 { subscription.enqueue(event) }
        #expect(!subscription.takeMissedEvents())
        for _ in 0..<7 { subscription.enqueue(event) }
        #expect(subscription.takeMissedEvents())
        #expect(subscription.takeNonDurable().count == 3)
        for _ in 0..<3 { subscription.enqueue(event) }
        #expect(!subscription.takeMissedEvents())
    }

    @Test func theMemoryOfAWatchersEventsIsLimited() async {
        let world = World()
        let response = response(ofBytes: Watch.maximumBytes / 4)
        world.report()
        for sequence in Int64(1)...3 { world.send(sequence, response: response) }
        #expect(world.unread() == [nil, 1, 2, 3])
        world.report()
        for sequence in Int64(4)...7 { world.send(sequence, response: response) }
        #expect(world.unread() == [4, 5, 6])
        // The loop ends with the stream.
        for await _ in world.watch.wakes {}
    }

    @Test func aWatcherThatHasEndedReceivesNoMore() {
        let world = World()
        world.send(1)
        world.feed.unwatch(world.watch)
        world.watch.enqueue(SessionEvent(.heartbeat, time: Date(timeIntervalSince1970: 0)))
        #expect(world.unread() == [1])
    }
}
