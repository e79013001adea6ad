import Foundation
import StageControl
import Testing

@testable import BackgroundAssets

/// A process's record of its downloads in progress.
@Suite struct KnownDownloadsTests {
    private static func task(_ id: Int64) -> TransferTask {
        TransferTask(
            id: id,
            session: "s",
            user: 0,
            request: TransferRequest(token: "t\(id)", kind: .download, url: "https://host/\(id)"),
            state: .waiting,
            created: .distantPast
        )
    }

    @Test func aDownloadWhoseEndCameBeforeTheResponseIsNotInProgress() {
        var known = KnownDownloads()
        known.beginCreation()
        known.beginCreation()
        known.end(1)
        known.endCreation()
        known.add(Self.task(1), in: 7)
        known.add(Self.task(2), in: 7)
        #expect(known.underWay == [2])
        known.endCreation()
    }

    @Test func anEndIsForgottenAfterAllResponses() {
        var known = KnownDownloads()
        known.beginCreation()
        known.end(1)
        known.endCreation()
        known.add(Self.task(1), in: 7)
        #expect(known.underWay == [1])
    }

    @Test func anEndInAnEarlierSessionIsThatOfAnotherDownload() {
        var known = KnownDownloads()
        known.add(Self.task(2), in: 7)
        known.beginCreation()
        known.end(1)
        known.add(Self.task(1), in: 8)
        #expect(known.underWay == [1])
        known.endCreation()
    }
}
