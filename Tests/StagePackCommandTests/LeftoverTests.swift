import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// What a run leaves that is killed between publishing and tidying.
@Suite(.server, .directory)
struct LeftoverTests {
    @Test func theArchiveOfAStagedPackGoes() async throws {
        var world = try World()
        let staged = try SamplePack.small(.aurora)
        let missing = try SamplePack.small(try PackID("oceans"))
        try world.publish(staged, missing)
        try await world.succeed("prefetch", "--quiet")
        try await world.succeed("remove", "oceans")
        let downloads = try #require(try Directory.open(world.container).directory("downloads"))
        for pack in [staged, missing] {
            let name = try #require(FilePath.Component("\(pack.pack.contentDigest).part.1"))
            try downloads.write(pack.archive, to: name, durably: false)
            let state = try #require(FilePath.Component("\(pack.pack.contentDigest).state"))
            try downloads.write([1], to: state, durably: false)
        }
        let output = try await world.succeed("gc")
        #expect(output == "removed 0 generations, 2 downloads, 0 leftovers\n")
        // That of a pack which can still be fetched stays.
        let digest = missing.pack.contentDigest
        #expect(try world.names(in: "downloads") == ["\(digest).part.1", "\(digest).state"])
    }
}
