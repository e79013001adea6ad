import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Commands of publishers with an index that needs more memory than is available.
@Suite(.server, .directory)
struct IndexMemoryTests {
    /// The number of frames that the index states: decoded, they need 740 MB.
    private static let frames = 5_000_000

    /// Writes an index whose numbers of parts are valid, and the rest is not; returns its path.
    ///
    /// It decompresses to 180 MB.
    private func writeIndex(to store: FilePath) throws -> String {
        // Without parts, three numbers follow the magic number.
        var content = Array(ContentIndex().encoded().dropLast(3))
        content.append(0)
        var left = Self.frames
        while left >= 128 {
            content.append(UInt8(left % 128) | 128)
            left /= 128
        }
        content += [UInt8(left), 0]
        content += [UInt8](repeating: 0, count: Self.frames * 36)
        var compressor = FrameCompressor(level: 1)
        let stored = compressor.compress(content.span)
        let name = "\(Digest(of: stored))"
        let folder = try Directory.make(store.appending("i"))
        try folder.write(stored, to: FilePath.Component(known: name), durably: false)
        return store.appending("i").appending(name).string
    }

    @Test func anIndexThatDoesNotFitIsNotDecoded() async throws {
        var world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": noise(100_000)])
        let store = publisher.store.string
        let index = try await publisher.package(version: 1)
        let large = try writeIndex(to: publisher.store)
        let recipe = world.directory.path.appending("recipe.json").string
        // Enough for the decompressed bytes.
        let limit = 860 << 20
        world.program.wrapper = [
            "/usr/bin/prlimit", "--as=\(limit):\(limit)", try Program.path.string,
        ]
        for command in [
            ["store", "verify", store],
            ["delta", large, "--from", index],
            ["delta", index, "--from", large],
            ["diff", index, large],
            ["package", recipe, "--indexed", "-o", store, "--base", large],
        ] {
            let ending = try await world.program.run(command)
            #expect(ending.status == 71, "\(command): \(ending)")
            let words = "not enough memory for the index '\(large)': "
            #expect(ending.error.contains(words), "\(command): \(ending)")
        }
    }
}
