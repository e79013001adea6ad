import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The directories of staged packs, which no manifest tells, count for quotas.
@Suite(.directory, .server)
struct StagedDirectoriesTests {
    private struct Failure: Error {}

    @Test(arguments: [false, true])
    func directoriesOfAStagedPackCount(isArchive: Bool) async throws {
        let world = try IndexedWorld()
        let files = ["a/b/c/d/e/file": [UInt8](repeating: 7, count: 100)]
        try await world.publish(files)
        if isArchive { _ = try world.offerArchive(of: files) }
        guard case .staged = try await world.stage() else { throw Failure() }
        let container = try #require(try Container.open(world.root.path.appending("container")))
        // A block for each of five directories, and one for the generation.
        let expected = ByteCount(100 + 6 * 4096)
        #expect(try container.reader.inventory().map(\.size) == [expected])
    }
}
