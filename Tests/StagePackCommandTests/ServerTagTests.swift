import Foundation
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Servers that make entity tags from the size of a file and the second of its change, as nginx does.
@Suite(.server, .directory, .timeLimit(.minutes(5)))
struct ServerTagTests {
    private let directory: Directory

    init() throws { directory = try TemporaryDirectory.required() }

    @Test func aManifestThatIsReplacedWithinASecondIsFetched() async throws {
        let world = try World()
        let served = try Directory.make(directory.path.appending("served"))
        _ = try served.makeDirectory("packs")
        let names = ["aurora", "boreal"]
        var sizes: Set<Int> = []
        // Both files are changed in the same second, which is in the future of the responses.
        let time = Int64(Date().timeIntervalSince1970) + 3600
        func publish(_ name: String) throws {
            let pack = try SamplePack.small(try PackID(name))
            let archive = served.path.pushing(FilePath(String(pack.path.dropFirst())))
            let folder = try Directory.open(archive.removingLastComponent())
            let component = try #require(archive.lastComponent)
            try folder.write(pack.archive, to: component, durably: false)
            let manifest = try world.manifest(of: [pack])
            sizes.insert(manifest.count)
            try served.write(
                manifest,
                to: "manifest.json",
                durably: false,
                modifiedAfter: time - 1
            )
        }
        try await Nginx.serving(served.path, below: directory.path) { nginx in
            for name in names {
                try publish(name)
                let ending = try await world.program.run([
                    "load", name, "--manifest", nginx.baseURL + "manifest.json",
                    "--container", directory.path.appending("container").string,
                ])
                #expect(ending.status == 0, "\(ending)")
            }
        }
        try #require(sizes.count == 1, "manifests of two sizes have two tags")
    }

    @Test func eachEditOfAManifestHasASecondOfItsOwn() async throws {
        let world = try World()
        let manifest = try world.manifest(of: [try SamplePack.small(.aurora)])
        try directory.write(manifest, to: "manifest.json", durably: false)
        var times = [try #require(try directory.status("manifest.json")).modified]
        for policy in ["onDemand", "essential", "onDemand"] {
            let path = directory.path.appending("manifest.json").string
            let ending = try await world.program.run([
                "manifest", "set-policy", path, "aurora", policy,
            ])
            #expect(ending.status == 0, "\(ending)")
            times.append(try #require(try directory.status("manifest.json")).modified)
        }
        #expect(times == Array(Set(times)).sorted())
    }
}
