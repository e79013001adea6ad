import StageDigest
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Files that a run leaves if it is killed between publishing and cleaning up.
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
        // The download of a pack that can still be fetched stays.
        let digest = missing.pack.contentDigest
        #expect(try world.names(in: "downloads") == ["\(digest).part.1", "\(digest).state"])
    }

    @Test func theNextRunRemovesWhatNoRunContinues() async throws {
        var world = try World()
        let staged = try SamplePack.small(.aurora)
        try world.publish(staged)
        try await world.succeed("prefetch", "--quiet")
        let downloads = try #require(try Directory.open(world.container).directory("downloads"))
        let digest = staged.pack.contentDigest
        let other = Digest(of: [1])
        let offered = try SamplePack.small(try PackID("oceans"), policy: .onDemand)
        let wanted = offered.pack.contentDigest
        try world.publish(staged, offered)
        for digest in [digest, other, wanted] {
            let name = try #require(FilePath.Component("\(digest).part.1"))
            try downloads.write(staged.archive, to: name, durably: false)
        }
        let staging = try #require(try Directory.open(world.container).directory("staging"))
        for name in ["aurora.3mxh1urkd3nsa", "aurora.\(other)", "oceans.\(wanted)"] {
            let area = try staging.makeDirectory(
                FilePath(name),
                exactly: .ownerReadWriteExecute
            )
            try area.write([1], to: "half", durably: false)
        }
        try await world.succeed("prefetch", "--quiet")
        #expect(try world.names(in: "downloads") == ["\(wanted).part.1"])
        #expect(try world.names(in: "staging") == ["oceans.\(wanted)"])

        let removed = try await world.succeed("remove", "oceans")
        #expect(removed == "oceans: removed\n")
        #expect(try world.names(in: "staging") == [])
        try await world.succeed("prefetch", "--quiet")
        #expect(try world.names(in: "downloads") == [])
    }

    /// A file replaces an area, and the run leaves the pack of the area unstaged.
    @Test func anAreaThatCannotBeReadEndsNoRunOfOtherPacks() async throws {
        var world = try World()
        let staged = try SamplePack.small(.aurora)
        var offered = try SamplePack.small(try PackID("oceans"), policy: .onDemand)
        let digest = offered.pack.contentDigest
        let size = ByteCount(1000)
        offered.pack.index = PackIndex(
            url: "i/1",
            size: size,
            digest: digest,
            contentSize: size,
            contentDigest: digest,
            bundleSize: size
        )
        try world.publish(offered)
        try await world.succeed("prefetch", "--quiet")
        let staging = try #require(try Directory.open(world.container).directory("staging"))
        let name = try #require(FilePath.Component("oceans.\(digest)"))
        try staging.write([1], to: name, durably: false)
        try world.publish(staged, offered)
        try await world.succeed("prefetch", "--quiet")
        #expect(try world.names(in: "packs") == ["aurora"])
        #expect(try world.names(in: "staging") == [name.string])
    }
}
