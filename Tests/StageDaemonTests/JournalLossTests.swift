import FoundationEssentials
import Glibc
import StageControl
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// A journal that is missing, that is older than the daemon's other files, or that cannot be written.
@Suite(.directory, .daemon, .server)
struct JournalLossTests {
    private let daemon: DaemonProcess
    private let server = TestServer.current
    private static let journal: [FilePath.Component] = [
        "journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm",
    ]

    init() throws {
        daemon = try .required()
        try daemon.configure(#"{"settlingTime": 0}"#)
        server.answer("/old", with: .content(noise(1000)))
        server.answer("/new", with: .content(noise(2000)))
    }

    private func remove(_ names: [FilePath.Component]) throws {
        let state = try Directory.open(daemon.state)
        for name in names { try state.remove(name) }
    }

    static let losses: [[FilePath.Component]] = [journal, journal + ["task-numbers"]]

    @Test(arguments: losses) func aJournalThatIsGoneGivesNoNumberAgain(
        _ names: [FilePath.Component]
    ) async throws {
        try await daemon.start()
        try await daemon.makeSession()
        let first = try await daemon.download(server.url("/old"))
        try await daemon.wait(for: .completed, of: first)
        try await daemon.kill()
        try remove(names)
        try await daemon.start()
        #expect(try await daemon.client.sessions() == [])
        try await daemon.makeSession()
        let second = try await daemon.download(server.url("/new"))
        #expect(second > first)
        let events = try await daemon.outcomes()
        let location = try #require(events.first?.location)
        #expect(try bytes(of: FilePath(location)) == noise(2000))
        // The file of the missing journal was moved aside, not removed.
        let aside = try Directory.open(daemon.state).entries().map(\.name)
            .filter { $0.string.hasPrefix("staged.damaged-") }
        let user = "\(UserIdentity.current.user)/\(first)"
        let path = daemon.state.appending(try #require(aside.first)).pushing(FilePath(user))
        #expect(try bytes(of: path) == noise(1000))
    }

    @Test func numbersBeginWithOneWhereNothingWasLost() async throws {
        try await daemon.start()
        #expect(try await daemon.kill(SIGTERM) == 0)
        try remove(Self.journal + ["task-numbers"])
        try await daemon.start()
        try await daemon.makeSession()
        #expect(try await daemon.download(server.url("/old")) == 1)
    }

    @Test func anOlderJournalGivesNoNumberAgain() async throws {
        try await daemon.start()
        try await daemon.makeSession()
        _ = try await daemon.download(server.url("/old"), token: "1") { $0.isSuspended = true }
        #expect(try await daemon.kill(SIGTERM) == 0)
        // The write-ahead log is a part of the journal: SQLite need not have merged it when the daemon ends.
        let state = try Directory.open(daemon.state)
        let names = try state.entries().map(\.name).filter { $0.string.hasPrefix("journal.sqlite") }
        let old = try names.map { ($0, try bytes(of: daemon.state.appending($0))) }
        try await daemon.start()
        for token in ["2", "3"] {
            _ = try await daemon.download(server.url("/old"), token: token) {
                $0.isSuspended = true
            }
        }
        try await daemon.kill()
        try remove(Self.journal)
        for (name, bytes) in old { try state.write(bytes, to: name, durably: false) }
        try await daemon.start()
        #expect(try await daemon.client.tasks().map(\.id) == [1])
        let next = try await daemon.download(server.url("/old"), token: "4") {
            $0.isSuspended = true
        }
        let last = try await daemon.download(server.url("/old"), token: "5") {
            $0.isSuspended = true
        }
        #expect([next, last] == [4, 5])
    }

    /// Statements that make a journal that of another version, and their inverse.
    static let versions = [
        // A later version.
        (
            "INSERT INTO grdb_migrations VALUES ('later')",
            "DELETE FROM grdb_migrations WHERE identifier = 'later'"
        ),
        // An earlier version.
        (
            """
            UPDATE grdb_migrations SET identifier = 'earlier'
            WHERE identifier = 'tables, and forms of version 1'
            """,
            """
            UPDATE grdb_migrations SET identifier = 'tables, and forms of version 1'
            WHERE identifier = 'earlier'
            """
        ),
        // The journal records no migration steps.
        (
            "ALTER TABLE grdb_migrations RENAME TO moved",
            "ALTER TABLE moved RENAME TO grdb_migrations"
        ),
    ]

    @Test(arguments: versions) func aJournalOfAnotherVersionIsRefusedAndLosesNothing(
        _ change: String,
        _ undo: String
    ) async throws {
        try await daemon.start()
        try await daemon.makeSession()
        let task = try await daemon.download(server.url("/old")) { $0.isSuspended = true }
        #expect(try await daemon.kill(SIGTERM) == 0)
        try await daemon.changeJournal(change)
        let path = daemon.state.appending("journal.sqlite")
        try daemon.launch()
        #expect(try await daemon.end() == 78)
        let error = """
            stagepackd: error: the journal '\(path)' was written by another version of stagepackd
            hint: install that version again, or move the journal away: its transfers are forgotten then

            """
        #expect(try daemon.said().hasSuffix(error))
        try await daemon.changeJournal(undo)
        try await daemon.start()
        #expect(try await daemon.client.tasks().map(\.id) == [task])
    }

    /// Before a request that must not be repeated, the daemon records how its task ends if the daemon does.
    @Test func aRequestThatCannotBeRecordedIsNotSentAndItsErrorIsNamed() async throws {
        try await daemon.start()
        try await daemon.makeSession()
        try await daemon.changeJournal(
            """
            CREATE TRIGGER refusal BEFORE UPDATE OF outcome ON task
            BEGIN SELECT RAISE(ABORT, 'refused by a test'); END
            """
        )
        let id = try await daemon.download(server.url("/new")) { $0.method = "POST" }
        try await daemon.wait(for: [.disk], of: id)
        // The daemon tries again after 15 seconds, and the task then waits for nothing for a moment.
        let problem = try await pollForValue("it says no reason") {
            try await daemon.client.task(id).pendingReasons.first { $0.kind == .disk }?.problem
        }
        #expect(problem.contains("refused by a test"))
        let said = try daemon.said()
        #expect(said.contains("The disk cannot be written, and all transfers wait"))
        #expect(!said.contains("The disk is full"))
        #expect(server.requests(for: "/new").isEmpty)
        try await daemon.changeJournal("DROP TRIGGER refusal")
        try await daemon.wait(for: .completed, of: id)
    }

    /// The first repetition fails, too: after that, waiting for the disk causes no further one.
    @Test func otherChangesDoNotDelayTheRecordingOfAnEnd() async throws {
        try await daemon.start()
        try await daemon.makeSession()
        let other = try await daemon.download(server.url("/other")) { $0.isSuspended = true }
        try await daemon.changeJournal(
            """
            CREATE TRIGGER refusal BEFORE UPDATE OF state ON task WHEN NEW.state = 2
            BEGIN SELECT RAISE(ABORT, 'refused by a test'); END
            """
        )
        let id = try await daemon.download(server.url("/new"))
        try await poll("the end is not tried again") {
            let reasons = try await daemon.client.task(id).pendingReasons
            return reasons.map(\.kind) == [.disk] && reasons.first?.until == nil
        }
        try await daemon.changeJournal("DROP TRIGGER refusal")
        // Each change of another task resets the timer.
        var priority = 0.0
        try await poll("the end is never recorded") {
            var change = TransferChange()
            priority = 1 - priority
            change.priority = priority
            try await daemon.client.change(other, by: change)
            return try await daemon.client.task(id).state == .completed
        }
    }

    @Test(arguments: ["noise", "\(Int64.max)\n"])
    func aDamagedMarkIsRecreated(text damaged: String) async throws {
        try await daemon.start()
        try await daemon.makeSession()
        _ = try await daemon.download(server.url("/old"), token: "1") { $0.isSuspended = true }
        try await daemon.kill()
        let state = try Directory.open(daemon.state)
        try state.write(Array(damaged.utf8), to: "task-numbers", durably: false)
        try await daemon.start()
        let next = try await daemon.download(server.url("/old"), token: "2") {
            $0.isSuspended = true
        }
        #expect(next == 2)
        let mark = try text(of: daemon.state.appending("task-numbers"))
        #expect(mark == String(repeating: "0", count: 18) + "2\n")
    }
}
