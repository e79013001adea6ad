import StageTesting
import Testing

/// A registered application that no run has staged a pack for.
@Suite(.server, .directory, .enabled { await Program.canMount })
struct UnstagedApplicationTests {
    private let installed: Installed

    init() async throws {
        installed = try await Installed()
    }

    private func run(_ words: String...) async throws -> Program.Ending {
        try await installed.world.program.run(words + ["--app", "net.example.wallpaper"])
    }

    @Test func itIsNoFailureOfACommandForAllApplications() async throws {
        let ending = try await installed.run("why")
        #expect(ending.status == 0, "\(ending)")
        #expect(ending.error.hasPrefix("no run has decided anything yet\n"), "\(ending)")
    }
}
