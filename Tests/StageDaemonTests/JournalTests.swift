import Foundation
import Logging
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import StageDaemon

@Suite(.directory)
struct JournalTests {
    /// Its bytes count for no user, root least of all.
    @Test func aTaskOfARemovedSessionIsRefused() async throws {
        let directory = try TemporaryDirectory.required()
        try directory.write([], to: "journal.sqlite", durably: false)
        let path = directory.path.appending("journal.sqlite")
        let journal = try Journal.open(path, logger: Logger(label: "test")) {
            () throws(DaemonError) in false
        }
        let request = TransferRequest(token: "t", kind: .download, url: "https://a.example")
        let task = try NewTask(request, in: SessionConfiguration(), at: .now)
        await #expect(throws: DaemonError.refused(.sessionEnds)) {
            try await journal.create([task], in: 7, by: 0, created: .now, limit: 1 << 20)
        }
        #expect(try await journal.usage(of: 0) == 0)
    }
}
