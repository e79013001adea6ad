import StageDigest
import StageFrame
import StageIndex
import StageModel
import StagePublish
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

    /// The start of the program with a limit of memory that is enough for the decompressed bytes.
    private static var wrapper: [String] {
        get throws {
            let limit = 860 << 20
            return ["/usr/bin/prlimit", "--as=\(limit):\(limit)", try Program.path.string]
        }
    }

    /// The damaged objects come before and after the index.
    @Test func damageIsFoundBesideAnIndexThatDoesNotFit() async throws {
        var world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": noise(100_000)])
        let index = try await publisher.package(version: 1)
        let bundle = try StoredIndex(at: FilePath(index)).index.bundles[0]
        let large = try writeIndex(to: publisher.store)
        let damaged = [("b", "\(bundle.digest)"), ("p", "\(Digest(of: noise(9)))")]
        for (folder, name) in damaged {
            try Directory.make(publisher.store.appending(folder))
                .write([1], to: FilePath.Component(known: name), durably: false)
        }
        let findings = damaged.map { "\($0)/\($1): damaged\n" }.joined()
        world.program.wrapper = try Self.wrapper
        let verify = ["store", "verify", publisher.store.string]
        let words = "not enough memory for the index '\(large)': "
        let text = try await world.program.run(verify)
        #expect(text.status == 71 && text.error.contains(words), "\(text)")
        #expect(text.output.hasPrefix("\(findings)undamaged: 2 objects ("), "\(text)")
        let quiet = try await world.program.run(verify + ["--quiet"])
        #expect(quiet.status == 71 && quiet.error.contains(words), "\(quiet)")
        #expect(quiet.output == findings, "\(quiet)")
        let json = try await world.program.run(verify + ["--json"])
        #expect(json.status == 71 && json.error.isEmpty, "\(json)")
        let document = try JSONNode(json: Array(json.output.utf8)).value
        let faults = try OutputSchemas().faults(of: document, as: "store-verify")
        #expect(faults.isEmpty, "\(faults): \(json)")
        for member in ["\"status\" : 71", "\"kind\" : \"damaged\""] {
            #expect(json.output.contains(member), "\(json)")
        }
    }

    @Test func anIndexThatDoesNotFitIsNotDecoded() async throws {
        var world = try World()
        let publisher = try IndexedPublisher(world)
        try publisher.write(["a": noise(100_000)])
        let store = publisher.store.string
        let index = try await publisher.package(version: 1)
        let large = try writeIndex(to: publisher.store)
        let recipe = world.directory.path.appending("recipe.json").string
        world.program.wrapper = try Self.wrapper
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
