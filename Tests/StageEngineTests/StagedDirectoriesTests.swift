import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The directories of staged packs count for quotas, whether the manifest states their number or not.
@Suite(.directory, .server)
struct StagedDirectoriesTests {
    private struct Failure: Error {}

    @Test(arguments: [false, true], [false, true])
    func directoriesOfAStagedPackCount(isArchive: Bool, isStated: Bool) async throws {
        let world = try IndexedWorld()
        let files = ["a/b/c/d/e/file": [UInt8](repeating: 7, count: 100)]
        try await world.publish(files)
        var pack = try #require(world.pack)
        #expect(pack.directoryCount == 5)
        if isArchive { pack = try world.offerArchive(of: files) }
        if !isStated { pack.directoryCount = nil }
        try world.serve(offering: pack)
        guard case .staged = try await world.stage() else { throw Failure() }
        let container = try #require(try Container.open(world.root.path.appending("container")))
        // A block for each of five directories, and one for the generation.
        let expected = ByteCount(100 + 6 * 4096)
        #expect(try container.reader.inventory().map(\.size) == [expected])
    }
}
