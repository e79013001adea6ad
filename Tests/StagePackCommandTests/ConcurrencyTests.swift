import StageModel
import StageTesting
import Testing

@Suite(.server, .directory)
struct ConcurrencyTests {
    @Test(arguments: [2, 20])
    func processesThatStageTheSamePacksFetchEachOnce(count: Int) async throws {
        var world = try World()
        let packs = try (1...6).map { try SamplePack.small(try PackID("pack-\($0)")) }
        // The server is slow enough that all processes run at the same time.
        try world.publish(packs) { $0.slowed(to: 40_000) }
        let arguments = ["prefetch", "--quiet"] + world.source
        let program = world.program
        let endings = try await withThrowingTaskGroup(of: Program.Ending.self) { group in
            for _ in 0..<count { group.addTask { try await program.run(arguments) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        let success = Program.Ending(status: 0, output: "", error: "")
        #expect(endings == Array(repeating: success, count: count))
        for pack in packs {
            let counts = world.server.counts(for: pack.path)
            #expect(counts.requests == 1)
            #expect(counts.bytes == pack.archive.count)
            #expect(try world.staged(pack.pack.id) == StagedFiles(pack))
        }
        try await world.succeed("gc")
        for name in ["staging", "downloads"] { #expect(try world.names(in: name) == []) }
    }
}
