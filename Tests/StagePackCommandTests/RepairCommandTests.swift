import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Repairs in a container of several applications.
@Suite(.server, .directory, .mountNamespace)
struct RepairCommandTests {
    @Test func aRepairOfOneApplicationNamesWhatItLeaves() async throws {
        var installed = try await Installed()
        try installed.world.publish(try .small(.aurora))
        let lions = try SamplePack.small(try PackID("lions"))
        try installed.addOther(offering: [lions])
        #expect(try await installed.run("prefetch", "--all", "--quiet").status == 0)
        for pack in ["aurora", "lions"] {
            let place = try Directory.open(installed.container.appending("packs/\(pack)"))
            try place.write([1], to: "spoiled.txt", durably: false)
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
