import StageContainer
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Repairs of containers that are registered applications'.
@Suite(.server, .directory, .mountNamespace)
struct RepairCommandTests {
    @Test func aDirectoryInThePlaceOfALinkIsFoundAndReplacedWithoutADownload() async throws {
        var installed = try await Installed()
        let pack = try SamplePack.small(.aurora)
        try installed.world.publish(pack)
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        try installed.followLink(of: "aurora")
        let doctor = try await installed.run("doctor")
        #expect(doctor.status == 3)
        #expect(doctor.output.contains("/packs/aurora': is not a link\n"), "\(doctor)")
        #expect(doctor.output.contains("'stagepack repair aurora --app "), "\(doctor)")
        let verified = try await installed.run("verify")
        #expect(verified.status == 3)
        let text = ": changed: 'packs/aurora' of the container: is not a link\n"
        #expect(verified.output.contains(text), "\(verified)")
        // A collection keeps the content for the repair.
        #expect(try await installed.run("gc").status == 0)
        let app = installed.registration.application.text
        // Content that the repair needs is not evicted.
        let collected = try await installed.run("gc", "--quota", "1KB", "--app", app)
        #expect(collected.status == 40, "\(collected)")
        let repaired = try await installed.run("repair", "--app", app)
        #expect(repaired.status == 0, "\(repaired)")
        #expect(installed.world.server.requests(for: pack.path).count == 1)
        #expect(try installed.staged() == ["aurora": 1])
        #expect(try await installed.run("verify").status == 0)
        #expect(try await installed.run("doctor").status == 0)
    }

    @Test func aDirectoryInThePlaceOfALinkIsReplacedByAStagingAndByARemoval() async throws {
        var installed = try await Installed()
        let pack = try SamplePack.small(.aurora)
        try installed.world.publish(pack)
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        try installed.followLink(of: "aurora")
        try Directory.open(installed.container.appending("generations")).removeTree("aurora")
        let staged = try await installed.run("prefetch", "--all", "--quiet")
        #expect(staged.status == 0, "\(staged)")
        #expect(installed.world.server.requests(for: pack.path).count == 2)
        #expect(try installed.staged() == ["aurora": 1])
        try installed.followLink(of: "aurora")
        let app = installed.registration.application.text
        let removed = try await installed.run("remove", "aurora", "--app", app)
        #expect(removed.status == 0, "\(removed)")
        #expect(!FileStatus.exists(installed.container.appending("packs/aurora")))
    }

    @Test func aCopiedObsoletePackIsRemoved() async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        try installed.followLink(of: "aurora")
        try installed.world.publish()
        let run = try await installed.run("prefetch", "--all", "--event", "periodic", "--quiet")
        #expect(run.status == 0, "\(run)")
        #expect(!FileStatus.exists(installed.container.appending("packs/aurora")))
        let reader = try #require(try ContainerReader.open(installed.container))
        #expect(try reader.inventory().isEmpty)
    }

    @Test func aCopiedObsoletePackThatIsPinnedStays() async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        let app = installed.registration.application.text
        let pinned = try await installed.run("pin", "aurora", "--app", app)
        #expect(pinned.status == 0, "\(pinned)")
        try installed.followLink(of: "aurora")
        try installed.world.publish()
        let run = try await installed.run("prefetch", "--all", "--event", "periodic", "--quiet")
        #expect(run.status == 0, "\(run)")
        #expect(FileStatus.exists(installed.container.appending("packs/aurora")))
        #expect(FileStatus.exists(installed.container.appending("pins/aurora.json")))
        let reader = try #require(try ContainerReader.open(installed.container))
        #expect(try reader.inventory().map(\.id.text) == ["aurora"])
    }

    @Test func aRepairOfOneApplicationNamesWhatItLeaves() async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        let lions = try SamplePack.small(try PackID("lions"))
        try installed.addOther(offering: [lions])
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        for pack in ["aurora", "lions"] {
            let directory = try Directory.open(installed.container.appending("packs/\(pack)"))
            try directory.write([1], to: "spoiled.txt", durably: false)
        }
        // The run repairs the pack of its own application first.
        let words = ["repair", "--app", "net.example.wallpaper", "--json"]
        let expected = #"[{"application":"net.example.zoo","pack":"lions"}]"#
        for runs in [1, 0] {
            let ending = try await installed.world.program.run(words)
            #expect(ending.status == 3, "\(ending)")
            let report = try JSONNode(json: Array(ending.output.utf8)).value
            #expect(report["unrepaired"]?.text == expected)
            #expect(report["runs"]?.elements.count == runs)
        }
        // The other application changes its group: its manifest is still in the container.
        var other = installed.registration
        other.application = try ApplicationID("net.example.zoo")
        other.group = try ApplicationGroupID("org.example")
        try installed.write(other.json(), to: "net.example.zoo.json")
        let unknown = try await installed.world.program.run(words)
        #expect(unknown.status == 13, "\(unknown)")
    }
}
