import StageContainer
import StageModel
import StageTesting
import Synchronization
import Testing

/// Hooks of package managers while another process holds the lock of a pack.
@Suite(.apart, .server, .directory, .mountNamespaceIfRoot)
struct BusyPackTests {
    /// Another process holds the lock of a pack, and does not end.
    @Test func aPackThatAnotherProcessWorksOnIsReportedAsSuch() async throws {
        var installed = try await Installed()
        let id = try PackID("essential")
        try installed.world.publish(try .small(id))
        let container = try Container.make(installed.container)
        let lock = try #require(try container.attemptLock(id))
        let problem = "another process works on pack 'essential'"
        let arguments = ["prefetch", "--all", "--hook", "--strict"]
        let hook = try await installed.world.program.run(arguments, deadline: 3) {
            $0.output.contains(problem)
        }
        let line = "0 staged, 1 missing: \(problem); the next periodic run retries\n"
        #expect(hook.output.hasSuffix("stagepack: net.example.wallpaper: \(line)"), "\(hook)")
        #expect(hook.status == 42, "\(hook)")
        let entry = try installed.history()?.packs.first { $0.id == id }
        #expect(entry?.problem?.message == problem)
        #expect(lock.id == id)
    }

    /// The other process holds the lock of the first application's pack until the second application's pack is staged.
    @Test func anotherProcessDoesNotTakeTheTimeOfOtherApplications() async throws {
        var mine = try await Installed()
        let id = try PackID("essential")
        try mine.world.publish(try .small(id))
        let lions = try SamplePack.small(try PackID("lions"))
        try mine.addOther(offering: [lions])
        let installed = mine
        let container = try Container.make(installed.container)
        let held = Mutex(try container.attemptLock(id))
        let isHeld = held.withLock { $0 != nil }
        try #require(isHeld)
        // Half of this deadline is longer than the test waits.
        let arguments = ["prefetch", "--all", "--hook", "--strict", "--deadline", "3600"]
        let hook = try await installed.world.program.run(arguments) { _ in
            try await poll("nothing of the second application is staged") {
                try installed.staged() == ["lions": 1]
            }
            held.withLock { $0 = nil }
        }
        #expect(hook.status == 0, "\(hook)")
        let lines = hook.output.split(separator: "\n").dropFirst()
        let starts = [
            "stagepack: net.example.zoo: 1 staged (",
            "stagepack: net.example.wallpaper: 1 staged (",
        ]
        #expect(lines.count == 2, "\(hook)")
        let areInOrder = zip(lines, starts).allSatisfy { line, start in line.hasPrefix(start) }
        #expect(areInOrder, "\(hook)")
        #expect(try installed.staged() == ["essential": 1, "lions": 1])
    }
}
