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
    private func openJournal() throws -> Journal {
        let directory = try TemporaryDirectory.required()
        try directory.write([], to: "journal.sqlite", durably: false)
        let path = directory.path.appending("journal.sqlite")
        return try Journal.open(path, logger: Logger(label: "test")) {
            () throws(DaemonError) in false
        }
    }

    /// If the removal of a session fails after some steps, the later steps count the remaining tasks.
    @Test func aStepOfARemovalTellsHowManyTasksHadNotEnded() async throws {
        let journal = try openJournal()
        let session = try await journal.makeSession(
            "s",
            of: UserIdentity(user: 1, group: 1, groups: []),
            configuration: SessionConfiguration(),
            limit: .max
        )
        let tasks = try (0..<Journal.batchSize + 2).map { number in
            let url = "https://a.example"
            let request = TransferRequest(token: "\(number)", kind: .download, url: url)
            return try NewTask(request, in: SessionConfiguration(), at: .now)
        }
        let created = try await journal.create(
            tasks,
            in: session.id,
            by: 1,
            created: .now,
            limit: .max
        ).tasks
        let ends = created.prefix(3).map { ($0.record.id, SessionEvent(.completed, time: .now)) }
        _ = try await journal.end(ends, leaving: [])
        let first = try await journal.removeTasks(of: session.id)
        #expect(first.tasks.count == Journal.batchSize && first.unfinished == 997)
        #expect(try await journal.removeTasks(of: session.id).unfinished == 0)
        #expect(try await journal.removeSession(session.id).unfinished == 2)
    }

    /// The bytes of such a task would count for no user.
    @Test func aTaskOfARemovedSessionIsRefused() async throws {
        let journal = try openJournal()
        let request = TransferRequest(token: "t", kind: .download, url: "https://a.example")
        let task = try NewTask(request, in: SessionConfiguration(), at: .now)
        await #expect(throws: DaemonError.refused(.sessionEnds)) {
            try await journal.create([task], in: 7, by: 0, created: .now, limit: 1 << 20)
        }
        #expect(try await journal.usage(of: 0) == 0)
    }
}
